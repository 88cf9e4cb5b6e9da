"""What a campaign is after, stated across contexts, and whether it is reached; break-even of speculation."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Key = tuple[str, str]
"""(context, metric)."""

_CONDITION = re.compile(r"^\s*([\w-]+)\.([\w-]+)\s*(<=|>=|<|>)\s*(?:([\w-]+)\.([a-zA-Z][\w-]*)|([\d.]+))\s*$")
_HOLDS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True)
class Condition:
    """`left` compared with `right`, another measured value, or with the number `value`."""

    left: Key
    relation: str
    right: Key | None = None
    value: float | None = None

    @property
    def text(self) -> str:
        other = f"{self.value:g}" if self.right is None else ".".join(self.right)
        return f"{'.'.join(self.left)} {self.relation} {other}"


@dataclass(frozen=True)
class Interval:
    """What was measured, and where it may lie; a number without noise has both ends at its value."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class GoalStatus:
    """`is_reached` None: something is not measured, or lies too close to tell."""

    is_reached: bool | None
    sentences: tuple[str, ...]


def parse_condition(text: str) -> Condition:
    """`speculative.output_tps > plain.output_tps`, `speculative.verify_ms < 15`. Raises ValueError."""
    found = _CONDITION.match(text)
    if found is None:
        raise ValueError(f"no condition {text!r}: CONTEXT.METRIC > CONTEXT.METRIC, or a number on the right")
    context, metric, relation, other_context, other_metric, number = found.groups()
    right = (other_context, other_metric) if other_context else None
    return Condition((context, metric), relation, right, None if right else float(number))


def judge_goal(conditions: Sequence[Condition], measured: Mapping[Key, Interval]) -> GoalStatus:
    """Reached when every condition holds even at the unfavourable ends of the intervals."""
    states: list[bool | None] = []
    sentences: list[str] = []
    for condition in conditions:
        missing = [key for key in (condition.left, condition.right) if key is not None and key not in measured]
        if missing:
            states.append(None)
            sentences.append(f"{condition.text}: {', '.join('.'.join(key) for key in missing)} not measured")
            continue
        state, shown = _judge(condition, measured)
        states.append(state)
        word = {True: "holds", False: "does not hold", None: "too close to tell"}[state]
        sentences.append(f"{condition.text}: {word} ({shown})")
    is_reached = False if False in states else None if None in states or not states else True
    return GoalStatus(is_reached, tuple(sentences))


def break_even_length(plain_tps: float, cycle_ms: float) -> float:
    """Tokens that a speculative cycle must yield for speculation to be as fast as plain decoding."""
    return plain_tps * cycle_ms / 1000


def break_even_cycle_ms(plain_tps: float, accept_length: float) -> float:
    """How long a cycle may take at this acceptance length."""
    return 1000 * accept_length / plain_tps


def break_even(plain_tps: float, speculative_tps: float, accept_length: float) -> str:
    """A sentence: what acceptance, or which cycle, would make speculation worth it."""
    cycle_ms = break_even_cycle_ms(speculative_tps, accept_length)
    needed = break_even_length(plain_tps, cycle_ms)
    allowed = break_even_cycle_ms(plain_tps, accept_length)
    state = "speculation pays" if accept_length >= needed else "speculation loses"
    return (
        f"{state}: a cycle of {cycle_ms:.1f} ms needs {needed:.2f} accepted tokens and yields {accept_length:.2f}; "
        f"at {accept_length:.2f} it may take {allowed:.1f} ms"
    )


def _judge(condition: Condition, measured: Mapping[Key, Interval]) -> tuple[bool | None, str]:
    left = measured[condition.left]
    value = condition.value or 0.0
    right = measured[condition.right] if condition.right is not None else Interval(value, value, value)
    holds = _HOLDS[condition.relation]
    wants_more = condition.relation.startswith(">")
    surely = holds(left.low, right.high) if wants_more else holds(left.high, right.low)
    perhaps = holds(left.high, right.low) if wants_more else holds(left.low, right.high)
    shown = f"{left.value:.1f} against {right.value:.1f}"
    return True if surely else None if perhaps else False, shown
