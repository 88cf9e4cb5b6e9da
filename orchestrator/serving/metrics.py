"""Samples of one launch → the value of the metric. Ratios of sums, never means of ratios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

_PROBED = frozenset({"output_tps", "ttft_ms", "itl_ms"})

Sample = Mapping[str, Any]
"""As in docs/protocol.md; times in seconds."""


def launch_value(samples: Sequence[Sample], metric: str) -> float | None:
    """The metric over all good samples of a launch; None when there is none, which is never the number 0.

    `output_tps`: tokens per second after the first chunk; of several streams of one repetition, their sum over the
    longest of them. `ttft_ms`, `itl_ms`: milliseconds.
    """
    good = [s for s in samples if s.get("ok")]
    if not good:
        return None
    if metric == "ttft_ms":
        return 1000.0 * float(sum(s["ttft_s"] for s in good)) / len(good)
    tokens = float(sum(s["decode_tokens"] for s in good))
    if metric == "itl_ms":
        return 1000.0 * sum(s["decode_s"] for s in good) / tokens if tokens else None
    seconds = sum(max(s["decode_s"] for s in group) for group in _by_repetition(good))
    return tokens / seconds if seconds > 0 else None


def sample_value(sample: Sample, metric: str) -> float | None:
    """The metric of one sample alone, for showing; verdicts rest on launches."""
    return launch_value([sample], metric)


def within_cv(samples: Sequence[Sample], metric: str) -> float:
    """Spread of the repetitions of one launch, as a fraction of their mean; 0.0 where there are fewer than two, as with
    a client that sends one long stream of requests, and for metrics that no single repetition has."""
    if metric not in _PROBED:
        return 0.0
    groups = _by_repetition([s for s in samples if s.get("ok")])
    values = [v for group in groups if (v := launch_value(group, metric)) is not None]
    if len(values) < 2:
        return 0.0
    return stdev(values) / fmean(values)


def doubt_cv(samples: Sequence[Sample], metric: str) -> float:
    """What the spread of its repetitions leaves open of the value of a launch, which is that of all of them together:
    as a fraction of it; 0.0 where `within_cv` is."""
    repetitions = len(_by_repetition([s for s in samples if s.get("ok")]))
    return within_cv(samples, metric) / math.sqrt(max(1, repetitions))


def token_totals(samples: Sequence[Sample]) -> tuple[int, int]:
    """Prompt and output tokens as the server counted them."""
    return sum(s.get("prompt_tokens") or 0 for s in samples), sum(s.get("output_tokens") or 0 for s in samples)


def problems(samples: Sequence[Sample], *, output_tokens: int) -> list[str]:
    """Why these samples must not be believed: failures, empty and early ends. Empty when all is well."""
    found = [f"repetition {s.get('repetition')}: {s.get('error') or 'failed'}" for s in samples if not s.get("ok")]
    early = [s for s in samples if s.get("ok") and (s.get("output_tokens") or 0) < output_tokens]
    if early:
        counts = ", ".join(str(s.get("output_tokens")) for s in early)
        found.append(f"{len(early)} of {len(samples)} answers ended early: {counts} of {output_tokens} tokens")
    return found


def totals_differ(baseline: Sequence[Sample], treatment: Sequence[Sample], *, tolerance: float = 0.01) -> str | None:
    """Why two arms did unequal work per sample, or None. More than 1 % apart blocks a verdict."""
    for name, a, b in zip(("prompt", "output"), _per_sample(baseline), _per_sample(treatment), strict=True):
        if max(a, b) > 0 and abs(a - b) / max(a, b) > tolerance:
            return f"unequal work: {a:g} {name} tokens a request in the baseline, {b:g} in the treatment"
    return None


def _per_sample(samples: Sequence[Sample]) -> tuple[float, float]:
    prompt, output = token_totals(samples)
    return prompt / len(samples), output / len(samples)


def _by_repetition(samples: Sequence[Sample]) -> list[list[Sample]]:
    groups: dict[Any, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.get("repetition"), []).append(sample)
    return list(groups.values())
