"""What a client wrote → samples, totals and values. Pure."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.measures import METRICS
from orchestrator.serving.record import Record, gpu_fields, gpu_values, latency_values, rate_values, requests_served

if TYPE_CHECKING:
    from orchestrator.core.measures import Accuracy, Benchmark, Goodput, Source
    from orchestrator.serving.benchmarks.plan import BenchPlan
    from orchestrator.serving.counters import Counted
    from orchestrator.serving.gpus import GpuSeries

Sample = dict[str, Any]


class Unreadable(Exception):
    """The client gave no result that can be used; the text says why."""


@dataclass(frozen=True)
class Reading:
    """`samples` as the agent's probe has them, empty where the client tells only totals. `itl_s`: percentiles."""

    samples: list[Sample] = field(default_factory=list)
    seconds: float = 0.0
    requests: int = 0
    failed: int = 0
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    retokenised: int | None = None
    itl_s: Mapping[str, float | None] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)


def read_bench(benchmark: Benchmark, plan: BenchPlan, reply: Mapping[str, Any]) -> Reading:
    """The reply to `bench`. Raises `Unreadable`."""
    _refuse_failure(plan.tool, reply)
    if plan.tool == "command":
        return _read_command(benchmark, reply)
    text = _file(reply, plan.files[0])
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise Unreadable(f"{plan.tool}: its result is empty")
    return read_details(_json(lines[-1] if plan.tool == "sglang" else text, plan.tool))


def read_details(result: Mapping[str, Any]) -> Reading:
    """The result of `sglang.bench_serving --output-details` or `vllm bench serve --save-detailed`: the same keys, but
    that SGLang lists no output length for a request that failed."""
    errors = list(result.get("errors") or [])
    lengths, ttfts, itls = (list(result.get(key) or []) for key in ("output_lens", "ttfts", "itls"))
    inputs = list(result.get("input_lens") or [])
    is_aligned = len(lengths) == len(errors)
    left = iter(lengths)
    samples: list[Sample] = []
    gaps: list[float] = []
    for i, error in enumerate(errors):
        has_answer = bool(ttfts[i]) and not error
        length = lengths[i] if is_aligned else next(left, None) if has_answer else None
        chunks = [float(gap) for gap in itls[i]] if i < len(itls) else []
        samples.append(_sample(i, str(error or ""), inputs[i] if i < len(inputs) else None, length, ttfts[i], chunks))
        gaps += chunks if has_answer else []
    completed = int(result.get("completed") or 0)
    requests = len(errors) or completed + int(result.get("failed") or 0)
    accept = result.get("accept_length") or result.get("spec_decode_acceptance_length")
    values = {"output_tps": result.get("output_throughput"), "requests_per_s": result.get("request_throughput")}
    values |= {"goodput_per_s": result.get("request_goodput"), "accept_length": accept}
    values |= {
        f"{name}_{key}ms": result.get(f"{theirs}_{name_of}_ms")
        for name, name_of in _LATENCIES
        for key, theirs in _STATISTICS
    }
    return Reading(
        samples=samples,
        seconds=float(result.get("duration") or 0.0),
        requests=requests,
        failed=requests - completed,
        prompt_tokens=_whole(result.get("total_input_tokens")),
        output_tokens=_whole(result.get("total_output_tokens")),
        retokenised=_whole(result.get("total_output_tokens_retokenized")),
        itl_s=_percentiles(gaps),
        values=_numbers(values),
    )


_LATENCIES = (("ttft", "ttft"), ("itl", "itl"), ("e2e", "e2e_latency"), ("e2e", "e2el"))
_STATISTICS = (("", "mean"), ("p50_", "median"), ("p90_", "p90"), ("p99_", "p99"))


