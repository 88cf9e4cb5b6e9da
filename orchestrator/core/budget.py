"""What a run may spend: time, launches, GPU-hours. No launch is started that would not come to its end.

Seconds are of one clock, which the caller passes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

RECENT = 5
MARGIN = 1.15


@dataclass(frozen=True)
class Budget:
    """Limits of one run; None: none. `until_s` is when the host must be given back, not when launching ends."""

    until_s: float | None = None
    launches: int | None = None
    gpu_hours: float | None = None


@dataclass(frozen=True)
class Spent:
    launches: int = 0
    gpu_hours: float = 0.0


@dataclass(frozen=True)
class Allowed:
    is_allowed: bool
    reason: str


def launch_cost_s(recent_s: Sequence[float], stated_s: float) -> float:
    """How long one more launch takes, from start to the proof after it: the longest of the last few and a margin.

    `stated_s` stands in until one was seen.
    """
    last = recent_s[-RECENT:]
    return max(last) * MARGIN if last else stated_s


def experiment_cost_s(recent_s: Sequence[float], stated_s: float, launches: float) -> float:
    """Cost of a hypothesis for ranking: the usual launch times the launches it will likely take."""
    return (median(recent_s[-RECENT:]) if recent_s else stated_s) * launches


def may_launch(
    budget: Budget, spent: Spent, *, now_s: float, cost_s: float, give_back_s: float, gpus: int = 1, wanted: int = 1
) -> Allowed:
    """May `wanted` further launches of `cost_s` each be started, so that the host is given back in time after them?"""
    if budget.launches is not None and spent.launches + wanted > budget.launches:
        return Allowed(False, f"{spent.launches} of {budget.launches} launches are spent")
    hours = wanted * cost_s * gpus / 3600
    if budget.gpu_hours is not None and spent.gpu_hours + hours > budget.gpu_hours:
        return Allowed(
            False, f"{hours:.1f} more GPU-hours do not fit: {spent.gpu_hours:.1f} of {budget.gpu_hours:g} spent"
        )
    if budget.until_s is not None:
        left = budget.until_s - now_s
        needed = wanted * cost_s + give_back_s
        if needed > left:
            return Allowed(
                False, f"a launch and giving the host back take {needed / 60:.0f} min, {left / 60:.0f} are left"
            )
    return Allowed(True, "within the budget")
