"""Launches → effect, interval, verdict, and how many launches are still needed.

The unit of evidence is the launch: samples within one launch are not independent (levels switch and stay), so no
interval is ever built from them. The value of a launch is a ratio of sums, never a mean of ratios. Differences are
taken between logarithms, since noise is proportional; what is shown is relative to the baseline.

Two launches or more in both arms: Welch's interval with unequal variances. An arm with a single launch shows no noise
of its own; a stated or stored one stands in, and only a difference beyond `SCREEN` times it counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance
from typing import Literal

from orchestrator.core.distributions import t_quantile
from orchestrator.core.records import ArmKind, Direction, Verdict

SCREEN = 4.0
"""A difference of single launches counts from this many standard deviations on (two samples in 16 000 by chance)."""

LEAST_CV = 0.001
"""Launches never agree better than this; closer is rounding or luck, and would make an interval of no width."""


@dataclass(frozen=True)
class LaunchValue:
    """What one launch measured: a positive, finite number in the metric's unit. A failed launch has none."""

    value: float
    launch: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value > 0):
            raise ValueError(f"a launch cannot have measured {self.value}")


@dataclass(frozen=True)
class Noise:
    """Between-launch noise of one metric: relative standard deviation (0.03 is 3 %), and the evidence behind it."""

    cv: float
    df: float


@dataclass(frozen=True)
class Judgement:
    """The verdict. Effects are treatment − baseline in the metric's unit and in percent; None: nothing to compare.

    The ends of the absolute interval are those of the relative one, times the baseline. `gain` and its ends are
    relative and positive where the treatment is better, whatever the direction.
    """

    verdict: Verdict
    reason: str
    direction: Direction
    screened: bool = False  # rests on a single launch of an arm
    needs_more: bool = False
    more_launches: int | None = None  # of each arm, at a guess; None where no more are wanted
    confidence: float | None = None  # two-sided, of this one look
    baseline: float | None = None
    treatment: float | None = None
    effect: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    effect_pct: float | None = None
    ci_low_pct: float | None = None
    ci_high_pct: float | None = None
    noise_pct: float | None = None  # between launches, both arms together

    @property
    def gain(self) -> float | None:
        return _better(self.effect_pct, self.direction)

    @property
    def gain_low(self) -> float | None:
        return _better(self.ci_low_pct if self.direction == "higher" else self.ci_high_pct, self.direction)

    @property
    def gain_high(self) -> float | None:
        return _better(self.ci_high_pct if self.direction == "higher" else self.ci_low_pct, self.direction)


def judge(
    baseline: Sequence[LaunchValue],
    treatment: Sequence[LaunchValue],
    *,
    direction: Direction,
    min_effect: float,
    max_launches: int,
    prior_between_cv: float = 0.03,
    stored: Noise | None = None,
    alpha: float = 0.05,
) -> Judgement:
    """Compare the launches of two arms.

    `min_effect` and `prior_between_cv` are fractions (0.02 is 2 %); `max_launches` is per arm. `stored` is the
    between-launch noise measured on this host, target and metric; it stands in for the stated prior and is combined
    with what the arms show. `alpha` bounds the chance of a false keep over all looks up to `max_launches`.
    """
    if not baseline or not treatment:
        missing = "baseline" if not baseline else "treatment"
        return Judgement(Verdict.inconclusive, f"no valid launch of the {missing}", direction, needs_more=True)
    arms = [[math.log(launch.value) for launch in arm] for arm in (baseline, treatment)]
    look = _look(arms, prior_between_cv, stored, side_alpha(alpha, max_launches))
    centre, relative = math.exp(fmean(arms[0])), [math.expm1(x) for x in (look.difference, look.low, look.high)]
    gains = sorted(relative) if direction == "higher" else sorted(-x for x in relative)
    verdict = _verdict(gains[0], gains[1], gains[2], min_effect)
    fewest = min(len(arm) for arm in arms)
    needs_more = verdict is Verdict.inconclusive and fewest < max_launches
    more = None
    if needs_more:
        distance = abs(gains[1]) if abs(gains[1]) >= min_effect else min_effect - abs(gains[1])
        enough = launches_needed(look.cv, distance, side=side_alpha(alpha, max_launches), limit=max_launches)
        more = max(1, (enough or max_launches) - fewest)
    return Judgement(
        verdict,
        _reason(verdict, arms, look, relative, min_effect, needs_more=needs_more),
        direction,
        screened=fewest == 1 and verdict in (Verdict.improved, Verdict.regressed),
        needs_more=needs_more,
        more_launches=more,
        confidence=look.confidence,
        baseline=centre,
        treatment=math.exp(fmean(arms[1])),
        effect=relative[0] * centre,
        ci_low=relative[1] * centre,
        ci_high=relative[2] * centre,
        effect_pct=relative[0] * 100,
        ci_low_pct=relative[1] * 100,
        ci_high_pct=relative[2] * 100,
        noise_pct=look.cv * 100,
    )


def side_alpha(alpha: float, max_launches: int) -> float:
    """Error on each side of one look. There are `max_launches − 1` looks; a keep errs on one side only."""
    return alpha / max(2, max_launches - 1)