def _sample(
    number: int, error: str, prompt: int | None, output: int | None, ttft: float, itl: Sequence[float]
) -> Sample:
    """Of one request; a failed one has an error and no numbers. All are one repetition: the launch is the evidence."""
    is_ok = not error and bool(ttft)
    decode_s = math.fsum(itl)
    timed = is_ok and output is not None and output > 1 and decode_s > 0
    ordered = sorted(itl)
    return {
        "repetition": 0,
        "stream": number,
        "ok": is_ok,
        "error": None if is_ok else error or "no token came",
        "prompt_tokens": prompt if is_ok else None,
        "output_tokens": output if is_ok else None,
        "ttft_s": float(ttft) if is_ok else None,
        "decode_s": decode_s if timed else None,
        "decode_tokens": output - 1 if timed and output is not None else None,
        "total_s": float(ttft) + decode_s if is_ok else None,
        "itl_p50_s": _rank(ordered, 0.5) if timed else None,
        "itl_p99_s": _rank(ordered, 0.99) if timed else None,
    }


def _read_command(benchmark: Benchmark, reply: Mapping[str, Any]) -> Reading:
    printed = str(reply.get("stdout", ""))
    result = None
    if any(source.json_path is not None for source in benchmark.metrics.values()):
        text = printed if benchmark.result is None else _file(reply, benchmark.result)
        result = _last_json(text) if benchmark.result is None else _json_or_lines(text)
    found = {name: take(source, result, printed, name) for name, source in benchmark.metrics.items()}
    totals = {name: value for name, value in found.items() if name not in METRICS}
    failed = int(totals.get("failed", 0))
    return Reading(
        seconds=float(totals.get("seconds", 0.0)),
        requests=int(totals.get("requests", 0)),
        failed=failed,
        prompt_tokens=_whole(totals.get("prompt_tokens")),
        output_tokens=_whole(totals.get("output_tokens")),
        values={str(name): value for name, value in found.items() if name in METRICS},
    )


def read_score(accuracy: Accuracy, reply: Mapping[str, Any]) -> float:
    """The score of a task. Raises `Unreadable`."""
    _refuse_failure("accuracy", reply)
    printed = str(reply.get("stdout", ""))
    result = None
    if accuracy.score.json_path is not None:
        result = _last_json(printed) if accuracy.result is None else _json_or_lines(_file(reply, accuracy.result))
    return take(accuracy.score, result, printed, "score")


def take(source: Source, result: object, printed: str, name: str) -> float:
    """One number, from JSON by its path or from the last match of the pattern. Raises `Unreadable`."""
    if source.pattern is not None:
        matches = re.findall(source.pattern, printed)
        if not matches:
            raise Unreadable(f"`{name}`: nothing that was printed fits {source.pattern!r}")
        value: object = matches[-1]
    else:
        value = result
        for part in (source.json_path or "").split("."):
            value = _step(value, part)
            if value is None:
                raise Unreadable(f"`{name}`: the result has nothing at {source.json_path}")
    try:
        number = float(str(value).replace(",", "")) * source.scale
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or isinstance(value, bool):
        raise Unreadable(f"`{name}` is {str(value)[:60]!r}, which is no number")
    return number


