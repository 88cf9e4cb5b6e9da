"""What is believed of a failed bundle: a weight for every explanation by one culprit or by two.

A set of members is an `int`, bit i for member i. An explanation is a tuple of sets, each of which fails by itself:
`(1,)` is one culprit, `(1, 2)` two independent ones, `(3,)` two that fail only together. The chance that a set of
members fails is then a quadratic form in its members, so that the set which halves the weight is found by climbing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

Explanation = tuple[int, ...]

SINGLE, TOGETHER, APART = 0.50, 0.35, 0.15
"""Odds before any answer: one culprit, two that fail only together, two that fail each for itself."""

PREFERENCE = 0.06
"""Bits by which a question that would prove the likeliest explanation may fall short of the best one."""


def fails(explanation: Explanation, members: int) -> bool:
    return any(culprit & members == culprit for culprit in explanation)


def bits(members: int) -> list[int]:
    return [i for i in range(members.bit_length()) if members >> i & 1]


class Belief:
    """Weights of all explanations for `count` members, `factors` above 1 for those that are suspected."""

    def __init__(self, count: int, factors: Sequence[float]) -> None:
        self.count = count
        self.everything = (1 << count) - 1
        singles = [((1 << i,), factors[i]) for i in range(count)]
        pairs = [(i, j, math.sqrt(factors[i] * factors[j])) for i, j in combinations(range(count), 2)]
        self._explanations: list[tuple[Explanation, float]] = _scaled(singles, SINGLE if pairs else 1.0)
        self._explanations += _scaled([((1 << i | 1 << j,), f) for i, j, f in pairs], TOGETHER)
        self._explanations += _scaled([((1 << i, 1 << j), f) for i, j, f in pairs], APART)

    @property
    def is_empty(self) -> bool:
        """No explanation by one or two members fits the answers."""
        return not self._explanations

    def learn(self, members: int, failed: bool, error_rate: float) -> None:
        """Weigh by an answer that is wrong with probability `error_rate`."""
        right, wrong = 1 - error_rate, error_rate
        weighed = [(e, w * (right if fails(e, members) == failed else wrong)) for e, w in self._explanations]
        total = math.fsum(w for _, w in weighed)
        self._explanations = [(e, w / total) for e, w in weighed if w > total * 1e-12] if total > 0 else []

    def best(self) -> tuple[Explanation, float]:
        return max(self._explanations, key=lambda pair: pair[1])

    def odds(self, members: int) -> float:
        """The chance that these members fail."""
        return math.fsum(w for e, w in self._explanations if fails(e, members))

    def blame(self) -> list[float]:
        """For each member the chance that it takes part in the failure."""
        shares = [0.0] * self.count
        for explanation, weight in self._explanations:
            for i in bits(_union(explanation)):
                shares[i] += weight
        return shares

    def choose(self, allowed: Callable[[int], float], first: Iterable[int] = ()) -> int | None:
        """The members whose failing is most open; `first` are preferred at nearly equal merit.

        `allowed` is the chance that a question gets an answer at all; 0 forbids it.
        """
        scored: dict[int, float] = {}
        for members in [*first, *self._near_half()]:
            chance = allowed(members) if members not in scored else 0.0
            if chance > 0:
                scored[members] = chance * _openness(self.odds(members))
        if not scored:
            return None
        preferred = set(first)
        return max(scored, key=lambda m: scored[m] + PREFERENCE * (m in preferred))

    def _near_half(self) -> list[int]:
        """Sets whose chance of failing is near one half, climbed to from several starts."""
        linear, joint = self._form()
        blame = self.blame()
        order = sorted(range(self.count), key=lambda i: -blame[i])
        starts = [0, self.everything]
        grown = 0
        for i in order:
            grown |= 1 << i
            starts += [grown, self.everything & ~grown]
        starts += [sum(1 << i for i in order[k::2]) for k in (0, 1)]
        return [_climb(start, self.count, linear, joint) for start in starts]

    def _form(self) -> tuple[list[float], list[list[float]]]:
        linear = [0.0] * self.count
        joint = [[0.0] * self.count for _ in range(self.count)]
        for explanation, weight in self._explanations:
            members = bits(_union(explanation))
            if len(explanation) == len(members):
                for i in members:
                    linear[i] += weight
            if len(members) == 2:
                i, j = members
                joint[i][j] += weight if len(explanation) == 1 else -weight
                joint[j][i] = joint[i][j]
        return linear, joint


def _climb(start: int, count: int, linear: Sequence[float], joint: Sequence[Sequence[float]]) -> int:
    """Toggle one member at a time while that brings the chance of failing nearer to one half."""
    members = start
    inside = bits(members)
    odds = sum(linear[i] for i in inside) + sum(joint[i][j] for i, j in combinations(inside, 2))
    slopes = [linear[i] + sum(joint[i][j] for j in inside if j != i) for i in range(count)]
    while True:
        steps = [(abs(odds + (-slopes[i] if members >> i & 1 else slopes[i]) - 0.5), i) for i in range(count)]
        distance, i = min(steps)
        if distance >= abs(odds - 0.5) - 1e-9:
            return members
        sign = -1 if members >> i & 1 else 1
        odds += sign * slopes[i]
        members ^= 1 << i
        for k in range(count):
            if k != i:
                slopes[k] += sign * joint[i][k]


def _openness(odds: float) -> float:
    """Bits that an answer brings."""
    if not 0 < odds < 1:
        return 0.0
    return -odds * math.log2(odds) - (1 - odds) * math.log2(1 - odds)


def _union(explanation: Explanation) -> int:
    members = 0
    for culprit in explanation:
        members |= culprit
    return members


def _scaled(weighted: Sequence[tuple[Explanation, float]], total: float) -> list[tuple[Explanation, float]]:
    whole = math.fsum(w for _, w in weighted)
    return [(e, w * total / whole) for e, w in weighted]
