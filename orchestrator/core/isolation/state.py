"""The isolation of one failed bundle as a value: members, suspects and the answers so far; the next question follows.

Members are names (a patch hunk, a variable, a flag). A question names the members to launch with; the others are left
out. The whole bundle is known to fail and the empty set to pass, so neither is asked, unless the bundle's failure does
not repeat. `crash` questions need a launch only; `verdict` questions need a measurement and may be answered wrongly.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

from pydantic import Field

from orchestrator.core.isolation.belief import Belief, Explanation, bits, fails
from orchestrator.core.isolation.exhaustive import minimal_failures, remainders
from orchestrator.core.model import Model

Oracle = Literal["crash", "verdict"]

SURE = 0.985
"""An explanation by answers that may be wrong is believed from this probability on."""

IMPLAUSIBLE = 1e-3
"""So many wrong answers would be chance less often than this: the failure is not one or two culprits."""

MARGIN = 2
"""Where answers may be wrong: how many more for than against settle a question of the exhaustive search."""

HOPELESS = 0.1
"""A question that is less likely to be answered at all is not worth its launch."""

SUSPICION = 2.0
"""Suspects share this weight against 1 of all members together."""


class Answer(StrEnum):
    fails = "fails"  # as the bundle did
    passes = "passes"
    unresolved = "unresolved"  # cannot be built, or ends in another way than the bundle


class Asked(Model):
    members: tuple[str, ...]
    answer: Answer


class Isolation(Model):
    """Everything that is known. Frozen: `tell` gives a new one. Stored as it is, and resumed by `ask`."""

    members: tuple[str, ...] = Field(min_length=1)
    oracle: Oracle = "crash"
    suspects: tuple[str, ...] = Field((), description="members that the diagnosis names; asked about first")
    error_rate: float = Field(0.0, ge=0, lt=0.5, description="chance that one answer is wrong")
    limit: int = Field(64, ge=1, description="questions at the most")
    asked: tuple[Asked, ...] = ()


class Question(Model):
    """Launch with these members and no others: does it fail as the bundle did?"""

    members: tuple[str, ...]
    oracle: Oracle
    why: str
    repeats: int = Field(0, description="how often the very same was asked before; decisive answers are checked")


class Isolated(Model):
    """`culprits`: sets of members, each of which fails by itself and no longer when any of it is left out."""

    culprits: tuple[tuple[str, ...], ...]
    innocent: tuple[str, ...]
    proved: bool = Field(description="each culprit was seen to fail, and everything else to pass")
    confidence: float
    questions: int
    unresolved: int
    sentence: str


def ask(state: Isolation) -> Question | None:
    """The next question, or None when the culprits are known, or when nothing more can be learned."""
    return _step(state)[0]


def tell(state: Isolation, members: tuple[str, ...], answer: Answer) -> Isolation:
    """The state after an answer. Raises ValueError for members that the bundle does not have."""
    unknown = set(members) - set(state.members)
    if unknown:
        raise ValueError(f"not in the bundle: {', '.join(sorted(unknown))}")
    return state.model_copy(update={"asked": (*state.asked, Asked(members=members, answer=answer))})


def result(state: Isolation) -> Isolated | None:
    """What came out; None while there is something to ask."""
    return _step(state)[1]


# ---------------------------------------------------------------- one step


def _step(state: Isolation) -> tuple[Question | None, Isolated | None]:
    record = _Record(state)
    if len(state.members) == 1 and not state.asked:
        return None, record.isolated([1], 1.0, is_proved=True)
    belief = _belief(record)
    is_spent = len(state.asked) >= state.limit
    if belief.is_empty or _is_implausible(record, belief):
        return _search(record, belief, is_spent=is_spent)
    explanation, confidence = belief.best()
    missing = _missing_proof(record, explanation)
    is_sure = confidence >= SURE
    if (is_sure and not missing) or is_spent:
        return None, record.isolated(explanation, confidence, is_proved=is_sure and not missing)
    preferred = [m for m in missing if record.chance(m) > 0]
    if is_sure and preferred:
        return record.question(preferred[0], f"to prove that {_say(record, explanation)}"), None
    members = belief.choose(record.chance, preferred)
    if members is None or (is_sure and not preferred) or not 0 < belief.odds(members) < 1:
        return None, record.isolated(explanation, confidence, is_proved=False)
    odds = belief.odds(members)
    return record.question(members, f"{odds:.0%} likely to fail; {_say(record, explanation)} at {confidence:.0%}"), None


def _belief(record: _Record) -> Belief:
    names = record.state.members
    suspects = [i for i, name in enumerate(names) if name in record.state.suspects]
    factor = 1 + SUSPICION * len(names) / len(suspects) if suspects else 1.0
    belief = Belief(len(names), [factor if i in suspects else 1.0 for i in range(len(names))])
    for members, failed in record.answers:
        if not belief.is_empty:
            belief.learn(members, failed, record.state.error_rate)
    return belief


def _is_implausible(record: _Record, belief: Belief) -> bool:
    """Even the best explanation has more answers against it than wrong ones are to be expected."""
    explanation, _ = belief.best()
    against = sum(fails(explanation, members) != failed for members, failed in record.answers)
    rate, count = record.state.error_rate, len(record.answers)
    if against < 2:
        return False
    likely = math.fsum(math.comb(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(against))
    return 1 - likely < IMPLAUSIBLE


def _missing_proof(record: _Record, explanation: Explanation) -> list[int]:
    """Sets whose outcome would prove the explanation and is not known yet: each culprit, and all without them."""
    rest = remainders(record.everything, explanation)
    wanted = [(culprit, True) for culprit in explanation] + [(members, False) for members in rest if members]
    return [members for members, failed in wanted if record.known(members, margin=1) is not failed]


def _search(record: _Record, belief: Belief, *, is_spent: bool) -> tuple[Question | None, Isolated | None]:
    """Replay the exhaustive search over the answers known; the first one missing is the question."""
    blame = _blame(record)
    order = sorted(range(len(record.state.members)), key=lambda i: -blame[i])
    search = minimal_failures(record.everything, order)
    margin = MARGIN if record.state.error_rate else 1
    open_: list[int] = []
    found: list[int] = []
    try:
        members = next(search)
        while True:
            failed = record.known(members, margin=margin)
            if failed is None and record.chance(members) == 0:
                failed = False
                open_.append(members)
            if failed is None:
                if is_spent:
                    return None, record.isolated(found, 0.5, is_proved=False)
                return record.question(members, "more than two members seem to be at fault"), None
            members = search.send(failed)
    except StopIteration as end:
        found = end.value
    return None, record.isolated(found, 1.0 - record.state.error_rate**margin, is_proved=bool(found) and not open_)


def _blame(record: _Record) -> list[float]:
    """For each member, how often it took part in failures more than in successes."""
    shares = [0.0] * len(record.state.members)
    for members, failed in record.answers:
        inside = bits(members)
        for i in inside:
            shares[i] += 1 / len(inside) if failed else -1.0
    return shares


def _say(record: _Record, explanation: Explanation) -> str:
    return " and ".join("+".join(record.names(culprit)) for culprit in explanation)


# ---------------------------------------------------------------- answers


class _Record:
    """The answers of a state as bit masks, and what follows from them."""

    def __init__(self, state: Isolation) -> None:
        self.state = state
        self.everything = (1 << len(state.members)) - 1
        position = {name: i for i, name in enumerate(state.members)}
        masks = [(sum(1 << position[n] for n in a.members), a.answer) for a in state.asked]
        self.answers = [(m, a is Answer.fails) for m, a in masks if a is not Answer.unresolved]
        self.unresolved = [m for m, a in masks if a is Answer.unresolved]
        self._built = self._pairs_built()

    def known(self, members: int, *, margin: int) -> bool | None:
        """Does it fail, as far as the answers tell: a part that fails, or a whole that passes, tells too."""
        if self.state.error_rate == 0:
            margin = 1
            direct = [failed for m, failed in self.answers if m == members]
            if direct:
                return direct[-1]
        votes = margin * ((members == self.everything) - (members == 0))
        votes += sum(1 for m, failed in self.answers if failed and m & members == m)
        votes -= sum(1 for m, failed in self.answers if not failed and m & members == members)
        return votes > 0 if abs(votes) >= margin else None

    def chance(self, members: int) -> float:
        """How likely a question is to be answered at all, from those that were not.

        An unresolved launch is put down to one member that needs another one which was left out; pairs that were
        seen to work are not at fault.
        """
        if members in (0, self.everything) or members in self.unresolved:
            return 0.0
        if self.state.error_rate == 0 and any(m == members for m, _ in self.answers):
            return 0.0
        chance = 1.0
        for blocked in self.unresolved:
            pairs = _broken_pairs(blocked, self.everything) - self._built
            shared = pairs & _broken_pairs(members, self.everything)
            if pairs:
                chance = min(chance, 1 - 0.95 * len(shared) / len(pairs))
        return chance if chance > HOPELESS else 0.0

    def _pairs_built(self) -> set[tuple[int, int]]:
        if not self.unresolved:
            return set()
        return set().union(*(_broken_pairs(m, self.everything) for m, _ in self.answers)) if self.answers else set()

    def names(self, members: int) -> tuple[str, ...]:
        return tuple(self.state.members[i] for i in bits(members))

    def question(self, members: int, why: str) -> Question:
        repeats = sum(1 for m, _ in self.answers if m == members)
        return Question(members=self.names(members), oracle=self.state.oracle, why=why, repeats=repeats)

    def isolated(self, culprits: Explanation | list[int], confidence: float, *, is_proved: bool) -> Isolated:
        blamed = 0
        for culprit in culprits:
            blamed |= culprit
        names = tuple(self.names(c) for c in sorted(culprits))
        said = "; ".join(" with ".join(c) if len(c) > 1 else c[0] for c in names) or "nothing that repeats"
        count, kind = len(self.state.asked), self.state.oracle
        proof = "proved" if is_proved else f"not proved, {confidence:.0%} likely"
        return Isolated(
            culprits=names,
            innocent=self.names(self.everything & ~blamed),
            proved=is_proved,
            confidence=confidence,
            questions=count,
            unresolved=len(self.unresolved),
            sentence=f"at fault: {said} ({proof}, after {count} {kind} question{'s' if count != 1 else ''})",
        )


def _broken_pairs(members: int, everything: int) -> set[tuple[int, int]]:
    """(member, what it may need) with the first in and the second out."""
    inside, outside = bits(members), bits(everything & ~members)
    return {(i, j) for i in inside for j in outside}
