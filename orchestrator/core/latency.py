"""The bottleneck as calls × cost + rest: what a hypothesis could gain at most, and what measured effects say of it.

Times are milliseconds, gains relative (0.09 is +9 % of throughput). It is a statement of people about their server,
to be held against what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LatencyBudget:
    """One pass: `calls` of `cost_ms` each, and everything else."""

    calls: float
    cost_ms: float
    rest_ms: float

    def __post_init__(self) -> None:
        if self.calls < 0 or self.cost_ms < 0 or self.rest_ms < 0 or self.total_ms <= 0:
            raise ValueError("a latency budget has no negative part, and takes some time")

    @property
    def total_ms(self) -> float:
        return self.calls * self.cost_ms + self.rest_ms

    @property
    def sentence(self) -> str:
        waiting = self.calls * self.cost_ms
        parts = f"{self.calls:g} × {self.cost_ms * 1000:g} µs + {self.rest_ms:g} ms"
        return f"{parts} = {self.total_ms:.1f} ms, {waiting / self.total_ms:.0%} of it in calls"


@dataclass(frozen=True)
class Effect:
    """What a hypothesis would change: parts that become what is stated. A lever named without a value may vanish."""

    calls: float | None = None
    cost_ms: float | None = None
    rest_ms: float | None = None
    extra_ms: float = 0.0  # what the change itself adds, such as all-to-alls in place of all-reduces
    lever: str = ""  # calls, cost or rest, where no value is stated


@dataclass(frozen=True)
class Ceiling:
    gain: float
    after_ms: float
    sentence: str


def most_gain(budget: LatencyBudget, effect: Effect) -> Ceiling:
    """What the hypothesis could gain at most, were everything it says true and nothing else to change."""
    vanishing = {"calls": effect.calls, "cost": effect.cost_ms, "rest": effect.rest_ms}
    if effect.lever and effect.lever not in vanishing:
        raise ValueError(f"no lever {effect.lever!r}: calls, cost or rest")
    stated = {name: 0.0 if value is None and name == effect.lever else value for name, value in vanishing.items()}
    calls = budget.calls if stated["calls"] is None else stated["calls"]
    cost = budget.cost_ms if stated["cost"] is None else stated["cost"]
    rest = budget.rest_ms if stated["rest"] is None else stated["rest"]
    after = max(calls * cost + rest + effect.extra_ms, 1e-9)
    gain = budget.total_ms / after - 1
    return Ceiling(gain, after, f"{budget.total_ms:.1f} → {after:.1f} ms: {gain:+.0%} at most")


def cap_gain(expected: float | None, ceiling: Ceiling) -> float:
    """The gain to plan with: what is expected, but no more than the budget allows; without a word, half of that."""
    return ceiling.gain / 2 if expected is None else min(expected, ceiling.gain)


def lever_odds(realised: Sequence[tuple[float, float]]) -> float:
    """Odds of the next hypothesis on a lever, from (measured, possible) gains of those before it; 0.5 without any.

    Each counts as a win by the share of the possible gain that it showed: a lever that never pays is believed less.
    """
    shares = [min(1.0, max(0.0, measured / possible)) for measured, possible in realised if possible > 0]
    return (1 + sum(shares)) / (2 + len(shares))


def after_probe(odds: float, predicted: float, probed: float) -> float:
    """Odds after a probe of the assumption, both gains. It may demote a hypothesis, never promote one."""
    if predicted <= 0:
        return odds
    return odds * min(1.0, max(0.0, probed / predicted))


def refit(passes: Sequence[tuple[float, float]], rest_ms: float | None = None) -> LatencyBudget:
    """The budget that measured passes tell: (calls, total ms) of two or more with different calls, by least squares.

    With `rest_ms` known, one is enough. Raises ValueError where they do not tell, or tell something impossible.
    """
    if rest_ms is not None:
        weight = sum(n * n for n, _ in passes)
        if not weight:
            raise ValueError("no pass with calls was measured")
        cost = sum(n * (total - rest_ms) for n, total in passes) / weight
        return LatencyBudget(passes[0][0], cost, rest_ms)
    count = len(passes)
    mean_calls = sum(n for n, _ in passes) / max(1, count)
    mean_total = sum(total for _, total in passes) / max(1, count)
    spread = sum((n - mean_calls) ** 2 for n, _ in passes)
    if not spread:
        raise ValueError("passes with different numbers of calls are needed")
    cost = sum((n - mean_calls) * (total - mean_total) for n, total in passes) / spread
    return LatencyBudget(passes[0][0], cost, mean_total - cost * mean_calls)
