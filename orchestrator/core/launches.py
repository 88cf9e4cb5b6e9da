"""Launches as values, and the order in which the arms are launched and looked at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from orchestrator.core.records import ArmKind


@dataclass(frozen=True)
class LaunchValue:
    """What one launch measured: a positive, finite number in the metric's unit. A failed launch has none.

    `at_s`: when, on any clock that all launches share. Without it they are taken to have come as A B B A ….
    """

    value: float
    launch: str = ""
    at_s: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value > 0):
            raise ValueError(f"a launch cannot have measured {self.value}")


def launch_value(samples: Iterable[tuple[float, float]], *, launch: str = "") -> LaunchValue:
    """Samples as (amount, seconds) → amount per second of the launch, a ratio of sums."""
    pairs = list(samples)
    seconds = math.fsum(s for _, s in pairs)
    if not seconds > 0:
        raise ValueError("a launch without measured time has no value")
    return LaunchValue(math.fsum(a for a, _ in pairs) / seconds, launch)


def interleaved(baseline: Sequence[LaunchValue], treatment: Sequence[LaunchValue]) -> list[LaunchValue]:
    """The baseline launches to hold a treatment against: the last one before its first launch, and all since.

    Older ones belong to another level of a drifting host; what they tell of its noise is stored. Without times all.
    """
    times = [launch.at_s for launch in (*baseline, *treatment)]
    if not treatment or None in times:
        return list(baseline)
    first = min(launch.at_s or 0.0 for launch in treatment)
    before = [launch for launch in baseline if (launch.at_s or 0.0) < first]
    last = max(before, key=lambda launch: launch.at_s or 0.0, default=None)
    return [launch for launch in baseline if launch is last or (launch.at_s or 0.0) >= first]


def is_look(baseline_launches: int, treatment_launches: int) -> bool:
    """Arms are compared when they have the same number of launches: in between a drift would weigh on one of them."""
    return baseline_launches == treatment_launches >= 1


def next_arm(baseline_launches: int, treatment_launches: int) -> ArmKind:
    """The arm to launch next in A B B A …; an arm that has fallen behind comes first."""
    if abs(baseline_launches - treatment_launches) > 1:
        return "baseline" if baseline_launches < treatment_launches else "treatment"
    done = baseline_launches + treatment_launches
    planned = launch_order(done // 2 + 1)[done]
    if baseline_launches == treatment_launches:
        return planned
    return "baseline" if baseline_launches < treatment_launches else "treatment"


def launch_order(launches: int) -> tuple[ArmKind, ...]:
    """A B B A A B B A …: neighbours share an apply, and a steady drift meets both arms alike."""
    pairs: list[ArmKind] = []
    for number in range(launches):
        pairs += ["baseline", "treatment"] if number % 2 == 0 else ["treatment", "baseline"]
    return tuple(pairs)


# ---------------------------------------------------------------- samples


@dataclass(frozen=True)
class Summary:
    """Samples within one launch, for people. No verdict rests on it."""

    count: int
    mean: float
    cv: float | None  # None with a single sample
    minimum: float
    p50: float
    p90: float
    p99: float
    maximum: float


def summarise(values: Sequence[float]) -> Summary:
    """Raises ValueError where there is nothing to summarise: no samples are not a zero."""
    if not values:
        raise ValueError("no samples")
    mean = fmean(values)
    cv = stdev(values) / mean if len(values) > 1 and mean else None
    p50, p90, p99 = (percentile(values, p) for p in (50, 90, 99))
    return Summary(len(values), mean, cv, min(values), p50, p90, p99, max(values))


def percentile(values: Sequence[float], p: float) -> float:
    """The p-th percentile (0–100), linear between neighbours as numpy's default."""
    if not values or not 0 <= p <= 100:
        raise ValueError(f"no percentile {p} of {len(values)} values")
    ordered = sorted(values)
    at = (len(ordered) - 1) * p / 100
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)
