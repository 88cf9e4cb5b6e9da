"""Culprits of a failed bundle are found, all of them and no others, by few questions and under wrong answers too."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from itertools import combinations
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.isolation import Answer, Isolated, Isolation, ask, result, tell

Culprits = Collection[frozenset[str]]


def names(count: int) -> tuple[str, ...]:
    return tuple(f"m{i}" for i in range(count))


def answer_of(culprits: Culprits, members: Sequence[str]) -> Answer:
    return Answer.fails if any(c <= set(members) for c in culprits) else Answer.passes


def isolate(state: Isolation, culprits: Culprits, rng: random.Random | None = None) -> Isolated:
    """Carry an isolation out; with `rng` answers are wrong at the state's rate. The state passes through JSON."""
    opposite = {Answer.fails: Answer.passes, Answer.passes: Answer.fails}
    while (question := ask(state)) is not None:
        said = answer_of(culprits, question.members)
        if rng is not None and rng.random() < state.error_rate:
            said = opposite[said]
        state = Isolation.model_validate_json(tell(state, question.members, said).model_dump_json())
    ended = result(state)
    assert ended is not None
    return ended


def found(ended: Isolated) -> set[frozenset[str]]:
    return {frozenset(c) for c in ended.culprits}


def random_culprits(rng: random.Random, count: int, kind: str) -> set[frozenset[str]]:
    a, b = rng.sample(names(count), 2)
    sets = {"single": [{a}], "together": [{a, b}], "apart": [{a}, {b}]}[kind]
    return {frozenset(s) for s in sets}


@pytest.mark.parametrize(
    ("kind", "count", "most"),
    [
        ("single", 16, 6),
        ("single", 8, 5),
        ("together", 16, 10),
        ("together", 8, 8),
        ("apart", 16, 12),
        ("apart", 8, 10),
    ],
)
def test_culprits_are_found_by_few_questions(kind: str, count: int, most: int) -> None:
    """Every random bundle is explained rightly and proved, and the median of the questions keeps its bound."""
    rng = random.Random(f"{kind}{count}")
    asked = []
    for _ in range(25):
        culprits = random_culprits(rng, count, kind)
        ended = isolate(Isolation(members=names(count)), culprits)
        assert found(ended) == culprits
        assert ended.proved
        asked.append(ended.questions)
    assert median(asked) <= most


def test_wrong_answers_are_found_out_by_asking_again() -> None:
    """With two wrong answers in a hundred, at least 95 of 100 bundles are still explained rightly."""
    rng = random.Random(5)
    right = 0
    for number in range(100):
        kind, count = ("single", "together", "apart", "together")[number % 4], rng.randint(3, 10)
        culprits = random_culprits(rng, count, kind)
        state = Isolation(members=names(count), oracle="verdict", error_rate=0.02)
        right += found(isolate(state, culprits, rng)) == culprits
    assert right >= 95


def minimal(sets: Collection[frozenset[str]]) -> set[frozenset[str]]:
    return {s for s in sets if not any(o < s for o in sets)}


@given(st.integers(1, 7), st.data())
@settings(max_examples=150, deadline=None)
def test_any_set_of_culprits_is_found(count: int, data: st.DataObject) -> None:
    """Three culprits, sets of three, mixtures: whatever fails, all minimal failing sets are named and nothing else."""
    sets = st.sets(st.frozensets(st.sampled_from(names(count)), min_size=1, max_size=4), min_size=1, max_size=4)
    culprits = minimal(data.draw(sets))
    ended = isolate(Isolation(members=names(count), limit=400), culprits)
    assert found(ended) == culprits
    assert ended.proved
    assert set(ended.innocent) == set(names(count)) - set().union(*culprits)


def test_three_culprits_are_found_under_wrong_answers() -> None:
    """Where one or two culprits do not explain the answers, the search widens and still weighs its answers."""
    rng = random.Random(11)
    right = 0
    for _ in range(30):
        culprits = {frozenset({name}) for name in rng.sample(names(8), 3)}
        state = Isolation(members=names(8), oracle="verdict", error_rate=0.02, limit=200)
        right += found(isolate(state, culprits, rng)) == culprits
    assert right >= 27


