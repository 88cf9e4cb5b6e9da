"""Which combination of wins to measure next: built stepwise, measured and never assumed, ties to the smaller change.

Gains are relative, positive is better. The controller measures what `next_step` names against the baseline, adds a
`Measured`, and asks again; killed and started again it asks the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from orchestrator.core.records import Verdict

Members = frozenset[str]


@dataclass(frozen=True)
class Win:
    """A hypothesis that came out `improved`. `lines` is the size of its change: lines of patches, variables, flags."""

    id: str
    gain: float
    lines: int = 1
    is_screened: bool = False  # rests on one launch of an arm


@dataclass(frozen=True)
class Measured:
    """A combination, or a single win measured in full, against the baseline. `gain` None: it failed."""

    members: Members
    verdict: Verdict
    gain: float | None = None


@dataclass(frozen=True)
class Step:
    """`confirm`: measure a screened win in full. `combine`: measure these together. `finish`: these are the best."""

    kind: Literal["confirm", "combine", "finish"]
    members: tuple[str, ...]
    reason: str
    gain: float | None = None


def next_step(
    wins: Sequence[Win],
    measured: Sequence[Measured] = (),
    *,
    tie: float = 0.02,
    conflicts: Collection[frozenset[str]] = (),
) -> Step | None:
    """The next thing to measure in one context, or the end; None without any win.

    `tie` is the smallest gain of interest (a fraction): a combination that is not better by as much than the smaller
    change it grew from is given up for it. `conflicts`: pairs that cannot be applied together.
    """
    known = {m.members: m for m in measured}
    for win in sorted(wins, key=lambda w: -w.gain):
        if win.is_screened and frozenset({win.id}) not in known:
            return Step("confirm", (win.id,), f"{win.id} rests on one launch of an arm; no win is kept before")
    standing = [w for w in (_settled(win, known) for win in wins) if w is not None]
    if not standing:
        return None
    lines = {w.id: w.lines for w in standing}
    order = _by_gain(standing, tie)
    best, gain, said = frozenset({order[0].id}), order[0].gain, f"{order[0].id} {order[0].gain:+.1%}"
    for win in order[1:]:
        against = [m for m in best if frozenset({m, win.id}) in conflicts]
        if against:
            said += f"; {win.id} left out, it cannot be applied with {', '.join(sorted(against))}"
            continue
        together = best | {win.id}
        result = known.get(together)
        if result is None:
            expected = math.expm1(math.log1p(gain) + math.log1p(win.gain))
            reason = f"{said}; with {win.id} {expected:+.1%} if nothing interacts"
            return Step("combine", _ordered(together, lines), reason)
        if result.gain is not None and _beats(result.gain, gain, tie):
            best, gain, said = together, result.gain, f"{said}; with {win.id} {result.gain:+.1%}"
        elif result.gain is None:
            said += f"; with {win.id} it {result.verdict}"
        else:
            said += f"; {win.id} adds too little ({result.gain:+.1%}), the smaller change stays"
    return Step("finish", _ordered(best, lines), said, gain)


def interaction(parts: Mapping[str, float], together: float) -> str:
    """A sentence: what the wins would make if they did not interact, and what they made. Gains are fractions."""
    expected = math.expm1(math.fsum(math.log1p(gain) for gain in parts.values()))
    difference = math.expm1(math.log1p(together) - math.log1p(expected))
    word = "help one another" if difference > 0 else "get in each other's way"
    named = " and ".join(f"{name} {gain:+.1%}" for name, gain in parts.items())
    if abs(difference) < 0.01:
        return f"{named} make {together:+.1%} together: they do not interact"
    return f"{named} make {together:+.1%} together, not {expected:+.1%}: they {word} ({difference:+.1%})"


def next_across(
    bests: Mapping[str, Members],
    measured: Mapping[tuple[str, Members], float | None],
    *,
    lines: Mapping[str, int],
    tie: float = 0.02,
) -> Step | tuple[str, Members] | None:
    """One configuration for all contexts: (context, members) to measure next, or the end. None without any best.

    Candidates are the best of each context and all of them together; each is measured in every context. One that
    loses more than `tie` anywhere, or fails there, is out; of the others the largest product of gains wins.
    """
    candidates = list(dict.fromkeys([*bests.values(), frozenset(chain.from_iterable(bests.values()))]))
    candidates = [c for c in candidates if c]
    if not candidates:
        return None
    totals: list[tuple[float, Members]] = []
    for members in candidates:
        for context in bests:
            if (context, members) not in measured:
                return context, members
        gains = [measured[context, members] for context in bests]
        if all(g is not None and g > -tie for g in gains):
            totals.append((math.fsum(math.log1p(g) for g in gains if g is not None), members))
    if not totals:
        return Step("finish", (), "no combination holds in every context; the baseline stays", 0.0)
    top = max(total for total, _ in totals)
    near = [(sum(lines.get(m, 1) for m in members), -total, members) for total, members in totals if total > top - tie]
    size, total, members = min(near, key=lambda row: row[:2])
    said = f"{', '.join(sorted(members))}: the smallest change ({size} lines) among the best in all contexts"
    return Step("finish", _ordered(members, lines), said, math.expm1(-total))


def _settled(win: Win, known: Mapping[Members, Measured]) -> Win | None:
    """A win as it was last measured; None where measuring it in full did not confirm it."""
    result = known.get(frozenset({win.id}))
    if result is None:
        return win
    if result.verdict is not Verdict.improved or result.gain is None:
        return None
    return Win(win.id, result.gain, win.lines)


def _by_gain(wins: Sequence[Win], tie: float) -> list[Win]:
    """Best first; the first place goes to the smallest change among those that are as good."""
    order = sorted(wins, key=lambda w: (-w.gain, w.lines))
    near = [w for w in order if w is order[0] or not _beats(order[0].gain, w.gain, tie)]
    first = min(near, key=lambda w: w.lines)
    return [first, *(w for w in order if w is not first)]


def _beats(gain: float, other: float, tie: float) -> bool:
    return (1 + gain) / (1 + other) - 1 >= tie


def _ordered(members: Members, lines: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(sorted(members, key=lambda m: (lines.get(m, 1), m)))
