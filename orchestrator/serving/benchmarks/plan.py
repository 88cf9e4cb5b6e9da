"""Which command measures: words, environment, and the files that hold its result. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.secrets import mask_words
from orchestrator.serving.configuration import Configuration, flag_words, merge_env, merge_flags
from orchestrator.serving.environment import API_KEY_ENV, server_environment

if TYPE_CHECKING:
    from orchestrator.core.measures import Accuracy, Goodput, Measure, Workload
    from orchestrator.core.model import FlagValue, Target

OUT = "{out}"
"""Replaced on the host by a directory of the run's own."""
_SGLANG_FILE, _VLLM_FILE = "sglang.jsonl", "vllm.json"
_VERSION = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"


@dataclass(frozen=True)
class BenchPlan:
    """As the agent's `bench` takes it. `version`: command that prints the client's version, None where nobody knows
    one. `own_requests`: what it sends, None where nobody knows. `dataset`: what kind of prompts those are."""

    tool: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    files: tuple[str, ...] = ()
    limit_s: float = 3600.0
    version: tuple[str, ...] | None = None
    own_requests: int | None = None
    dataset: str | None = None

    def shown(self, extra: Sequence[str] = ()) -> tuple[str, ...]:
        """The words with secrets masked."""
        return tuple(mask_words(self.argv, extra))


def plan_bench(
    measure: Measure, workload: Workload, target: Target, base_env: Mapping[str, str], launch_id: str
) -> BenchPlan:
    benchmark = measure.benchmark
    env = client_environment(target, base_env, benchmark.env)
    python = benchmark.python or target.python
    if benchmark.tool == "sglang":
        flags = merge_flags(_sglang_flags(measure, workload, target), benchmark.args)
        argv = (python, "-m", "sglang.bench_serving", *flag_words(flags))
        return BenchPlan(
            "sglang", argv, env, (_SGLANG_FILE,), benchmark.limit, benchmark.version or _version(python, "sglang"),
            _count(flags, benchmark.prompts) + _count(flags, 0, "warmup-requests"), _dataset(flags),
        )  # fmt: skip
    if benchmark.tool == "vllm":
        flags = merge_flags(_vllm_flags(measure, workload, target, launch_id), benchmark.args)
        argv = (python, "-m", "vllm.entrypoints.cli.main", "bench", "serve", *flag_words(flags))
        goodput = _goodput_words(measure.goodput)
        return BenchPlan(
            "vllm", (*argv, *goodput), env, (_VLLM_FILE,), benchmark.limit,
            benchmark.version or _version(python, "vllm"),
            _count(flags, benchmark.prompts) + _count(flags, 0, "num-warmups"), _dataset(flags),
        )  # fmt: skip
    numbers = {"prompts": benchmark.prompts, "concurrency": workload.concurrency, "seed": benchmark.seed}
    lengths = {"prompt_tokens": workload.prompt_tokens, "output_tokens": workload.output_tokens}
    words = _fill(benchmark.command or (), target, python, {**numbers, **lengths})
    argv = (*words, *flag_words(benchmark.args))
    files = () if benchmark.result is None else (benchmark.result,)
    return BenchPlan("command", argv, env, files, benchmark.limit, benchmark.version)


def plan_accuracy(accuracy: Accuracy, target: Target, base_env: Mapping[str, str]) -> BenchPlan:
    """The command that scores a task."""
    words = _fill(accuracy.command, target, target.python, {})
    files = () if accuracy.result is None else (accuracy.result,)
    return BenchPlan("accuracy", words, client_environment(target, base_env, accuracy.env), files, accuracy.limit)


def client_environment(target: Target, base_env: Mapping[str, str], own: Mapping[str, str | None]) -> dict[str, str]:
    """The server's without its treatment and its key; the agent gives the key where it is needed."""
    env = server_environment(target, Configuration(env=target.env), base_env)
    env.pop(API_KEY_ENV, None)
    return merge_env(env, own)


def _sglang_flags(measure: Measure, workload: Workload, target: Target) -> dict[str, FlagValue]:
    """Fixed lengths, random tokens that need no download; nothing of its own before the measurement but the flush."""
    benchmark = measure.benchmark
    return {
        "backend": "sglang",
        "host": "127.0.0.1",
        "port": target.port,
        "model": target.model,
        "dataset-name": "random-ids",
        "random-input-len": workload.prompt_tokens,
        "random-output-len": workload.output_tokens,
        "random-range-ratio": 1.0,
        "num-prompts": benchmark.prompts,
        "max-concurrency": workload.concurrency,
        "request-rate": benchmark.rate,
        "seed": benchmark.seed,
        "warmup-requests": 0,
        "flush-cache": not workload.reuse,
        "disable-tqdm": True,
        "output-details": True,
        "output-file": f"{OUT}/{_SGLANG_FILE}",
    }


def _vllm_flags(measure: Measure, workload: Workload, target: Target, launch_id: str) -> dict[str, FlagValue]:
    """Fixed lengths (a range of 0, which is SGLang's 1), and no test request: its prompt would be measured again."""
    benchmark = measure.benchmark
    return {
        "backend": "vllm",
        "host": "127.0.0.1",
        "port": target.port,
        "model": target.model,
        "served-model-name": launch_id if target.engine == "vllm" else target.model,
        "dataset-name": "random",
        "random-input-len": workload.prompt_tokens,
        "random-output-len": workload.output_tokens,
        "random-range-ratio": 0.0,
        "num-prompts": benchmark.prompts,
        "max-concurrency": workload.concurrency,
        "request-rate": benchmark.rate,
        "seed": benchmark.seed,
        "ignore-eos": True,
        "ready-check-timeout-sec": 0,
        "disable-tqdm": True,
        "percentile-metrics": "ttft,tpot,itl,e2el",
        "metric-percentiles": "50,90,99",
        "save-result": True,
        "save-detailed": True,
        "result-dir": OUT,
        "result-filename": _VLLM_FILE,
    }


def _goodput_words(goodput: Goodput) -> list[str]:
    pairs = (("ttft", goodput.ttft_ms), ("tpot", goodput.itl_ms), ("e2el", goodput.e2e_ms))
    stated = [f"{name}:{limit:g}" for name, limit in pairs if limit is not None]
    return ["--goodput", *stated] if stated else []


def _version(python: str, package: str) -> tuple[str, ...]:
    return (python, "-c", _VERSION, package)


def _count(flags: Mapping[str, FlagValue], otherwise: int, name: str = "num-prompts") -> int:
    value = str(flags.get(name, otherwise))
    return int(value) if value.isdecimal() else otherwise


def _dataset(flags: Mapping[str, FlagValue]) -> str:
    """Random tokens under whatever name are one class."""
    name = str(flags.get("dataset-name", ""))
    return "random" if name.startswith("random") else name


def _fill(words: Sequence[str], target: Target, python: str, numbers: Mapping[str, int]) -> tuple[str, ...]:
    """Only known names are replaced, so that JSON in braces stays as it is."""
    known = {"python": python, "port": str(target.port), "model": target.model or ""}
    known |= {name: str(number) for name, number in numbers.items()}
    filled = []
    for word in words:
        for name, value in known.items():
            word = word.replace("{" + name + "}", value)
        filled.append(word)
    return tuple(filled)
