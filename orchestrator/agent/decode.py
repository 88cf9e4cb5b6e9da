"""The decode probe: streams of tokens from the server, timed on its own host.

Time to the first token, gaps and decode speed come from the arrival of chunks; token counts from the server's own
count. A failed stream has an error and no numbers: never a zero.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from orchestrator.agent.errors import AgentError
from orchestrator.agent.observing import Observer
from orchestrator.agent.web import Exchange, prepare

_FLUSH_S = 30.0
_MAX_ERROR = 500
_VERDICT_S = 0.3
_AGREE = 0.05
_FIRST_NUMBER = 500_000


class EventLines:
    """Server-sent events out of blocks of bytes: the `data:` of each, as text."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, block: bytes) -> List[str]:
        lines = (self._rest + block).split(b"\n")
        self._rest = lines.pop()
        return [line[5:].strip().decode("utf-8", "replace") for line in lines if line.startswith(b"data:")]

    def rest(self) -> bytes:
        """What came without an end of line: an error body that is no event."""
        return self._rest


class Meter:
    """Turns timed events of one stream into a sample. Times in seconds on one clock, counts in tokens."""

    def __init__(self, api: str, sent_at: float) -> None:
        self._api = api
        self._sent_at = sent_at
        self._arrivals: List[Tuple[float, int]] = []  # (when, tokens so far)
        self._text = ""
        self._prompt: Optional[int] = None
        self._cached: Optional[int] = None
        self._counted: Optional[int] = None
        self._accept: Optional[float] = None
        self._finish: Optional[str] = None
        self._error: Optional[str] = None
        self._done = False
        self.gaps: List[float] = []  # seconds between tokens, once there is a sample

    def take(self, payload: str, at: float) -> None:
        """One event. Raises nothing: what cannot be read becomes the sample's error."""
        if payload == "[DONE]":
            self._done = True
            return
        try:
            event = json.loads(payload)
        except ValueError:
            self.fail(f"an event that is not JSON: {payload[:_MAX_ERROR]}")
            return
        if not isinstance(event, dict) or event.get("error"):
            shown = event.get("error") if isinstance(event, dict) else event
            self.fail(f"error in the stream: {json.dumps(shown)[:_MAX_ERROR]}")
        elif self._api == "sglang":
            self._take_sglang(event, at)
        else:
            self._take_openai(event, at)

    def _take_sglang(self, event: Mapping[str, Any], at: float) -> None:
        meta = event.get("meta_info") or {}
        self._text = str(event.get("text", ""))
        self._prompt = meta.get("prompt_tokens", self._prompt)
        self._cached = meta.get("cached_tokens", self._cached)
        self._accept = meta.get("spec_accept_length", self._accept)
        counted = meta.get("completion_tokens")
        if isinstance(counted, int):
            self._count(counted, at)
        finish = meta.get("finish_reason")
        if finish:
            kind = finish.get("type") if isinstance(finish, dict) else finish
            self._finish = str(kind)
            if kind == "abort":
                message = finish.get("message") if isinstance(finish, dict) else None
                self.fail(f"the server gave up the request: {message or 'abort'}"[:_MAX_ERROR])

    def _take_openai(self, event: Mapping[str, Any], at: float) -> None:
        choice = (event.get("choices") or [{}])[0]
        text = choice.get("text") or ""
        self._text += text
        if choice.get("finish_reason"):
            self._finish = str(choice["finish_reason"])
        usage = event.get("usage") or {}
        if isinstance(usage.get("completion_tokens"), int):
            self._prompt = usage.get("prompt_tokens", self._prompt)
            self._cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", self._cached)
            self._counted = usage["completion_tokens"]
        if text:
            # A count that runs with the chunks beats one token a chunk; most servers give it only at the end.
            running = self._counted if event.get("choices") else None
            so_far = self._arrivals[-1][1] if self._arrivals else 0
            self._arrivals.append((at, running if running is not None else so_far + 1))

    def _count(self, counted: int, at: float) -> None:
        self._counted = counted
        if counted > (self._arrivals[-1][1] if self._arrivals else 0):
            self._arrivals.append((at, counted))

    def fail(self, error: str) -> None:
        """The first error is kept."""
        self._error = self._error or error

    def sample(self, repetition: int, stream: int, ended_at: float) -> Dict[str, Any]:
        """`Sample` of the protocol."""
        tokens = self._counted if self._counted is not None else (self._arrivals[-1][1] if self._arrivals else None)
        if not self._arrivals:
            self.fail("the stream ended without a token")
        elif not self._finish and not (self._done and self._api == "openai"):
            self.fail(f"the stream ended early, after {tokens} tokens")
        ok = self._error is None
        first, last = (self._arrivals[0], self._arrivals[-1]) if self._arrivals else ((0.0, 0), (0.0, 0))
        decoded = (tokens or 0) - first[1]
        gaps = self.gaps = self._gaps(tokens) if ok else []
        timed = ok and decoded > 0 and last[0] > first[0]
        return {
            "repetition": repetition,
            "stream": stream,
            "ok": ok,
            "error": self._error,
            "prompt_tokens": self._prompt,
            "output_tokens": tokens if ok else None,
            "cached_tokens": self._cached,
            "ttft_s": first[0] - self._sent_at if ok else None,
            "decode_s": last[0] - first[0] if timed else None,
            "decode_tokens": decoded if timed else None,
            "total_s": ended_at - self._sent_at if ok else None,
            "itl_p50_s": percentile(gaps, 0.50) if timed else None,
            "itl_p99_s": percentile(gaps, 0.99) if timed else None,
            "accept_length": self._accept if ok else None,
            "finish_reason": self._finish,
            "text_sha256": hashlib.sha256(self._text.encode("utf-8", "surrogatepass")).hexdigest() if ok else None,
            "text": self._text,
        }

    def _gaps(self, tokens: Optional[int]) -> List[float]:
        """Seconds per token after the first chunk; a chunk of n tokens counts as n equal gaps."""
        gaps: List[float] = []
        scale = 1.0
        if self._arrivals and tokens and self._arrivals[-1][1] != tokens:
            scale = tokens / self._arrivals[-1][1]  # chunks counted as one token each, and the server knows better
        for (before, had), (after, has) in zip(self._arrivals, self._arrivals[1:]):  # noqa: B905 - `strict` is not in 3.8
            new = max(has - had, 1)
            gaps.extend([(after - before) / (new * scale)] * new)
        return gaps


