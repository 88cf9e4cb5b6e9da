"""Search over a space of variables and flags by ask and tell: the trials so far go in, the next point comes out.

A point is a tuple of indices, one for each variable. Failed trials are infeasible points, never numbers. Strategies
are pure: the same space, seed and trials give the same point, so that a search resumes from what was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Protocol

from pydantic import Field, model_validator

from orchestrator.core.model import Model
from orchestrator.core.surrogate import Surrogate, expected_gain

Point = tuple[int, ...]
Value = str | int | float | bool | None

MOST_CANDIDATES = 600
RANDOM_FIRST = 4


class Variable(Model):
    """A variable or flag and the values it may take. `ordered`: neighbours in the list are alike."""

    name: str
    values: tuple[Value, ...] = Field(min_length=1)
    ordered: bool = False


class Space(Model):
    variables: tuple[Variable, ...] = Field(min_length=1)

    @property
    def size(self) -> int:
        return math.prod(len(v.values) for v in self.variables)

    def values(self, point: Point) -> dict[str, Value]:
        return {v.name: v.values[i] for v, i in zip(self.variables, point, strict=True)}


class Trial(Model):
    """`value` None: infeasible, it crashed, hung or was wrong. Otherwise larger is better, whatever the metric."""

    point: Point
    value: float | None = None

    @model_validator(mode="after")
    def _value_is_a_number(self) -> Trial:
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError("a failure has no value; it is not a number")
        return self


class Strategy(Protocol):
    """Random search, ours, or an adapter of a library."""

    name: str

    def ask(self, space: Space, trials: Sequence[Trial]) -> Point | None:
        """A point that was not tried yet, or None when all were."""
        ...


class RandomSearch:
    """Untried points with equal odds. The measure of every other strategy."""

    name = "random"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def ask(self, space: Space, trials: Sequence[Trial]) -> Point | None:
        rng = Random(f"{self._seed}/{len(trials)}")  # noqa: S311 - seeded on purpose
        return next(_untried(space, {t.point for t in trials}, rng), None)


class SurrogateSearch:
    """A few random points, then the one that promises the most over the best, as a smooth surrogate sees it.

    The surrogate learns which variables matter; the odds that a point works at all come from its neighbours.
    """

    name = "surrogate"

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def ask(self, space: Space, trials: Sequence[Trial]) -> Point | None:
        rng = Random(f"{self._seed}/{len(trials)}")  # noqa: S311 - seeded on purpose
        tried = {t.point for t in trials}
        good = [(t.point, t.value) for t in trials if t.value is not None]
        if len(trials) < RANDOM_FIRST or len({v for _, v in good}) < 2:
            return next(_untried(space, tried, rng), None)
        candidates = _candidates(space, trials, tried, rng)
        if not candidates:
            return None
        model = Surrogate([len(v.values) for v in space.variables], [v.ordered for v in space.variables], good)
        failed = [t.point for t in trials if t.value is None]
        best = max(value for _, value in good)
        scored = [
            (expected_gain(*model.predict(point), best) * model.feasibility(point, failed), i)
            for i, point in enumerate(candidates)
        ]
        return candidates[max(scored, key=lambda pair: (pair[0], -pair[1]))[1]]


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """The largest value; None where nothing worked."""
    return max((t for t in trials if t.value is not None), key=lambda t: t.value or 0.0, default=None)


def _candidates(space: Space, trials: Sequence[Trial], tried: set[Point], rng: Random) -> list[Point]:
    """All untried points of a small space; of a large one a sample, and the neighbours of the best."""
    if space.size <= MOST_CANDIDATES:
        points = list(product(*(range(len(v.values)) for v in space.variables)))
        return [p for p in points if p not in tried]
    found = dict.fromkeys(point for point, _ in zip(_untried(space, tried, rng), range(MOST_CANDIDATES), strict=False))
    good = sorted((t for t in trials if t.value is not None), key=lambda t: -(t.value or 0.0))
    for trial in good[:3]:
        found.update(dict.fromkeys(p for p in _neighbours(space, trial.point) if p not in tried))
    return list(found)


def _neighbours(space: Space, point: Point) -> Iterator[Point]:
    for k, variable in enumerate(space.variables):
        for i in range(len(variable.values)):
            if i != point[k]:
                yield (*point[:k], i, *point[k + 1 :])


def _untried(space: Space, tried: set[Point], rng: Random) -> Iterator[Point]:
    """Untried points in random order; of a large space with repetitions left out as they come."""
    sizes = [len(v.values) for v in space.variables]
    if space.size <= 20 * MOST_CANDIDATES:
        points = [p for p in product(*map(range, sizes)) if p not in tried]
        rng.shuffle(points)
        yield from points
        return
    seen = set(tried)
    while len(seen) < space.size:
        point = tuple(rng.randrange(size) for size in sizes)
        if point not in seen:
            seen.add(point)
            yield point