def launches_needed(noise_cv: float, resolve: float, *, side: float = 0.025, limit: int = 100) -> int | None:
    """Launches per arm, two at least, until an interval is no wider than ± `resolve` (a fraction); None: over `limit`.

    Of two metrics of the same target the one with the smaller answer decides sooner.
    """
    for n in range(2, limit + 1):
        if t_quantile(1 - side, 2 * n - 2) * noise_cv * math.sqrt(2 / n) <= resolve:
            return n
    return None


def launch_order(launches: int) -> tuple[ArmKind, ...]:
    """A B B A A B B A …: neighbours share an apply, and a steady drift meets both arms alike."""
    pairs: list[ArmKind] = []
    for number in range(launches):
        pairs += ["baseline", "treatment"] if number % 2 == 0 else ["treatment", "baseline"]
    return tuple(pairs)


# ---------------------------------------------------------------- launches


def launch_value(samples: Iterable[tuple[float, float]], *, launch: str = "") -> LaunchValue:
    """Samples as (amount, seconds) → amount per second of the launch, a ratio of sums."""
    pairs = list(samples)
    seconds = math.fsum(s for _, s in pairs)
    if not seconds > 0:
        raise ValueError("a launch without measured time has no value")
    return LaunchValue(math.fsum(a for a, _ in pairs) / seconds, launch)


def between_launch_noise(values: Sequence[float]) -> Noise:
    """Noise of two or more launches of the same arm."""
    return Noise(stdev(math.log(value) for value in values), len(values) - 1)


def pool_noise(noises: Sequence[Noise]) -> Noise:
    """Several estimates of the same noise, each by its weight."""
    df = math.fsum(noise.df for noise in noises)
    return Noise(math.sqrt(math.fsum(noise.df * noise.cv**2 for noise in noises) / df), df)


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


# ---------------------------------------------------------------- one look


@dataclass(frozen=True)
class _Look:
    """The difference of two arms in logarithms, with its interval."""

    difference: float
    low: float
    high: float
    cv: float  # noise of one launch, both arms together
    times: float  # the difference in standard deviations
    confidence: float
    source: Literal["shown", "stored", "stated"]


def _look(arms: Sequence[Sequence[float]], prior_cv: float, stored: Noise | None, side: float) -> _Look:
    noises = [_arm_noise(arm, prior_cv, stored) for arm in arms]
    parts = [noise.cv**2 / len(arm) for noise, arm in zip(noises, arms, strict=True)]
    spread = math.sqrt(sum(parts))
    doubt = sum(part**2 / noise.df for part, noise in zip(parts, noises, strict=True))
    df = sum(parts) ** 2 / doubt if doubt else math.inf
    is_single = min(len(arm) for arm in arms) == 1
    factor = t_quantile(1 - side, df)
    difference = fmean(arms[1]) - fmean(arms[0])
    half = spread * (max(SCREEN, factor) if is_single else factor)
    source: Literal["shown", "stored", "stated"] = "shown"
    if is_single:
        source = "stored" if stored else "stated"
    cv = math.sqrt(fmean(noise.cv**2 for noise in noises))
    return _Look(difference, difference - half, difference + half, cv, abs(difference) / spread, 1 - 2 * side, source)


def _arm_noise(logs: Sequence[float], prior_cv: float, stored: Noise | None) -> Noise:
    """Noise of one launch of this arm: the larger of what it shows and what it shows together with what is stored.

    Arms differ in noise, so a noisy arm keeps its own; an arm that looks quiet by luck is held to what is known.
    """
    if len(logs) == 1:
        known = stored or Noise(prior_cv, math.inf)
        return Noise(max(known.cv, LEAST_CV), known.df)
    own = Noise(math.sqrt(variance(logs)), len(logs) - 1)
    best = max([own, pool_noise([own, stored])] if stored else [own], key=lambda noise: noise.cv)
    return Noise(max(best.cv, LEAST_CV), best.df)


def _verdict(low: float, gain: float, high: float, min_effect: float) -> Verdict:
    """All relative, positive is better."""
    if -min_effect <= low and high <= min_effect:
        return Verdict.no_effect
    if low > 0 and gain >= min_effect:
        return Verdict.improved
    if high < 0 and gain <= -min_effect:
        return Verdict.regressed
    return Verdict.inconclusive


def _better(percent: float | None, direction: Direction) -> float | None:
    if percent is None:
        return None
    return percent / 100 if direction == "higher" else -percent / 100


def _reason(
    verdict: Verdict,
    arms: Sequence[Sequence[float]],
    look: _Look,
    relative: Sequence[float],
    min_effect: float,
    *,
    needs_more: bool,
) -> str:
    effect, low, high = (f"{x * 100:+.1f}" for x in relative)
    counts = f"{len(arms[0])} baseline and {len(arms[1])} treatment launches"
    facts = f"{effect} % ({low} to {high}) from {counts}, noise {look.cv * 100:.1f} % {look.source}"
    if verdict in (Verdict.improved, Verdict.regressed):
        if look.source != "shown":
            return f"{facts}: the difference is {look.times:.1f} times its noise, one launch of an arm is enough"
        return f"{facts}: the interval excludes zero and the effect reaches {min_effect * 100:g} %"
    if verdict is Verdict.no_effect:
        return f"{facts}: the interval lies within ±{min_effect * 100:g} %"
    return f"{facts}: {'more launches are needed' if needs_more else 'too noisy to decide'}"