def agree(sweeps: List[float]) -> bool:
    """Whether the last two of them are within 5 % of one another."""
    return len(sweeps) > 1 and abs(sweeps[-1] - sweeps[-2]) <= _AGREE * max(sweeps[-2:])


def percentile(values: List[float], share: float) -> Optional[float]:
    """Nearest rank, which is one of the values; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def request_body(spec: Mapping[str, Any], prompt: str) -> Dict[str, Any]:
    """What is sent; `extra` is laid over it, mappings inside it key by key."""
    if spec["api"] == "sglang":
        sampling = {"temperature": 0, "max_new_tokens": spec["output_tokens"], "ignore_eos": True}
        body: Dict[str, Any] = {"text": prompt, "sampling_params": sampling, "stream": True}
    elif spec["api"] == "openai":
        body = {
            "prompt": prompt,
            "max_tokens": spec["output_tokens"],
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    else:
        raise AgentError("usage", f"no api is called {spec['api']!r}", {"known": "sglang, openai"})
    for name, value in (spec.get("extra") or {}).items():
        body[name] = {**body[name], **value} if isinstance(value, dict) and isinstance(body.get(name), dict) else value
    return body


class Probe:
    """One `decode` request. `stop` makes `run` return at once with what there is."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        headers: Mapping[str, str],
        host: str = "127.0.0.1",
        observer: Optional[Observer] = None,
    ) -> None:
        request_body(spec, "")  # an unknown api is refused before any thread waits for the others
        prepare()
        self._spec = spec
        self._observer = observer
        self._gaps: List[float] = []
        self._headers = {"Content-Type": "application/json", **headers}
        self._base = f"http://{host}:{spec['port']}"
        self._lock = threading.Lock()
        self._running_now: List[Exchange] = []
        self._stopped: Optional[str] = None
        self._halt = threading.Event()
        self._heard_at = time.monotonic()

    @property
    def silent_s(self) -> float:
        """Seconds since the last sign of the server: a chunk, an answer, or a request that was just sent."""
        return time.monotonic() - self._heard_at

    def stop(self, why: str) -> None:
        with self._lock:
            self._stopped = self._stopped or why
            self._halt.set()
            running = list(self._running_now)
        for exchange in running:
            exchange.abort()

    def run(self) -> Dict[str, Any]:
        """`samples`: one per stream and repetition. A warm-up that fails is one too, with a negative repetition.
        `flushes`: what the server answered before each repetition. `sweeps`: seconds per token of each warm-up.
        `itl`: percentiles of the seconds between all tokens. `observed`: what the observer saw."""
        samples, sweeps = self._warm_up()
        flushes: List[Dict[str, Any]] = []
        self._gaps = []
        if self._observer is not None:
            self._observer.begin()
        for repetition in range(int(self._spec["repetitions"])):
            if self._stopped is not None and repetition:
                break
            if self._spec.get("flush_path"):
                flushes.append({"repetition": repetition, **self._flush()})
            samples += self._volley(repetition)
        result: Dict[str, Any] = {"samples": samples, "flushes": flushes, "sweeps": sweeps}
        result["itl"] = {f"p{share}_s": percentile(self._gaps, share / 100) for share in (50, 90, 99)}
        if self._observer is not None:
            result["observed"] = self._observer.end()
        return result

    def _warm_up(self) -> Tuple[List[Dict[str, Any]], List[float]]:
        """Sweeps of the measured shape, `warmup` of them at least, until two agree or `warmup_most` are over: what is
        compiled or cached on the first use is not measured. Failed samples, and seconds per token of each sweep."""
        least = int(self._spec.get("warmup") or 0)
        most = max(least, int(self._spec.get("warmup_most") or least))
        failed: List[Dict[str, Any]] = []
        sweeps: List[float] = []
        for number in range(most):
            if self._stopped is not None or (number >= least and (failed or agree(sweeps))):
                break
            if most > least and self._spec.get("flush_path"):
                self._flush()
            began_at = time.monotonic()
            volley = self._volley(-1 - number)
            seconds = time.monotonic() - began_at
            failed += [sample for sample in volley if not sample["ok"]]
            sweeps.append(seconds / max(sum(sample["output_tokens"] or 0 for sample in volley), 1))
        return failed, sweeps

    def _volley(self, repetition: int) -> List[Dict[str, Any]]:
        """All streams of one repetition, started together."""
        streams = max(int(self._spec.get("concurrency") or 1), 1)
        if streams == 1:
            return [self._stream(repetition, 0, lambda: None)]
        gate = threading.Barrier(streams)
        with ThreadPoolExecutor(max_workers=streams) as pool:
            return list(pool.map(lambda stream: self._stream(repetition, stream, gate.wait), range(streams)))

    def _stream(self, repetition: int, stream: int, ready: Callable[[], Any]) -> Dict[str, Any]:
        body = json.dumps(request_body(self._spec, self._prompt(repetition, stream))).encode()
        ready()
        meter = Meter(self._spec["api"], time.monotonic())
        try:
            with self._running(self._spec["path"], body, float(self._spec["timeout_s"])) as exchange:
                self._follow(exchange, meter)
        except AgentError as error:
            # A connection that broke is most often a server that is about to be seen dead: the better reason.
            self._halt.wait(_VERDICT_S)
            meter.fail(self._stopped or f"{error.facts.get('reason', error.kind)}: {error.what}")
        sample = meter.sample(repetition, stream, time.monotonic())
        with self._lock:
            self._gaps += meter.gaps
        return sample

    def _follow(self, exchange: Exchange, meter: Meter) -> None:
        status, _, blocks = exchange.start()
        if status != 200:
            said = b"".join(blocks).decode("utf-8", "replace")
            meter.fail(f"HTTP {status}: {said[:_MAX_ERROR]}")
            return
        lines = EventLines()
        for block in blocks:
            now = self._heard_at = time.monotonic()
            for payload in lines.feed(block):
                meter.take(payload, now)
        if lines.rest().strip():
            meter.fail(f"not an event: {lines.rest()[:_MAX_ERROR].decode('utf-8', 'replace')}")

    def _prompt(self, repetition: int, stream: int) -> str:
        """One of a list, or the same for every stream. `vary` puts a number first, so that no prefix cache knows the
        rest: `streams` before all streams but the first, `all` before every prompt."""
        prompt, vary = self._spec["prompt"], self._spec.get("vary")
        streams = max(int(self._spec.get("concurrency") or 1), 1)
        if not isinstance(prompt, str):
            return str(prompt[(repetition * streams + stream) % len(prompt)])
        if vary == "all" or (vary == "streams" and stream):
            return f"{_FIRST_NUMBER + repetition * streams + stream} {prompt}"
        return prompt

    def _flush(self) -> Dict[str, Any]:
        try:
            with self._running(self._spec["flush_path"], b"", _FLUSH_S) as exchange:
                status, _, _ = exchange.run()
        except AgentError as error:
            return {"ok": False, "status": None, "error": error.what}
        return {"ok": status == 200, "status": status, "error": None}

    @contextlib.contextmanager
    def _running(self, path: str, body: bytes, timeout_s: float) -> Iterator[Exchange]:
        """A POST that `stop` knows of while it runs."""
        self._heard_at = time.monotonic()
        exchange = Exchange("POST", self._base + path, headers=self._headers, body=body, timeout_s=timeout_s)
        with self._lock:
            if self._stopped is not None:
                raise AgentError("unreachable", self._stopped, {"reason": "reset"})
            self._running_now.append(exchange)
        try:
            yield exchange
        finally:
            with self._lock:
                self._running_now.remove(exchange)
