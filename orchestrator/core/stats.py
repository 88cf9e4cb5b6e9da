"""Launches → effect, interval, verdict, and how many launches are still needed.

The unit of evidence is the launch: samples within one launch are not independent (levels switch and stay), so no
interval is ever built from them. The value of a launch is a ratio of sums, never a mean of ratios. Differences are
taken between logarithms, since noise is proportional; what is shown is relative to the baseline.

Launches come as A B B A A B B A … and are looked at after each pair. Every look has its share of one error bound
(`boundaries`), each arm its own noise, shrunk towards the stored one (`noise`), and a drift that both arms share is
taken out (`contrast`). A look may end the hypothesis as improved or regressed, as equivalent (`no_effect`), or as
futile: a gain worth having is then excluded. An arm with a single launch shows no noise of its own; a stated or
stored one stands in, and only a difference beyond `SCREEN` times it counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from orchestrator.core.boundaries import nominal_error
from orchestrator.core.contrast import Point, contrast, degree_for
from orchestrator.core.distributions import t_quantile
from orchestrator.core.launches import (
    LaunchValue,
    Summary,
    is_look,
    launch_order,
    launch_value,
    next_arm,
    percentile,
    summarise,
)
from orchestrator.core.noise import (
    BORROWED_DF,
    LEAST_CV,
    STORED_DF,
    ArmNoise,
    Noise,
    between_launch_noise,
    lend,
    pool_noise,
    shared_df,
    shrink,
)
from orchestrator.core.records import Direction, Verdict

__all__ = [
    "LEAST_CV",
    "SCREEN",
    "Judgement",
    "LaunchValue",
    "Noise",
    "Stop",
    "Summary",
    "between_launch_noise",
    "is_look",
    "judge",
    "launch_order",
    "launch_value",
    "launches_needed",
    "next_arm",
    "percentile",
    "pool_noise",
    "summarise",
]

SCREEN = 4.0
"""A difference of single launches counts from this many standard deviations on (two samples in 16 000 by chance)."""

SCREEN_ERROR = 0.005
"""Where the noise itself is known from few launches, it takes more than `SCREEN` times, so that chance stays here."""

KEEP_SHARE = 0.7
"""Share of `alpha` that is spent on keeps; the rest is room for what the model of the noise does not hold."""

EQUIVALENCE_ERROR = 0.05
"""Chance, on each side, of calling an effect none that reaches the smallest one of interest."""

FUTILITY_ERROR = 0.12
"""Chance of giving up on a gain of twice the smallest effect of interest."""

MANY = 1000
"""Launches of an arm beyond which nobody asks how many more it would take."""

Stop = Literal["effect", "equivalence", "futility", "limit"]
"""Why no more launches are wanted."""


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
    more_launches: int | None = None  # of each arm, at a guess, until it would be decided; None: decided, or `MANY`
    stop: Stop | None = None  # None: interim, more are wanted
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
    stored_treatment: Noise | None = None,
    drift_per_hour: float = 0.0,
    screening: bool = True,
    alpha: float = 0.05,
) -> Judgement:
    """Compare the launches of two arms; the caller does so at every `is_look`.

    `min_effect`, `prior_between_cv` and `drift_per_hour` are fractions (0.02 is 2 %); `max_launches` is per arm.
    `stored` is the between-launch noise of this host, target and metric (of the baseline, as A/A pairs show it); it
    stands in for the stated prior and is combined with what the arms show. `stored_treatment` is that of this
    treatment, where it is known. `drift_per_hour` widens the interval of launches that were not interleaved and have
    times. `screening` False: measured in full, one launch of an arm is never enough. `alpha` bounds the chance of a
    false keep over all looks up to `max_launches`.
    """
    if not baseline or not treatment:
        missing = "baseline" if not baseline else "treatment"
        return Judgement(Verdict.inconclusive, f"no valid launch of the {missing}", direction, needs_more=True)
    stores = _Stores(prior_between_cv, stored, stored_treatment)
    look = _look(baseline, treatment, stores, max_launches, alpha, drift_per_hour)
    return _judgement(look, direction, min_effect, max_launches, is_open=look.fewest == 1 and not screening)


def launches_needed(noise_cv: float, resolve: float, *, side: float = 0.025, limit: int = 100) -> int | None:
    """Launches per arm, two at least, until an interval is no wider than ± `resolve` (a fraction); None: over `limit`.

    Of two metrics of the same target the one with the smaller answer decides sooner.
    """
    fewest = math.ceil(2 * (t_quantile(1 - side, math.inf) * noise_cv / resolve) ** 2)
    for n in range(max(2, fewest), limit + 1):
        if t_quantile(1 - side, 2 * n - 2) * noise_cv * math.sqrt(2 / n) <= resolve:
            return n
    return None


# ---------------------------------------------------------------- one look


@dataclass(frozen=True)
class _Stores:
    stated_cv: float
    baseline: Noise | None
    treatment: Noise | None

    @property
    def source(self) -> Literal["stored", "stated"]:
        lent = [lend(noise, self.stated_cv) for noise in (self.baseline, self.treatment)]
        return "stored" if any(math.isfinite(noise.df) for noise in lent) else "stated"

    def noises(self, shown: Sequence[Noise | None]) -> tuple[ArmNoise, ArmNoise]:
        """Of the baseline and of the treatment, which borrows the baseline's with less weight."""
        weight = STORED_DF if self.treatment else BORROWED_DF
        return (
            shrink(shown[0], self.baseline, stated_cv=self.stated_cv, weight_df=STORED_DF),
            shrink(shown[1], self.treatment or self.baseline, stated_cv=self.stated_cv, weight_df=weight),
        )


