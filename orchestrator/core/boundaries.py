"""Critical values of a group-sequential test: several looks at growing evidence, one bound on being wrong.

The error is spent over the looks as `alpha · fraction ** RHO` of the planned evidence (Lan and DeMets; Kim and DeMets).
The values come from the recursion of Armitage, McPherson and Rowe over the distribution of a Brownian motion that has
not yet crossed, integrated by the trapezoidal rule.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

RHO = 0.7
"""Below 1 spends early: most verdicts come at the first looks, the last ones are a little stricter for it."""

_NORMAL = NormalDist()
_DEPTH = 6.0  # standard deviations below zero at which a path is taken for lost


def nominal_error(look: int, looks: int, alpha: float) -> float:
    """One-sided error probability that belongs to look number `look` (from 1) of `looks`, each a launch of every arm.

    Look k comes with k + 1 launches of each arm. Raises ValueError outside 1 … `looks`.
    """
    if not 1 <= look <= looks:
        raise ValueError(f"no look {look} of {looks}")
    return _nominal_errors(looks, alpha)[look - 1]


@lru_cache(maxsize=256)
def _nominal_errors(looks: int, alpha: float) -> tuple[float, ...]:
    fractions = [(k + 2) / (looks + 1) for k in range(looks)]
    errors: list[float] = []
    paths: list[tuple[float, float]] = [(0.0, 1.0)]  # (value, weight) of the motion before it has crossed
    before, spent = 0.0, 0.0
    for fraction in fractions:
        step = math.sqrt(fraction - before)
        target = alpha * fraction**RHO - spent
        bound = _crossing(paths, step, target, math.sqrt(fraction))
        errors.append(_NORMAL.cdf(-bound / math.sqrt(fraction)))
        paths = _survivors(paths, step, bound, math.sqrt(fraction))
        before, spent = fraction, alpha * fraction**RHO
    return tuple(errors)


def _crossing(paths: list[tuple[float, float]], step: float, target: float, spread: float) -> float:
    """The bound that is crossed next with probability `target`."""
    low, high = 0.0, 8.0 * spread
    while high - low > 1e-7:
        middle = (low + high) / 2
        crossing = math.fsum(weight * _tail((middle - value) / step) for value, weight in paths)
        low, high = (middle, high) if crossing > target else (low, middle)
    return (low + high) / 2


def _survivors(paths: list[tuple[float, float]], step: float, bound: float, spread: float) -> list[tuple[float, float]]:
    floor = -_DEPTH * spread
    count = max(24, math.ceil((bound - floor) / (0.4 * step)))
    width = (bound - floor) / count
    scale = width / (step * math.sqrt(2 * math.pi))
    survivors = []
    for k in range(count + 1):
        value = floor + k * width
        density = math.fsum(weight * math.exp(-(((value - past) / step) ** 2) / 2) for past, weight in paths)
        survivors.append((value, density * scale * (0.5 if k in (0, count) else 1.0)))
    return survivors


def _tail(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2))