def test_a_suspect_is_asked_first_and_proved_in_two_questions() -> None:
    """The diagnosis is right: the suspect alone fails, everything else passes, and that is all that is launched."""
    state = Isolation(members=names(16), suspects=("m11",))
    first = ask(state)
    assert first is not None
    assert set(first.members) in ({"m11"}, set(names(16)) - {"m11"})
    ended = isolate(state, {frozenset({"m11"})})
    assert (ended.culprits, ended.questions, ended.proved) == ((("m11",),), 2, True)


def test_a_wrong_suspect_only_costs_questions() -> None:
    """A diagnosis that names an innocent member delays the answer and does not change it."""
    for culprits in ({frozenset({"m3"})}, {frozenset({"m3", "m7"})}):
        ended = isolate(Isolation(members=names(12), suspects=("m0",)), culprits)
        assert found(ended) == culprits
        assert ended.questions <= 12


def test_the_campaigns_bundle_takes_two_launches() -> None:
    """Fusion and fewer channels crashed as one: the patch is at fault, the channels are innocent."""
    state = Isolation(members=("fusion", "channels"), suspects=("fusion",))
    ended = isolate(state, {frozenset({"fusion"})})
    assert (ended.culprits, ended.innocent, ended.questions) == ((("fusion",),), ("channels",), 2)
    assert ended.sentence == "at fault: fusion (proved, after 2 crash questions)"


def test_a_bundle_of_one_needs_no_question() -> None:
    """A single member is the culprit, since it failed."""
    ended = isolate(Isolation(members=("only",)), {frozenset({"only"})})
    assert (ended.culprits, ended.questions) == ((("only",),), 0)


@pytest.mark.parametrize("needs", [("m4", "m1"), ("m0", "m5"), ("m2", "m3")])
def test_unresolved_questions_are_asked_another_way(needs: tuple[str, str]) -> None:
    """A member that cannot be built without another one leaves launches unresolved; the culprit is found anyway."""
    for culprit in names(8):
        state = Isolation(members=names(8), limit=40)
        while (question := ask(state)) is not None:
            is_blocked = needs[0] in question.members and needs[1] not in question.members
            said = Answer.unresolved if is_blocked else answer_of([frozenset({culprit})], question.members)
            state = tell(state, question.members, said)
        ended = result(state)
        assert ended is not None
        assert culprit in {name for c in ended.culprits for name in c}
        assert ended.proved or culprit in needs
        assert ended.questions <= 14


def test_nothing_resolved_ends_without_a_claim() -> None:
    """When no launch says anything, the isolation ends and says that it proved nothing."""
    state = Isolation(members=names(4))
    while (question := ask(state)) is not None:
        state = tell(state, question.members, Answer.unresolved)
    ended = result(state)
    assert ended is not None
    assert (ended.proved, ended.unresolved) == (False, ended.questions)
    assert "not proved" in ended.sentence


def test_no_question_is_asked_beyond_the_limit() -> None:
    """The budget of questions is kept, and what is likely by then is said with its odds."""
    ended = isolate(Isolation(members=names(16), limit=3), {frozenset({"m9"})})
    assert ended.questions == 3
    assert not ended.proved


def test_the_state_decides_the_next_question() -> None:
    """Resuming from stored answers asks exactly what an uninterrupted isolation would have asked."""
    culprits = {frozenset({"m2", "m6"})}
    state, seen = Isolation(members=names(9)), []
    while (question := ask(state)) is not None:
        assert ask(Isolation.model_validate_json(state.model_dump_json())) == question
        seen.append(question.members)
        state = tell(state, question.members, answer_of(culprits, question.members))
    assert len(seen) == len(set(seen))
    with pytest.raises(ValueError, match="not in the bundle: other"):
        tell(state, ("other",), Answer.passes)


def test_every_pair_of_five_members_is_told_apart() -> None:
    """All explanations by one or two of five members, tried one by one."""
    everyone = names(5)
    singles = [{frozenset({a})} for a in everyone]
    pairs = list(combinations(everyone, 2))
    for culprits in [*singles, *({frozenset(p)} for p in pairs), *({frozenset({a}), frozenset({b})} for a, b in pairs)]:
        assert found(isolate(Isolation(members=everyone), culprits)) == culprits