@dataclass(frozen=True)
class _Look:
    """The difference of two arms in logarithms, with the half-widths that belong to each question about it."""

    counts: tuple[int, int]
    level: float  # of the baseline, a logarithm
    difference: float
    half: float  # for improved and regressed
    equivalence_half: float
    futility_half: float
    spread: float
    cv: float  # noise of one launch, both arms together
    confidence: float
    source: Literal["shown", "stored", "stated"]

    @property
    def fewest(self) -> int:
        return min(self.counts)

    @property
    def times(self) -> float:
        return abs(self.difference) / self.spread


def _look(
    baseline: Sequence[LaunchValue],
    treatment: Sequence[LaunchValue],
    stores: _Stores,
    max_launches: int,
    alpha: float,
    drift_per_hour: float,
) -> _Look:
    fewest = min(len(baseline), len(treatment))
    points = _points(baseline, treatment)
    found = contrast(*points, degree_for(fewest))
    noises = stores.noises([Noise(arm.own_cv, arm.own_df) if arm.own_df else None for arm in found.arms])
    parts = [arm.weight * noise.cv**2 for arm, noise in zip(found.arms, noises, strict=True)]
    spread = math.sqrt(sum(parts))
    df = shared_df(parts, noises)
    looks = max(1, max_launches - 1)
    number = min(max(1, fewest - 1), looks)
    errors = [nominal_error(number, looks, e) for e in (alpha * KEEP_SHARE, EQUIVALENCE_ERROR, FUTILITY_ERROR)]
    keep, equivalence, futility = (t_quantile(1 - error, df) for error in errors)
    bias = drift_per_hour * _hours_apart(baseline, treatment) if not found.degree else 0.0
    if fewest == 1:
        screen = max(SCREEN, t_quantile(1 - SCREEN_ERROR, df))
        keep, equivalence = max(screen, keep), max(screen, equivalence)
    return _Look(
        counts=(len(baseline), len(treatment)),
        level=found.level,
        difference=found.difference,
        half=spread * keep + bias,
        equivalence_half=spread * equivalence + bias,
        futility_half=spread * futility + bias,
        spread=spread,
        cv=math.sqrt(fmean(noise.cv**2 for noise in noises)),
        confidence=1 - 2 * errors[0],
        source=stores.source if fewest == 1 else "shown",
    )


def _points(baseline: Sequence[LaunchValue], treatment: Sequence[LaunchValue]) -> tuple[list[Point], list[Point]]:
    """Launches in time: by their clock, else by their places in A B B A …."""
    arms = (baseline, treatment)
    if all(launch.at_s is not None for arm in arms for launch in arm):
        timed = [[Point(launch.at_s or 0.0, math.log(launch.value)) for launch in arm] for arm in arms]
        return timed[0], timed[1]
    order = launch_order(max(len(arm) for arm in arms))
    places = ([i for i, kind in enumerate(order) if kind == which] for which in ("baseline", "treatment"))
    placed = [
        [Point(at, math.log(launch.value)) for at, launch in zip(where, arm, strict=False)]
        for where, arm in zip(places, arms, strict=True)
    ]
    return placed[0], placed[1]


def _hours_apart(baseline: Sequence[LaunchValue], treatment: Sequence[LaunchValue]) -> float:
    """Between the middles of the two arms in time; 0 without times."""
    middles = [
        fmean(times)
        for arm in (baseline, treatment)
        if (times := [launch.at_s for launch in arm if launch.at_s is not None])
    ]
    return abs(middles[0] - middles[1]) / 3600 if len(middles) == 2 else 0.0


# ---------------------------------------------------------------- the verdict


