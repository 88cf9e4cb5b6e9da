"""What a host can see at all: launches of one unchanged configuration, set against one another in all ways."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev

from orchestrator.core.launches import LaunchValue
from orchestrator.core.noise import Noise, launches_to_plan, smallest_effect
from orchestrator.core.records import Direction, Verdict
from orchestrator.core.stats import judge

MOST_SPLITS = 400


@dataclass(frozen=True)
class Audit:
    """Noise between launches without drift, within a launch where samples are known, and drift as a share an hour.

    `false_keeps` of `splits`: how often one half of the launches was kept against the other. `smallest` is the effect
    (a fraction) that `max_launches` of each arm show four times in five.
    """

    noise: Noise
    within_cv: float | None
    drift_per_hour: float | None
    false_keeps: int
    splits: int
    smallest: float
    wanted_launches: int
    sentence: str


def audit(
    launches: Sequence[LaunchValue],
    samples: Sequence[Sequence[float]] = (),
    *,
    direction: Direction,
    min_effect: float,
    max_launches: int,
) -> Audit:
    """`samples`: the values within each launch. Raises ValueError for fewer than four launches."""
    if len(launches) < 4:
        raise ValueError(f"an audit needs four launches or more of one configuration, not {len(launches)}")
    noise = pair_noise([launch.value for launch in launches])
    spreads = [stdev(map(math.log, s)) for s in samples if len(s) > 1]
    within = math.sqrt(fmean(x * x for x in spreads)) if spreads else None
    kept, splits = _false_keeps(launches, direction, min_effect)
    smallest = smallest_effect(noise, max_launches)
    wanted = launches_to_plan(noise.cv, 2 * min_effect)
    sentence = (
        f"noise {noise.cv:.2%} between launches; {kept} of {splits} splits of equal launches were kept; "
        f"{max_launches} launches of each arm show {smallest:.1%}, an effect of {2 * min_effect:.1%} takes {wanted}"
    )
    return Audit(noise, within, _drift(launches), kept, splits, smallest, wanted, sentence)


def pair_noise(values: Sequence[float]) -> Noise:
    """Noise from neighbouring launches of one configuration, in pairs: a slow drift does not count as noise."""
    differences = [math.log(b / a) for a, b in zip(values[::2], values[1::2], strict=False)]
    return Noise(math.sqrt(fmean(d * d for d in differences) / 2), len(differences))


def _false_keeps(launches: Sequence[LaunchValue], direction: Direction, min_effect: float) -> tuple[int, int]:
    """How often one half is kept against the other, in time order as they were launched."""
    half = len(launches) // 2
    kept = splits = 0
    for chosen in combinations(range(2 * half), half):
        if splits >= MOST_SPLITS:
            break
        inside = set(chosen)
        arms = ([launches[i] for i in range(2 * half) if (i in inside) is side] for side in (True, False))
        said = judge(*arms, direction=direction, min_effect=min_effect, max_launches=half)
        kept += said.verdict is Verdict.improved
        splits += 1
    return kept, splits


def _drift(launches: Sequence[LaunchValue]) -> float | None:
    """Slope of the level, as a share an hour, by least squares; None without times."""
    points = [(launch.at_s / 3600, math.log(launch.value)) for launch in launches if launch.at_s is not None]
    if len(points) < len(launches):
        return None
    middle, level = fmean(t for t, _ in points), fmean(x for _, x in points)
    spread = math.fsum((t - middle) ** 2 for t, _ in points)
    return math.fsum((t - middle) * (x - level) for t, x in points) / spread if spread else None
