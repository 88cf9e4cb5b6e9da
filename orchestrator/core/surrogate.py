"""A small Gaussian process over points of indices, for spaces that are searched by tens of trials.

Variables differ in how much they matter: each has a length of its own, chosen by the likelihood of what was seen.
Values are standardised logarithms where all are positive, since effects multiply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, pstdev

Point = tuple[int, ...]
LENGTHS = (0.3, 1.0, 3.0, 12.0)
NUGGET = 0.005
"""Share of the variance that is noise of a launch."""

SWEEPS = 2
_NORMAL = NormalDist()


class Surrogate:
    """Raises ValueError for fewer than two different values."""

    def __init__(self, sizes: Sequence[int], ordered: Sequence[bool], seen: Sequence[tuple[Point, float]]) -> None:
        values = [value for _, value in seen]
        if len(set(values)) < 2:
            raise ValueError("a surface needs two different values")
        self._sizes, self._ordered = sizes, ordered
        self._points = [point for point, _ in seen]
        self._is_log = min(values) > 0
        scale = [math.log(v) if self._is_log else v for v in values]
        self._mean, self._spread = fmean(scale), pstdev(scale)
        self._targets = [(v - self._mean) / self._spread for v in scale]
        self._apart = [
            [[self._distance(k, a[k], b[k]) for b in self._points] for a in self._points] for k in range(len(sizes))
        ]
        self._lengths = self._fit()
        self._factor = _cholesky(self._matrix(self._lengths))
        self._weights = _solve(self._factor, self._targets)

    def predict(self, point: Point) -> tuple[float, float]:
        """Mean and standard deviation there, in units of the values (of their size, where they were logarithms)."""
        row = [self._kernel(point, other) for other in self._points]
        mean = sum(k * w for k, w in zip(row, self._weights, strict=True))
        half = _forward(self._factor, row)
        deviation = math.sqrt(max(1e-9, 1.0 - sum(x * x for x in half)))
        centre = self._mean + self._spread * mean
        if not self._is_log:
            return centre, deviation * self._spread
        return math.exp(centre), math.exp(centre) * deviation * self._spread

    def feasibility(self, point: Point, failed: Sequence[Point]) -> float:
        """The share of neighbours that worked, nearer ones counting more; with nothing near, near to one."""
        good = sum(self._likeness(point, other) for other in self._points)
        bad = sum(self._likeness(point, other) for other in failed)
        return (1.0 + good) / (1.0 + good + bad)

    def _likeness(self, a: Point, b: Point) -> float:
        distance = sum(self._distance(k, a[k], b[k]) for k in range(len(self._sizes)))
        return math.exp(-2.0 * distance)

    def _kernel(self, a: Point, b: Point) -> float:
        return math.exp(-sum(self._distance(k, a[k], b[k]) / length for k, length in enumerate(self._lengths)))

    def _distance(self, k: int, i: int, j: int) -> float:
        if i == j:
            return 0.0
        return (abs(i - j) / (self._sizes[k] - 1)) if self._ordered[k] else 1.0

    def _matrix(self, lengths: Sequence[float]) -> list[list[float]]:
        count = len(self._points)
        rates = [1 / length for length in lengths]
        return [
            [
                math.exp(-sum(apart[i][j] * r for apart, r in zip(self._apart, rates, strict=True)))
                + (NUGGET if i == j else 0.0)
                for j in range(i + 1)
            ]
            for i in range(count)
        ]

    def _fit(self) -> list[float]:
        """Coordinate ascent over the lengths."""
        lengths = [1.0] * len(self._sizes)
        best = self._likelihood(lengths)
        for _ in range(SWEEPS):
            before = list(lengths)
            for k in range(len(lengths)):
                for length in LENGTHS:
                    tried = [*lengths[:k], length, *lengths[k + 1 :]]
                    value = self._likelihood(tried) if length != lengths[k] else best
                    if value > best + 1e-9:
                        best, lengths = value, tried
            if lengths == before:
                break
        return lengths

    def _likelihood(self, lengths: Sequence[float]) -> float:
        factor = _cholesky(self._matrix(lengths))
        half = _forward(factor, self._targets)
        prior = sum((math.log(length) / 2) ** 2 for length in lengths) / 2
        return -0.5 * sum(x * x for x in half) - sum(math.log(row[-1]) for row in factor) - prior


def expected_gain(mean: float, deviation: float, best: float) -> float:
    """By how much a point is expected to exceed the best, counting nothing where it does not."""
    z = (mean - best) / deviation
    return (mean - best) * _NORMAL.cdf(z) + deviation * _NORMAL.pdf(z)


def _cholesky(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """Lower factor of a matrix given by its lower half."""
    factor: list[list[float]] = []
    for row in matrix:
        new: list[float] = []
        for j, value in enumerate(row):
            known = factor[j] if j < len(factor) else new
            rest = value - sum(x * y for x, y in zip(new, known, strict=False))
            new.append(rest / factor[j][j] if j < len(factor) else math.sqrt(max(rest, 1e-12)))
        factor.append(new)
    return factor


def _forward(factor: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    solved: list[float] = []
    for row, value in zip(factor, values, strict=True):
        solved.append((value - sum(x * y for x, y in zip(row, solved, strict=False))) / row[-1])
    return solved


def _solve(factor: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    half = _forward(factor, values)
    solved = [0.0] * len(half)
    for i in range(len(half) - 1, -1, -1):
        below = sum(factor[j][i] * solved[j] for j in range(i + 1, len(half)))
        solved[i] = (half[i] - below) / factor[i][i]
    return solved
