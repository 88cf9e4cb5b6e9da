"""The difference of two interleaved arms while the level drifts: least squares with a polynomial in time.

A launch is a point in time and the logarithm of what it measured. The polynomial takes out what both arms share; its
degree grows with the launches, and with few of them the order A B B A alone must cancel the drift. Each arm keeps its
own variance (Welch). Without a polynomial all of this is the difference of two means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    at: float
    log: float


@dataclass(frozen=True)
class ArmPart:
    """What one arm adds to the variance of the difference: `weight` times the variance of one of its launches."""

    weight: float
    own_cv: float  # of its residuals
    own_df: float  # 0 where it shows no noise of its own


@dataclass(frozen=True)
class Contrast:
    """Treatment − baseline in logarithms, the baseline's level there, and the change of the level over the launches."""

    difference: float
    level: float
    arms: tuple[ArmPart, ArmPart]
    degree: int


def degree_for(fewest: int) -> int:
    """Degree of the polynomial from the launches of the smaller arm: one for every two rounds of A B B A, 8 at most."""
    return min(8, fewest // 4)


def contrast(baseline: Sequence[Point], treatment: Sequence[Point], degree: int) -> Contrast:
    """Raises ValueError where the arms lie so in time that no difference can be told from drift."""
    points = [*baseline, *treatment]
    basis = _polynomials([p.at for p in points], degree)
    split = len(baseline)
    arm = _orthogonal([0.0] * split + [1.0] * len(treatment), basis)
    size = math.fsum(x * x for x in arm)
    if size < 1e-9:
        raise ValueError("the launches of the two arms are not interleaved: drift and effect cannot be told apart")
    difference = math.fsum(a * p.log for a, p in zip(arm, points, strict=True)) / size
    without = [p.log - (difference if i >= split else 0.0) for i, p in enumerate(points)]
    residuals = _orthogonal(without, basis)
    leverage = [math.fsum(q[i] ** 2 for q in basis) + arm[i] ** 2 / size for i in range(len(points))]
    parts = tuple(
        _part([arm[i] / size for i in rows], [residuals[i] for i in rows], [leverage[i] for i in rows])
        for rows in (range(split), range(split, len(points)))
    )
    level = math.fsum(x - r for x, r in zip(without, residuals, strict=True)) / len(points)
    return Contrast(difference, level, (parts[0], parts[1]), degree)


def _part(weights: Sequence[float], residuals: Sequence[float], leverage: Sequence[float]) -> ArmPart:
    df = math.fsum(1 - h for h in leverage)
    if len(weights) < 2 or df < 0.25:
        return ArmPart(math.fsum(w * w for w in weights), 0.0, 0.0)
    own = math.sqrt(math.fsum(r * r for r in residuals) / df)
    return ArmPart(math.fsum(w * w for w in weights), own, df)


def _polynomials(times: Sequence[float], degree: int) -> list[list[float]]:
    """Orthonormal polynomials of the times, constant first."""
    middle = (max(times) + min(times)) / 2
    reach = (max(times) - min(times)) / 2 or 1.0
    scaled = [(t - middle) / reach for t in times]
    basis: list[list[float]] = []
    for power in range(degree + 1):
        column = _orthogonal([x**power for x in scaled], basis)
        size = math.sqrt(math.fsum(x * x for x in column))
        if size > 1e-6:
            basis.append([x / size for x in column])
    return basis


def _orthogonal(column: Sequence[float], basis: Sequence[Sequence[float]]) -> list[float]:
    """What is left of a column when the basis is taken out of it."""
    left = list(column)
    for known in basis:
        share = math.fsum(x * y for x, y in zip(left, known, strict=True))
        left = [x - share * y for x, y in zip(left, known, strict=True)]
    return left