def record_of_bench(
    plan: BenchPlan,
    reading: Reading,
    reply: Mapping[str, Any],
    counts: Counted,
    series: GpuSeries,
    goodput: Goodput,
    *,
    version: str,
    secrets: Sequence[str] = (),
    sweeps: Sequence[float] = (),
) -> Record:
    """The same record as the probe's. Values of ours come from the requests where the client lists them, and its own
    fill the rest; tokens are the server's count where it has counters."""
    values = dict(reading.values)
    if reading.samples:
        values |= latency_values(reading.samples, reading.itl_s) | rate_values(
            reading.samples, reading.seconds, goodput
        )
    elif reading.requests:
        values.setdefault("error_rate", reading.failed / reading.requests)
    if "accept_length" not in values and counts.accept_length is not None:
        values["accept_length"] = counts.accept_length
    values |= gpu_values(series)
    observed = reply.get("observed") or {}
    is_told = counts.output_tokens is not None and counts.prompt_tokens is not None
    if plan.own_requests is None and reading.output_tokens is not None:
        is_told = False  # the server also counted what the command sent to warm up
    own = plan.own_requests or reading.requests
    seconds = float(reply.get("seconds") or 0.0)
    return Record(
        tool=plan.tool,
        client=f"{plan.tool} {version}".strip(),
        command=plan.shown(secrets),
        requests=reading.requests,
        failed=reading.failed,
        seconds=reading.seconds or seconds,
        prompt_tokens=_whole(counts.prompt_tokens) if is_told else reading.prompt_tokens,
        output_tokens=_whole(counts.output_tokens) if is_told else reading.output_tokens,
        counted_by="server" if is_told else "client",
        retokenised_output_tokens=reading.retokenised,
        dataset=plan.dataset,
        values=values,
        own_requests=own,
        requests_served=requests_served(counts, observed.get("requests_logged"), own) if own else None,
        cache_queries=counts.cache_queries,
        cache_hits=counts.cache_hits,
        sweeps=tuple(sweeps),
        client_load=float(reply["cpu_s"]) / seconds if seconds and reply.get("cpu_s") else None,
        **gpu_fields(series),
    )


# ---------------------------------------------------------------- pieces


def _refuse_failure(tool: str, reply: Mapping[str, Any]) -> None:
    last = next((line for line in reversed(str(reply.get("stdout", "")).splitlines()) if line.strip()), "")
    said = f": {last.strip()[:200]}" if last else ""
    if reply.get("timed_out"):
        raise Unreadable(f"{tool} was still running after {float(reply.get('seconds') or 0):.0f} s{said}")
    if reply.get("signal") is not None:
        raise Unreadable(f"{tool} ended with signal {reply['signal']}{said}")
    if reply.get("exit_code") != 0:
        raise Unreadable(f"{tool} ended with exit code {reply.get('exit_code')}{said}")


def _file(reply: Mapping[str, Any], pattern: str) -> str:
    files: Mapping[str, Any] = reply.get("files") or {}
    if not files:
        raise Unreadable(f"it wrote no file {pattern}")
    name, content = sorted(files.items())[-1]
    if "zlib_b64" not in content:
        raise Unreadable(f"{name} is too long to be read: {content.get('too_long')} bytes")
    return zlib.decompress(base64.b64decode(content["zlib_b64"])).decode("utf-8", "replace")


def _json(text: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Unreadable(f"{what}: its result is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Unreadable(f"{what}: its result is no JSON object")
    return found


def _json_or_lines(text: str) -> object:
    """A whole JSON document, else the last line that is one."""
    try:
        return json.loads(text)
    except ValueError:
        return _last_json(text)


def _last_json(text: str) -> object:
    """The last line that is a JSON object or list, among whatever else was printed; else the last block in braces."""
    for line in reversed(text.splitlines()):
        if line.strip()[:1] in ("{", "["):
            try:
                return json.loads(line)
            except ValueError:
                continue
    start = text.find("{")
    try:
        return json.loads(text[start : text.rfind("}") + 1]) if start >= 0 else None
    except ValueError:
        return None


def _step(value: object, part: str) -> object:
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, list) and part.lstrip("-").isdecimal() and -len(value) <= int(part) < len(value):
        return value[int(part)]
    return None


def _numbers(values: Mapping[str, object]) -> dict[str, float]:
    return {name: float(v) for name, v in values.items() if isinstance(v, int | float) and math.isfinite(v)}


def _whole(value: object) -> int | None:
    return round(value) if isinstance(value, int | float) else None


def _percentiles(gaps: Sequence[float]) -> dict[str, float | None]:
    ordered = sorted(gaps)
    return {f"p{share}_s": _rank(ordered, share / 100) if ordered else None for share in (50, 90, 99)}


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
