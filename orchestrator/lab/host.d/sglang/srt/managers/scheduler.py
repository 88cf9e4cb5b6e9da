"""One rank. Rank 0 also decodes: it lets pass the time that the cost model asks for, to absolute deadlines."""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator

from lab_hardware import settings
from lab_hardware.faults import Faults
from lab_hardware.model import Noise, Step, prefill_ms, steps
from lab_hardware.processes import die_with_parent, set_title

from sglang.srt.managers.cache import RadixCache
from sglang.srt.managers.io_struct import Message, Pipe
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.models.kimi_k25 import token_id, understood
from sglang.srt.server_args import ServerArgs
from sglang.srt.utils.log import log, set_rank


class Request:
    """A prompt being decoded: what it has, and when its next step is due."""

    def __init__(self, message: Message, words: list[str], plan: Iterator[Step], due_s: float) -> None:
        self.rid = int(message["rid"])
        self.prompt = str(message["text"])
        self.answer = understood(self.prompt)
        self.wanted = int(message["max_new_tokens"])
        self.ignores_end = bool(message["ignore_eos"])
        self.prompt_tokens = len(words)
        self.plan = plan
        self.due_s = due_s
        self.pending = Step(0.0, 1)  # the prefill yields one token
        self.produced = 0
        self.verify_count = 0

    @property
    def finish_reason(self) -> str | None:
        """`stop` once the answer is complete, `length` once the tokens are there."""
        if self.answer and not self.ignores_end and self.produced >= len(self.answer):
            return "stop"
        return "length" if self.produced >= self.wanted else None


