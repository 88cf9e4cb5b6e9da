"""Noise between launches: what an arm shows, what is stored for its host, target and metric, and both together.

Noise is a relative standard deviation with the degrees of freedom behind it. Two launches that agree by luck look
noise-free, and twelve per cent of noise cannot be told from one by a single pair: so an arm's own noise is shrunk
towards the stored one, by the weight of each, unless the arm is plainly noisier than chance allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

from orchestrator.core.distributions import f_tail, t_quantile

LEAST_CV = 0.001
"""Launches never agree better than this; closer is rounding or luck, and would make an interval of no width."""

STORED_DF = 20.0
"""Stored noise of the same arm counts for no more than this: hosts change."""

BORROWED_DF = 3.0
"""Stored noise of the baseline, lent to a treatment: it then lies within a factor of 2.3 nine times in ten."""

KNOWN_DF = 3.0
"""Stored noise with less behind it competes with the stated one: two launches may agree, or not, by chance alone."""

LEND_ERROR = 0.005
"""Where stored and stated noise are held against one another: the chance of a launch further off than either says."""

NOISIER = 0.1
"""An arm keeps its own noise where chance would show so much more than is stored less often than this."""


@dataclass(frozen=True)
class Noise:
    """Between-launch noise of one metric: relative standard deviation (0.03 is 3 %), and the evidence behind it."""

    cv: float
    df: float


def between_launch_noise(values: Sequence[float]) -> Noise:
    """Noise of two or more launches of the same arm."""
    return Noise(stdev(math.log(value) for value in values), len(values) - 1)


def pool_noise(noises: Sequence[Noise]) -> Noise:
    """Several estimates of the same noise, each by its weight."""
    df = math.fsum(noise.df for noise in noises)
    return Noise(math.sqrt(math.fsum(noise.df * noise.cv**2 for noise in noises) / df), df)


def learn_noise(launches: Iterable[Sequence[float]]) -> Noise | None:
    """Noise from groups of launches of one arm, each group measured in one go; None where no group has two.

    Differences between groups are drift or another day, and do not count.
    """
    groups = [between_launch_noise(values) for values in launches if len(values) > 1]
    return pool_noise(groups) if groups else None


@dataclass(frozen=True)
class ArmNoise:
    """Noise of one launch of an arm, and how much of the evidence is its own and how much is lent to it."""

    cv: float
    own_df: float
    lent_df: float

    @property
    def own_share(self) -> float:
        return 1.0 if not self.lent_df else 0.0 if not self.own_df else self.own_df / (self.own_df + self.lent_df)


def lend(stored: Noise | None, stated_cv: float) -> Noise:
    """Noise for a launch that shows none: the stored one; until enough is behind that, the stated one as if it were
    known (infinite `df`), unless what is stored says more. Stated noise is never less than what is stored."""
    if stored is None:
        return Noise(stated_cv, math.inf)
    if stored.df >= KNOWN_DF:
        return Noise(stored.cv, min(stored.df, STORED_DF))
    stated = Noise(max(stated_cv, stored.cv), math.inf)
    return min(stored, stated, key=lambda noise: t_quantile(1 - LEND_ERROR, noise.df) * noise.cv)


def shrink(own: Noise | None, stored: Noise | None, *, stated_cv: float, weight_df: float) -> ArmNoise:
    """Noise of one launch of an arm. `own` None: a single launch, which shows none. `weight_df` caps what is stored.

    A single launch borrows (`lend`).
    """
    if own is None:
        lent = lend(stored, stated_cv)
        return ArmNoise(max(lent.cv, LEAST_CV), 0.0, lent.df)
    if stored is not None:
        lent = Noise(stored.cv, min(stored.df, weight_df))
        ratio = (max(own.cv, LEAST_CV) / max(lent.cv, LEAST_CV)) ** 2
        if f_tail(ratio, own.df, stored.df) >= NOISIER:
            return ArmNoise(max(pool_noise([own, lent]).cv, LEAST_CV), own.df, lent.df)
    return ArmNoise(max(own.cv, LEAST_CV), own.df, 0.0)


def shared_df(parts: Sequence[float], noises: Sequence[ArmNoise]) -> float:
    """Degrees of freedom of a sum of variances, of which each arm adds a part (Satterthwaite).

    What arms show is independent; what is lent to both is the same estimate, and is wrong for both at once.
    """
    own = math.fsum((p * n.own_share) ** 2 / n.own_df for p, n in zip(parts, noises, strict=True) if n.own_df)
    lent = math.fsum(
        p * (1 - n.own_share) / math.sqrt(n.lent_df) for p, n in zip(parts, noises, strict=True) if n.lent_df
    )
    doubt = own + lent**2
    return math.fsum(parts) ** 2 / doubt if doubt else math.inf


# ---------------------------------------------------------------- what noise allows


def smallest_effect(noise: Noise, launches: int, *, side: float = 0.035, power: float = 0.8) -> float:
    """The smallest true effect (a fraction) that `launches` of each arm would show with this power."""
    df = noise.df + 2 * (launches - 1)
    return (t_quantile(1 - side, df) + t_quantile(power, df)) * max(noise.cv, LEAST_CV) * math.sqrt(2 / launches)


def launches_to_plan(noise_cv: float, target: float, *, side: float = 0.035, power: float = 0.9) -> int:
    """Launches per arm to allow for, so that a true effect of `target` (a fraction) is found with this power.

    A little more than a test with a single look and known noise would need: most verdicts come long before.
    """
    normal = NormalDist()
    fixed = 2 * ((normal.inv_cdf(1 - side) + normal.inv_cdf(power)) * max(noise_cv, LEAST_CV) / target) ** 2
    return max(2, math.ceil(1.3 * fixed + 1.5))


_THREE_SIGMA = NormalDist().cdf(3.0)


@dataclass(frozen=True)
class Drift:
    """Two groups of baseline launches, compared. `change` is relative; beyond `allowed` it is drift."""

    change: float
    allowed: float
    has_drifted: bool
    sentence: str


def detect_drift(
    before: Sequence[float], now: Sequence[float], *, stored: Noise | None = None, stated_cv: float = 0.03
) -> Drift:
    """Has the baseline moved beyond its noise? Three standard deviations of the difference count.

    A drifted baseline is measured again, launched anew; when it stays where it is, what was measured against the old
    level no longer holds, and the run ends with the host given back.
    """
    groups = [before, now]
    own = learn_noise(groups)
    noise = shrink(own, stored, stated_cv=stated_cv, weight_df=STORED_DF)
    factor = t_quantile(_THREE_SIGMA, noise.own_df + noise.lent_df)
    allowed = factor * noise.cv * math.sqrt(sum(1 / len(group) for group in groups))
    change = fmean(map(math.log, now)) - fmean(map(math.log, before))
    moved = abs(change) > allowed
    relative = math.expm1(change)
    word = "drifted" if moved else "stands"
    sentence = f"the baseline {word}: {relative:+.1%} since it was measured, {allowed:.1%} is within its noise"
    return Drift(relative, allowed, moved, sentence)


def which_decides_sooner(noises: Mapping[str, Noise], effect: float, *, limit: int = 100) -> tuple[str, str]:
    """The metric of a target that shows `effect` (a fraction) with the fewest launches, and a sentence about all."""
    needed = {name: launches_to_plan(noise.cv, effect) for name, noise in noises.items()}
    order = sorted(needed, key=lambda name: (needed[name], noises[name].cv))
    parts = [f"{name} {min(needed[name], limit)} launches of each arm ({noises[name].cv:.2%} noise)" for name in order]
    return order[0], f"{order[0]} decides sooner: for an effect of {effect:.1%} {', '.join(parts)}"
