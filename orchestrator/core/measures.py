"""What a playbook says of measuring: workload, benchmark, metric, limits that must hold, and the check of answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from orchestrator.core.basis import EnvName, EnvValue, FlagValue, Model
from orchestrator.core.units import Duration, Percent

Metric = Literal[
    "output_tps", "total_tps", "requests_per_s", "goodput_per_s",
    "ttft_ms", "ttft_p50_ms", "ttft_p90_ms", "ttft_p99_ms",
    "itl_ms", "itl_p50_ms", "itl_p90_ms", "itl_p99_ms",
    "e2e_ms", "e2e_p50_ms", "e2e_p90_ms", "e2e_p99_ms",
    "accept_length", "memory_mib", "power_w", "error_rate",
]  # fmt: skip
"""Every number of a result record. `output_tps` of the probe is streamed decoding, of a client whole requests."""

METRICS: tuple[Metric, ...] = get_args(Metric)
HIGHER_IS_BETTER = frozenset({"output_tps", "total_tps", "requests_per_s", "goodput_per_s", "accept_length"})

Total = Literal["requests", "failed", "prompt_tokens", "output_tokens", "seconds"]


class Workload(Model):
    """What is sent to the server. Token counts are asked for and then measured; the measured ones count."""

    prompt_tokens: int = Field(128, ge=1, description="tokens sent in one request")
    output_tokens: int = Field(256, ge=2, description="tokens asked for in one request")
    concurrency: int = Field(1, ge=1, le=1024, description="requests at a time")
    ladder: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(
        (), description="further concurrencies, measured and recorded beside; the verdict rests on `concurrency`"
    )
    warmup: int = Field(1, ge=0, description="sweeps of the same shape before measuring, at the least; 0: none")
    warmup_most: int = Field(
        6,
        ge=0,
        description="sweeps at the most: they go on until two agree within 5 %",
    )
    prompt: str | None = Field(None, description="instead of the built-in text")
    reuse: bool = Field(False, description="true: prompts may be found in the server's prefix cache")


class Source(Model):
    """Where one number of a command's result stands."""

    json_path: str | None = Field(None, alias="json", description="keys and indices joined by dots: `results.0.tps`")
    pattern: str | None = Field(None, description="regular expression with one group, for what was printed")
    scale: float = Field(1.0, description="the number is multiplied by it: 1000 for seconds that are wanted as ms")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.json_path is None) == (self.pattern is None):
            raise ValueError("a number needs exactly one of `json`, `pattern`")
        if self.pattern is not None:
            try:
                groups = re.compile(self.pattern).groups
            except re.error as error:
                raise ValueError(f"`pattern` is no regular expression: {error}") from error
            if groups != 1:
                raise ValueError(f"`pattern` needs one group around the number, and has {groups}")
        return self


def _source(value: object) -> object:
    return {"json": value} if isinstance(value, str) else value


SourceOrPath = Annotated[Source, BeforeValidator(_source, json_schema_input_type=str | Source)]


class Benchmark(Model):
    """Who sends the workload. The same client measures both arms, on the server's own host."""

    tool: Literal["decode", "sglang", "vllm", "command"] = Field(
        "decode", description="the built-in probe, `sglang.bench_serving`, `vllm bench serve`, or a command"
    )
    python: str | None = Field(None, description="interpreter of the client on the host; null is the target's")
    prompts: int = Field(32, ge=1, description="requests that the client sends")
    rate: float | None = Field(None, gt=0, description="requests a second; null: as fast as `concurrency` lets them")
    seed: int = Field(1, ge=0, description="of the client's random prompts; the same in both arms")
    args: dict[str, FlagValue] = Field(default_factory=dict, description="further flags of the client; null removes")
    env: dict[EnvName, EnvValue] = Field(default_factory=dict, description="environment of the client")
    command: tuple[str, ...] | None = Field(
        None,
        description="words of tool `command`; {python}, {port}, {model}, {out}, {prompts}, {concurrency}, "
        "{prompt_tokens}, {output_tokens}, {seed} are replaced",
    )
    result: str | None = Field(
        None, description="file below {out} that holds the result, shell pattern; null is what was printed"
    )
    metrics: dict[Metric | Total, SourceOrPath] = Field(
        default_factory=dict, description="number → where tool `command` tells it; totals too, so that work is compared"
    )
    version: tuple[str, ...] | None = Field(None, description="command that prints the client's version")
    limit: Duration = Field(3600.0, description="longest run of the client")

    @model_validator(mode="after")
    def _command_is_whole(self) -> Self:
        if (self.tool == "command") != (self.command is not None):
            raise ValueError("`command` belongs to tool `command`, and that tool needs it")
        if self.tool == "command" and not self.metrics:
            raise ValueError("tool `command` needs `metrics`: where the numbers of its result stand")
        return self