def _judgement(look: _Look, direction: Direction, min_effect: float, max_launches: int, *, is_open: bool) -> Judgement:
    """`is_open`: this look decides nothing."""
    gain = _relative(look.difference) * (1 if direction == "higher" else -1)
    verdict = Verdict.inconclusive if is_open else _verdict(look, direction, gain, min_effect)
    half = look.equivalence_half if verdict is Verdict.no_effect else look.half
    effect, low, high = (_relative(x) for x in (look.difference, look.difference - half, look.difference + half))
    stop = None if is_open and max_launches > 1 else _stop(look, direction, gain, verdict, min_effect, max_launches)
    baseline = math.exp(look.level)
    is_decided = verdict is not Verdict.inconclusive
    more = None if is_decided else _more_launches(look, gain, min_effect, max_launches, is_interim=not stop)
    return Judgement(
        verdict,
        _reason(look, (effect, low, high), stop, more, min_effect),
        direction,
        screened=look.fewest == 1 and verdict in (Verdict.improved, Verdict.regressed),
        needs_more=stop is None,
        more_launches=more,
        stop=stop,
        confidence=look.confidence,
        baseline=baseline,
        treatment=baseline * (1 + effect),
        effect=effect * baseline,
        ci_low=low * baseline,
        ci_high=high * baseline,
        effect_pct=effect * 100,
        ci_low_pct=low * 100,
        ci_high_pct=high * 100,
        noise_pct=look.cv * 100,
    )


def _gains(look: _Look, half: float, direction: Direction) -> tuple[float, float]:
    """The ends of an interval as gains, the worse one first."""
    ends = _relative(look.difference - half), _relative(look.difference + half)
    return ends if direction == "higher" else (-ends[1], -ends[0])


def _verdict(look: _Look, direction: Direction, gain: float, min_effect: float) -> Verdict:
    low, high = _gains(look, look.equivalence_half, direction)
    if -min_effect <= low and high <= min_effect:
        return Verdict.no_effect
    low, high = _gains(look, look.half, direction)
    if low > 0 and gain >= min_effect:
        return Verdict.improved
    if high < 0 and gain <= -min_effect:
        return Verdict.regressed
    return Verdict.inconclusive


def _stop(
    look: _Look, direction: Direction, gain: float, verdict: Verdict, min_effect: float, max_launches: int
) -> Stop | None:
    if verdict is Verdict.no_effect:
        return "equivalence"
    if verdict is not Verdict.inconclusive:
        return "effect"
    if look.fewest >= max_launches:
        return "limit"
    _, best = _gains(look, look.futility_half, direction)
    is_futile = best < 2 * min_effect and gain > -min_effect and look.source != "stated"
    return "futility" if is_futile else None


def _more_launches(look: _Look, gain: float, min_effect: float, max_launches: int, *, is_interim: bool) -> int | None:
    """Of each arm, were the effect what it seems to be; within the limit while there is one to keep."""
    distance = abs(gain) if abs(gain) >= min_effect else min_effect - abs(gain)
    enough = launches_needed(look.cv, max(distance, 1e-6), side=KEEP_SHARE * 0.05, limit=MANY)
    more = None if enough is None else max(1, enough - look.fewest)
    left = max(1, max_launches - look.fewest)
    return min(more or left, left) if is_interim else more


def _relative(difference: float) -> float:
    """A difference of logarithms as a fraction. Ends of hopelessly wide intervals stay finite."""
    return math.expm1(min(difference, 50.0))


def _better(percent: float | None, direction: Direction) -> float | None:
    if percent is None:
        return None
    return percent / 100 if direction == "higher" else -percent / 100


def _reason(
    look: _Look, relative: tuple[float, float, float], stop: Stop | None, more: int | None, min_effect: float
) -> str:
    effect, low, high = (f"{x * 100:+.1f}" for x in relative)
    counts = f"{look.counts[0]} baseline and {look.counts[1]} treatment launches"
    facts = f"{effect} % ({low} to {high}) from {counts}, noise {look.cv * 100:.1f} % {look.source}"
    if stop == "effect" and look.source != "shown":
        return f"{facts}: the difference is {look.times:.1f} times its noise, one launch of an arm is enough"
    if stop == "effect":
        return f"{facts}: the interval excludes zero and the effect reaches {min_effect * 100:g} %"
    if stop == "equivalence":
        return f"{facts}: the interval lies within ±{min_effect * 100:g} %"
    if stop == "futility":
        return f"{facts}: a gain of {2 * min_effect * 100:g} % is excluded, more launches would not find one"
    wanted = f"about {more or MANY} more of each arm"
    return f"{facts}: {'too noisy to decide, it would take' if stop else 'interim, this takes'} {wanted}"
