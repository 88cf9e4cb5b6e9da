"""Wins are combined step by step, each step measured, and the smaller change stays where nothing is gained."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.combination import Measured, Members, Step, Win, interaction, next_across, next_step
from orchestrator.core.records import Verdict


def together(*members: str, gain: float | None) -> Measured:
    verdict = Verdict.crashed if gain is None else Verdict.improved
    return Measured(frozenset(members), verdict, gain)


def test_wins_are_combined_best_first_and_every_step_is_measured() -> None:
    """The best win, then with the next one, then with the third; what was measured is not asked for again."""
    wins = [Win("b", 0.05), Win("a", 0.20), Win("c", 0.03)]
    first = next_step(wins)
    assert first is not None
    assert (first.kind, set(first.members)) == ("combine", {"a", "b"})
    assert "+26.0% if nothing interacts" in first.reason
    second = next_step(wins, [together("a", "b", gain=0.26)])
    assert second is not None
    assert set(second.members) == {"a", "b", "c"}
    last = next_step(wins, [together("a", "b", gain=0.26), together("a", "b", "c", gain=0.25)])
    assert last is not None
    assert (last.kind, set(last.members), last.gain) == ("finish", {"a", "b"}, 0.26)
    assert "c adds too little (+25.0%), the smaller change stays" in last.reason


def test_a_combination_that_fails_leaves_its_parts() -> None:
    """A crash of two wins together is no reason to drop the better one, and the third is still tried with it."""
    wins = [Win("a", 0.2), Win("b", 0.1), Win("c", 0.05)]
    step = next_step(wins, [together("a", "b", gain=None)])
    assert step is not None
    assert set(step.members) == {"a", "c"}
    assert "with b it crashed" in step.reason


def test_ties_go_to_the_smaller_change() -> None:
    """Two wins as good as each other: the one of two lines is the start, not the one of four hundred."""
    wins = [Win("large", 0.105, lines=400), Win("small", 0.10, lines=2)]
    first = next_step(wins)
    assert first is not None
    assert first.members == ("small", "large")
    last = next_step(wins, [together("large", "small", gain=0.11)])
    assert last is not None
    assert last.members == ("small",)


def test_a_screened_win_is_confirmed_first_and_dropped_where_it_is_not() -> None:
    """No win counts that rests on one launch of an arm; one that does not hold in full leaves the stage."""
    wins = [Win("sure", 0.1), Win("quick", 0.4, is_screened=True)]
    first = next_step(wins)
    assert first is not None
    assert (first.kind, first.members) == ("confirm", ("quick",))
    fell = [Measured(frozenset({"quick"}), Verdict.no_effect, 0.003)]
    last = next_step(wins, fell)
    assert last is not None
    assert (last.kind, last.members) == ("finish", ("sure",))
    stood = next_step(wins, [together("quick", gain=0.35)])
    assert stood is not None
    assert stood.kind == "combine"


def test_wins_that_exclude_each_other_are_not_combined() -> None:
    """Two values of one variable cannot be applied together, and that is said."""
    step = next_step([Win("a", 0.2), Win("b", 0.1)], conflicts=[frozenset({"a", "b"})])
    assert step is not None
    assert (step.kind, step.members) == ("finish", ("a",))
    assert "b left out" in step.reason
    assert next_step([]) is None


@given(st.lists(st.floats(0.02, 0.5), min_size=1, max_size=5), st.floats(-0.2, 0.1))
@settings(max_examples=60)
def test_building_ends_with_the_best_it_has_measured(gains: list[float], overlap: float) -> None:
    """Whatever the interactions, it ends after at most one measurement a win, and on the largest gain it has seen."""
    wins = [Win(f"w{i}", gain) for i, gain in enumerate(gains)]
    measured: list[Measured] = []
    while True:
        step = next_step(wins, measured, tie=0.0)
        assert step is not None
        if step.kind == "finish":
            break
        parts = [gains[int(m[1:])] for m in step.members]
        pairs = len(list(combinations(parts, 2)))
        value = math.expm1(sum(map(math.log1p, parts)) + overlap * pairs)
        measured.append(together(*step.members, gain=value))
    assert len(measured) < len(wins) or len(wins) == 1
    seen = [m.gain for m in measured if m.gain is not None] + gains
    assert step.gain == pytest.approx(max(seen))


def test_interactions_are_reported() -> None:
    """What two wins make together is held against what they would make if they did not touch."""
    parts = {"a": 0.1, "b": 0.05}
    assert "they do not interact" in interaction(parts, 0.155)
    assert "they get in each other's way (-9.1%)" in interaction(parts, 0.05)
    assert "they help one another" in interaction(parts, 0.3)


def test_one_configuration_is_chosen_across_contexts() -> None:
    """Each context's best and all together are measured everywhere; what loses in one context is out."""
    a, b = frozenset({"a"}), frozenset({"b"})
    bests: dict[str, Members] = {"plain": a, "speculative": b}
    gains = {
        ("plain", a): 0.05, ("speculative", a): 0.0,
        ("plain", b): -0.10, ("speculative", b): 0.60,
        ("plain", a | b): 0.04, ("speculative", a | b): 0.55,
    }  # fmt: skip
    known: dict[tuple[str, Members], float | None] = {}
    while not isinstance(step := next_across(bests, known, lines={"a": 1, "b": 3}), Step):
        assert step is not None
        known[step] = gains[step]
    assert step.members == ("a", "b")
    assert len(known) == 6
    assert next_across({}, {}, lines={}) is None
    lost: dict[tuple[str, Members], float | None] = dict.fromkeys(gains, -0.5)
    nothing = next_across(bests, lost, lines={})
    assert isinstance(nothing, Step)
    assert nothing.members == ()