class Scheduler:
    """The event loop of a rank. The clock is passed in; so is what waits for messages or time."""

    def __init__(
        self,
        runner: ModelRunner,
        pipe: Pipe,
        noise: Noise,
        faults: Faults,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._setup = runner.setup
        self._pipe = pipe
        self._noise = noise
        self._faults = faults
        self._clock = clock
        self._running: list[Request] = []
        self._seen: Counter[str] = Counter()
        self._cache = RadixCache(is_disabled=runner.server_args.disable_radix_cache)
        self._decoded = 0
        self._log_steps = 0
        self._log_tokens = 0
        self._log_since_s = clock()

    def run_event_loop(self) -> None:
        """Serve until main is gone."""
        while True:
            timeout_s = self._run_due_steps()
            readable, _, _ = select.select([self._pipe], [], [], timeout_s)
            if readable:
                for message in self._pipe.receive():
                    self._handle(message)

    def _handle(self, message: Message) -> None:
        if message["op"] == "generate":
            self._admit(message)
        elif message["op"] == "abort":
            self._running = [r for r in self._running if r.rid != message["rid"]]
        elif message["op"] == "flush":
            self._cache.flush()
            self._pipe.send({"rid": message["rid"], "flushed": not self._running})

    def _admit(self, message: Message) -> None:
        if self._faults.hangs_in("warmup") or self._has_hung():
            return
        prompt = str(message["text"])
        words = prompt.split()
        cached = self._cache.match(words)
        constants = settings().constants
        plan = steps(constants, self._setup, self._noise, prompt, self._seen[prompt])
        self._seen[prompt] += 1
        due_s = self._clock() + prefill_ms(constants, len(words) - cached) / 1000
        self._running.append(Request(message, words, plan, due_s))
        self._pipe.send({"rid": message["rid"], "prompt_tokens": len(words), "cached_tokens": cached})
        if not message.get("is_health"):
            log(
                f"Prefill batch, #new-seq: 1, #new-token: {len(words) - cached}, #cached-token: {cached}, "
                f"token usage: 0.00, #running-req: {len(self._running) - 1}, #queue-req: 0"
            )

    def _has_hung(self) -> bool:
        fault = self._faults.hangs_in("serve")
        return fault is not None and self._decoded >= fault.after

    def _run_due_steps(self) -> float | None:
        """Carry out what is due; the result is how long to wait for the next step, None when nothing runs."""
        for request in list(self._running):
            while request.due_s <= self._clock() and request.finish_reason is None:
                if self._has_hung():
                    return None
                self._step(request)
            if request.finish_reason is not None:
                self._running.remove(request)
        if not self._running:
            return None
        return max(0.0, min(r.due_s for r in self._running) - self._clock())

    def _step(self, request: Request) -> None:
        """Hand over the tokens of the step that just ended, and plan the next."""
        is_verify = self._setup.speculative and request.produced > 0
        words = self._choose(request)
        request.produced += len(words)
        request.verify_count += is_verify
        self._pipe.send(
            {
                "rid": request.rid,
                "words": words,
                "ids": [token_id(word) for word in words],
                "verify_count": request.verify_count,
                "finish_reason": request.finish_reason,
            }
        )
        self._count(len(words), is_verify)
        request.pending = next(request.plan)
        crowd_ms = settings().constants.batch_ms * (len(self._running) - 1)
        request.due_s += (request.pending.ms + crowd_ms) / 1000

    def _choose(self, request: Request) -> list[str]:
        words: list[str] = []
        while len(words) < request.pending.tokens and request.produced + len(words) < request.wanted:
            position = request.produced + len(words)
            is_over = request.answer and not request.ignores_end and position >= len(request.answer)
            if is_over:
                break
            words.append(self._runner.model.next_word(request.prompt, request.answer, position))
        return words

    def _count(self, tokens: int, is_verify: bool) -> None:
        self._decoded += tokens
        fault = self._faults.of("crash_mid_benchmark")
        if fault is not None and self._decoded > max(fault.after, 1):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self._log_steps += 1
        self._log_tokens += tokens
        interval = self._runner.server_args.decode_log_interval
        if self._log_steps < interval:
            return
        now_s = self._clock()
        accepted = f"accept len: {self._log_tokens / self._log_steps:.2f}, " if is_verify else ""
        log(
            f"Decode batch, #running-req: {len(self._running)}, #token: {self._log_tokens}, token usage: 0.00, "
            f"{accepted}cuda graph: {self._setup.under_graph}, "
            f"gen throughput (token/s): {self._log_tokens / max(1e-6, now_s - self._log_since_s):.2f}, #queue-req: 0"
        )
        self._log_steps = self._log_tokens = 0
        self._log_since_s = now_s


def run_scheduler_process(
    server_args: ServerArgs,
    rank: int,
    pipe: Pipe,
    *,
    main_pid: int,
    gpu: int,
    used_mib: float,
    noise: Noise,
    faults: Faults,
) -> None:
    """The life of a rank, in its own process. What fails is logged, and main is told by SIGQUIT."""
    die_with_parent(main_pid)
    label = f"TP{rank}" if server_args.tp_size > 1 else ""
    set_title("sglang::scheduler" + (f"_{label}" if label else ""))
    if label:
        set_rank(label)
    try:
        runner = ModelRunner(server_args, rank, gpu=gpu, used_mib=used_mib, faults=faults)
        if rank == 0:
            log(
                f"max_total_num_tokens={runner.max_total_num_tokens}, "
                f"chunked_prefill_size={server_args.chunked_prefill_size}, "
                f"max_prefill_tokens={server_args.max_prefill_tokens}, "
                f"max_running_requests={server_args.max_running_requests}, context_len={server_args.context_length}, "
                f"available_gpu_mem={(runner.memory.free - runner.memory.static) / 1024:.2f} GB"
            )
        pipe.send({"ready": rank, "max_total_num_tokens": runner.max_total_num_tokens})
        Scheduler(runner, pipe, noise, faults).run_event_loop()
    except EOFError:
        return
    except Exception:  # the last resort of a process: reported in full, then the end of the server
        log(f"Scheduler hit an exception: {traceback.format_exc()}")
        os.kill(main_pid, signal.SIGQUIT)
