"""The result record: what one launch measured, in the same shape whoever sent the workload. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from orchestrator.serving.counters import Counted
from orchestrator.serving.gpus import GpuSeries
from orchestrator.serving.metrics import launch_value, token_totals

if TYPE_CHECKING:
    from orchestrator.core.measures import Goodput

Sample = Mapping[str, Any]
_MOST_LOOKS = 240


@dataclass(frozen=True)
class Record:
    """`values`: metric → number, those that are known. `counted_by`: who counted the tokens, `server` or `client`.
    `own_requests`: what we sent while it was measured, `requests_served`: what the server answered, None where it does
    not tell. `command`: words with secrets masked. `flushes`: whether each flush was acknowledged."""

    tool: str
    client: str
    command: tuple[str, ...] = ()
    requests: int = 0
    failed: int = 0
    seconds: float = 0.0
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    counted_by: str = "server"
    retokenised_output_tokens: int | None = None
    dataset: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    own_requests: int = 0
    requests_served: int | None = None
    cache_queries: float | None = None
    cache_hits: float | None = None
    sweeps: tuple[float, ...] = ()
    flushes: tuple[bool, ...] = ()
    client_load: float | None = None
    sm_clocks_mhz: tuple[float, ...] = ()
    power_w: tuple[float, ...] = ()
    power_limit_w: float | None = None
    utilisation: tuple[float, ...] = ()
    throttle_reasons: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """Of a launch that an earlier process measured; keys of a later version are left out."""
        known: dict[str, Any] = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        fields: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in known.items()}
        return cls(**fields)


def latency_values(samples: Sequence[Sample], itl_s: Mapping[str, float | None]) -> dict[str, float]:
    """Times in milliseconds over all good requests. `itl_s`: percentiles between all tokens, `p50_s` and so on."""
    good = [s for s in samples if s.get("ok")]
    values: dict[str, float] = {}
    for name, key in (("ttft", "ttft_s"), ("e2e", "total_s")):
        times = sorted(1000 * float(s[key]) for s in good if s.get(key) is not None)
        if times:
            values[f"{name}_ms"] = fmean(times)
            values |= {f"{name}_p{share}_ms": _rank(times, share) for share in (50, 90, 99)}
    if (mean := launch_value(good, "itl_ms")) is not None:
        values["itl_ms"] = mean
    values |= {f"itl_p{share}_ms": 1000 * v for share in (50, 90, 99) if (v := itl_s.get(f"p{share}_s")) is not None}
    return values


def rate_values(samples: Sequence[Sample], seconds: float, goodput: Goodput) -> dict[str, float]:
    """Rates over the whole time; failures count as requests that were answered badly, never as answered."""
    good = [s for s in samples if s.get("ok")]
    values = {"error_rate": 1 - len(good) / len(samples)} if samples else {}
    if seconds <= 0:
        return values
    prompt, output = token_totals(good)
    values |= {"requests_per_s": len(good) / seconds, "total_tps": (prompt + output) / seconds}
    if goodput.is_stated:
        values["goodput_per_s"] = sum(_keeps(s, goodput) for s in good) / seconds
    return values


def _keeps(sample: Sample, limits: Goodput) -> bool:
    tokens = sample.get("decode_tokens")
    itl_s = float(sample["decode_s"]) / float(tokens) if tokens and sample.get("decode_s") is not None else None
    pairs = ((sample.get("ttft_s"), limits.ttft_ms), (itl_s, limits.itl_ms), (sample.get("total_s"), limits.e2e_ms))
    return all(limit is None or (found is not None and 1000 * float(found) <= limit) for found, limit in pairs)


def accept_length_of(samples: Sequence[Sample]) -> float | None:
    """Tokens per verify pass over all requests: a ratio of sums, not the mean of the requests' own."""
    drafted = [s for s in samples if s.get("ok") and s.get("accept_length") and s.get("output_tokens")]
    passes = sum(float(s["output_tokens"]) / float(s["accept_length"]) for s in drafted)
    return sum(float(s["output_tokens"]) for s in drafted) / passes if passes else None


def gpu_values(series: GpuSeries) -> dict[str, float]:
    values = {"power_w": fmean(series.power_w)} if series.power_w else {}
    return values | ({"memory_mib": series.memory_mib} if series.memory_mib is not None else {})


def gpu_fields(series: GpuSeries) -> dict[str, Any]:
    """As a record has them."""
    return {
        "sm_clocks_mhz": _thin(series.sm_clocks_mhz),
        "power_w": _thin(series.power_w),
        "power_limit_w": series.power_limit_w,
        "utilisation": _thin(series.utilisation),
        "throttle_reasons": series.reasons,
    }


def requests_served(counts: Counted, logged: int | None, own: int) -> int | None:
    """By the server's own counter, else by its access log; a log that does not even show ours tells nothing."""
    if counts.requests is not None:
        return round(counts.requests)
    return logged if logged is not None and logged >= own else None


def record_of_probe(
    reply: Mapping[str, Any], counts: Counted, series: GpuSeries, goodput: Goodput, client: str
) -> Record:
    """The built-in probe's record from the reply to `decode`."""
    samples = [s for s in reply["samples"] if s["repetition"] >= 0]
    good = [s for s in samples if s.get("ok")]
    groups: dict[int, float] = {}
    for sample in good:
        repetition = int(sample["repetition"])
        groups[repetition] = max(groups.get(repetition, 0.0), float(sample.get("total_s") or 0.0))
    seconds = sum(groups.values())
    values = latency_values(samples, reply.get("itl") or {}) | rate_values(samples, seconds, goodput)
    accept = accept_length_of(good) or counts.accept_length
    values |= {"accept_length": accept} if accept is not None else {}
    values |= gpu_values(series)
    if (speed := launch_value(good, "output_tps")) is not None:
        values["output_tps"] = speed
    prompt, output = token_totals(good)
    observed = reply.get("observed") or {}
    return Record(
        tool="decode",
        client=client,
        requests=len(samples),
        failed=len(samples) - len(good),
        seconds=seconds,
        prompt_tokens=prompt,
        output_tokens=output,
        values=values,
        own_requests=len(samples),
        requests_served=requests_served(counts, observed.get("requests_logged"), len(samples)),
        cache_queries=counts.cache_queries,
        cache_hits=counts.cache_hits,
        sweeps=tuple(reply.get("sweeps") or ()),
        flushes=tuple(bool(f.get("ok")) for f in reply.get("flushes") or ()),
        **gpu_fields(series),
    )


def _rank(ordered: Sequence[float], share: int) -> float:
    """Nearest rank: one of the values."""
    return ordered[min(len(ordered) * share // 100, len(ordered) - 1)]


def _thin(values: Sequence[float]) -> tuple[float, ...]:
    """No more than a few hundred, evenly taken."""
    step = max(1, -(-len(values) // _MOST_LOOKS))
    return tuple(round(v, 3) for v in values[::step])