class Goodput(Model):
    """A request is good when it keeps all of these."""

    ttft_ms: float | None = Field(None, gt=0, description="time to the first token")
    itl_ms: float | None = Field(None, gt=0, description="mean time between tokens")
    e2e_ms: float | None = Field(None, gt=0, description="the whole request")

    @property
    def is_stated(self) -> bool:
        return any(limit is not None for limit in (self.ttft_ms, self.itl_ms, self.e2e_ms))


class Measure(Model):
    """What decides, and how much evidence is asked for."""

    metric: Metric = Field("output_tps", description="the number that decides; docs/measuring.md has them all")
    direction: Literal["higher", "lower"] = Field("higher", description="which way is better")
    min_effect: Percent = Field(0.02, description="smaller effects count as none")
    repetitions: int = Field(3, ge=1, description="samples of one launch")
    launches: int = Field(2, ge=1, description="launches of an arm at the most")
    screening: bool = Field(
        True, description="a crash, or an effect far above the noise, ends a hypothesis after one launch of each arm"
    )
    benchmark: Benchmark = Field(default_factory=Benchmark, description="who sends the workload")
    goodput: Goodput = Field(default_factory=Goodput, description="limits that a request keeps to be a good one")
    may_differ: tuple[str, ...] = Field(
        (), description="settings, as the server reports them, in which arms may differ beyond the treatment"
    )

    @model_validator(mode="after")
    def _tool_tells_the_metric(self) -> Self:
        tool = self.benchmark.tool
        if tool == "command" and self.metric not in self.benchmark.metrics:
            raise ValueError(f"`{self.metric}` is not among the `metrics` of the benchmark")
        if self.metric == "goodput_per_s" and not self.goodput.is_stated and tool != "command":
            raise ValueError("`goodput_per_s` needs the limits of `goodput`")
        return self


def _guard(value: object) -> object:
    """`500`, `10%`, or a mapping."""
    if isinstance(value, str):
        return {"worse": value}
    return {"limit": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


class Guard(Model):
    """A limit that a better metric may not break: the most it may be (the least where more is better), or how much
    worse than the baseline."""

    limit: float | None = Field(None, ge=0, description="in the unit of its name")
    worse: Percent | None = Field(None, ge=0, description="how much worse than the baseline's")

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.limit is None) == (self.worse is None):
            raise ValueError("a guardrail is one number, or one percentage of the baseline's")
        return self


GuardOrNumber = Annotated[Guard, BeforeValidator(_guard, json_schema_input_type=float | str | Guard)]


Guards = Mapping[Metric, Guard]


class Accuracy(Model):
    """A task whose score is compared with the baseline's, such as `lm_eval` or `sgl-eval`."""

    command: tuple[str, ...] = Field(min_length=1, description="words; {python}, {port}, {model}, {out} are replaced")
    score: SourceOrPath = Field(description="where the score stands; more is better")
    result: str | None = Field(
        None, description="file below {out} that holds the result, shell pattern; null is what was printed"
    )
    floor: float = Field(0.0, ge=0, description="differences up to it are none, in the score's own unit")
    env: dict[EnvName, EnvValue] = Field(default_factory=dict, description="environment of the command")
    limit: Duration = Field(3600.0, description="longest run of the command")


class Gate(Model):
    """The check of answers before any speed counts."""

    prompts: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="further prompts whose greedy answers are compared"
    )
    follow: dict[str, str] = Field(
        default_factory=dict, description="prompt → text that an answer which follows it contains"
    )
    tokens: int = Field(16, ge=1, description="length of an answer")
    agreement: Percent = Field(
        0.5, ge=0, le=1, description="least agreement with the baseline's answers, as a share of its own with itself"
    )
    accuracy: Accuracy | None = Field(None, description="a task scored by a command")
