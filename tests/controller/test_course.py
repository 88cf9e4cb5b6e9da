"""The course of whole campaigns, simulated: isolation, combination, goal, budget, drift, search, and being killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller.spending import OutOfBudget
from orchestrator.core.model import Context
from orchestrator.errors import Refused
from orchestrator.ledger import open_ledger
from tests.controller.simulated import Killed, Simulation, playbook

BUNDLE: dict[str, Any] = {
    "id": "bundle",
    "bundle": "they were launched together",
    "expect": 0.8,
    "family": "a",
    "changes": [{"env": {"BAD": "1", "OTHER": "1"}}, {"args": {"fine": True}}],
    "parts": {"fine-alone": {"change": 2, "claim": "the flag alone", "family": "b", "context": ["plain"]}},
}
FAST = {"id": "fast", "expect": 0.1, "changes": [{"env": {"FAST": "1"}}]}
FASTER = {"id": "faster", "expect": 0.05, "changes": [{"env": {"FASTER": "1"}}]}
SLOW = {"id": "slow", "expect": 0.02, "changes": [{"env": {"SLOW": "1"}}]}


def model(context: str, changed: frozenset[str]) -> float | str:
    """BAD and OTHER crash together; the gains multiply; the flag costs 6 %."""
    if {"BAD=1", "OTHER=1"} <= changed:
        return "RuntimeError: no kernel"
    value = 80.0 if context == "plain" else 60.0
    for word, factor in (("FAST=1", 1.2), ("FASTER=1", 1.1), ("SLOW=1", 0.9), ("fine=True", 0.94)):
        value *= factor if word in changed else 1.0
    return value


def test_a_failed_bundle_is_isolated_and_its_innocent_member_is_tested_alone(tmp_path: Path) -> None:
    """The two variables that crash together are named; the flag, which only ran beside them, becomes a row of origin
    `isolation` under the name its part has, and is judged in this very run."""
    simulation = Simulation(tmp_path, playbook([BUNDLE]), model)
    course = simulation.run()
    assert simulation.findings() == [("bundle", "plain", "crashed"), ("fine-alone", "plain", "regressed")]
    assert course.returned == ["fine-alone"]
    assert "at fault: BAD with OTHER (proved" in course.notes[0]
    with open_ledger(tmp_path, clock=simulation.clock) as ledger:
        row = ledger.todo_row("c", "fine-alone")
        questions = [e for e in ledger.events() if e.phase == "question"]
        assert (row.origin, row.parent, row.family) == ("isolation", "bundle", "b")
        assert all(ledger.experiment(e.experiment_id or 0).verdict is not None for e in questions)
        assert 2 <= len(questions) <= 6
    assert simulation.problems() == []


def test_a_bundle_whose_members_do_nothing_apart_is_left_whole(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, playbook([{**BUNDLE, "isolate": False}]), model)
    assert simulation.run().returned == []
    assert simulation.findings() == [("bundle", "plain", "crashed")]


def test_screened_wins_are_measured_in_full_combined_and_measured_again(tmp_path: Path) -> None:
    """Both wins are confirmed, their combination is measured, and it is the last thing measured."""
    simulation = Simulation(tmp_path, playbook([FAST, FASTER]), model)
    course = simulation.run()
    found = simulation.findings()
    assert found[-1] == ("fast.with.faster", "plain", "improved")
    assert found.count(("fast", "plain", "improved")) == 2
    assert any("fast " in note and " together" in note for note in course.notes)
    with open_ledger(tmp_path, clock=simulation.clock) as ledger:
        last = ledger.findings()[-1]
        assert last.baseline_launches >= 2
        assert last.treatment_launches >= 2
        assert last.effect == pytest.approx(0.32, abs=0.02)
        chosen = [e for e in ledger.events() if e.phase == "chosen"]
        assert chosen[-1].data["hypothesis"] == "fast.with.faster"


def test_launches_alternate_as_a_b_b_a(tmp_path: Path) -> None:
    """What one pair does not decide goes on with the treatment, then the baseline."""
    simulation = Simulation(tmp_path, playbook([{"id": "none", "changes": [{"env": {"N": "1"}}]}]), model)
    simulation.run()
    kinds = "".join("A" if kind == "baseline" else "B" for _, kind, _, _ in simulation.launches())
    assert kinds.startswith("ABBA")


def test_the_goal_ends_the_campaign_and_speculation_is_weighed(tmp_path: Path) -> None:
    """What is ranked after the win that reaches the goal is not carried out any more, and the win is confirmed."""
    plan = playbook([FAST, SLOW], goal={"conditions": ["plain.output_tps > 90"]})
    simulation = Simulation(tmp_path, plan, model)
    simulation.run()
    names = [name for name, _, _ in simulation.findings()]
    assert "slow" not in names
    assert names.count("fast") == 2
    assert simulation.goal is not None
    assert simulation.goal.is_reached is True


def test_no_launch_is_started_that_would_not_finish_and_resume_goes_on(tmp_path: Path) -> None:
    """With a budget of four launches the run ends after four; going on carries out the rest, in the same order."""
    whole = Simulation(tmp_path / "whole", playbook([FAST, SLOW]), model)
    whole.run()
    short = Simulation(tmp_path / "short", playbook([FAST, SLOW], budget={"launches": 4}), model)
    with pytest.raises(OutOfBudget, match="4 of 4 launches"):
        short.run()
    assert len(short.launches()) == 4
    for _ in range(4):
        try:
            short.run(resume=True)
            break
        except OutOfBudget:
            continue
    assert short.findings() == whole.findings()
    assert sorted(short.launches()) == sorted(whole.launches())


def test_until_leaves_time_to_give_the_host_back(tmp_path: Path) -> None:
    """The last launch has ended before the time that was named."""
    simulation = Simulation(tmp_path, playbook([FAST, SLOW]), model, launch_s=600.0)
    simulation.until_s = simulation.clock.at + 3600 + 1200
    with pytest.raises(OutOfBudget, match="are left"):
        simulation.run()
    assert simulation.clock.at < simulation.until_s
    assert simulation.launches()


def test_a_baseline_that_drifts_ends_the_run_and_resume_goes_on_from_its_new_level(tmp_path: Path) -> None:
    """After a crash the baseline is measured again: 20 % lower, and still so when launched once more."""
    crash = {"id": "crash", "expect": 0.5, "changes": [{"env": {"BAD": "1", "OTHER": "1"}}]}
    drifted: list[int] = []

    def drifting(context: str, changed: frozenset[str]) -> float | str:
        said = model(context, changed)
        if isinstance(said, str):
            drifted.append(1)
            return said
        return said * (0.8 if drifted else 1.0)

    simulation = Simulation(tmp_path, playbook([crash, FAST]), drifting)
    with pytest.raises(Refused, match="drifted"):
        simulation.run()
    with open_ledger(tmp_path, clock=simulation.clock) as ledger:
        assert [e.data["context"] for e in ledger.events() if e.phase == "drift"] == ["plain"]
    simulation.run(resume=True)
    assert simulation.findings()[:2] == [("crash", "plain", "crashed"), ("fast", "plain", "improved")]
    with open_ledger(tmp_path, clock=simulation.clock) as ledger:
        assert ledger.findings(hypothesis_id="fast")[-1].baseline == pytest.approx(64, rel=0.03)


def test_the_baseline_is_measured_again_after_so_many_experiments(tmp_path: Path) -> None:
    rows = [{"id": f"h{i}", "changes": [{"env": {"SLOW": "1", "I": str(i)}}]} for i in range(6)]
    often = Simulation(tmp_path / "often", playbook(rows, recheck_every=1), model)
    seldom = Simulation(tmp_path / "seldom", playbook(rows, recheck_every=100), model)
    often.run()
    seldom.run()
    baselines = [sum(kind == "baseline" for _, kind, _, _ in s.launches()) for s in (often, seldom)]
    assert baselines[0] >= baselines[1] + 5


def test_a_search_shows_its_column_beside_random_search_and_ends_with_its_trials(tmp_path: Path) -> None:
    """Six trials, three of each; the crash is no number; the best point wins and is measured in full."""
    space = [{"env": "FAST", "values": ["0", "1"]}, {"env": "FASTER", "values": ["0", "1"]},
             {"env": "BAD", "values": ["0", "1"]}, {"env": "OTHER", "values": ["0", "1"]}]  # fmt: skip
    plan = playbook([SLOW], search={"space": space, "trials": 6, "seed": 3})
    simulation = Simulation(tmp_path, plan, model)
    course = simulation.run()
    assert {name: len(gains) for name, gains in course.columns.items()} == {"random": 3, "surrogate": 3}
    points = {name for name, _, _ in simulation.findings() if (name or "").startswith("search-")}
    assert len(points) == 6
    assert simulation.problems() == []


CAMPAIGN = [BUNDLE, FAST, {**FASTER, "context": ["plain", "speculative"]}, SLOW]
CONTEXTS = {"plain": Context(), "speculative": Context(args={"speculative-algorithm": "EAGLE3"})}


@pytest.mark.parametrize("step", range(6))
def test_a_run_that_is_killed_anywhere_comes_to_the_same_verdicts_in_the_same_order(tmp_path: Path, step: int) -> None:
    """Killed at one write of the ledger after another, and gone on with until it is through: the same findings as a run
    that was left alone, and no launch that came to an end is done once more."""
    whole = Simulation(tmp_path / "whole", playbook(CAMPAIGN, contexts=CONTEXTS), model)
    whole.run()
    killed = Simulation(tmp_path / "killed", playbook(CAMPAIGN, contexts=CONTEXTS), model)
    deaths = 0
    for number in range(60):
        try:
            killed.run(resume=number > 0 and deaths > 0, die_at=17 + 26 * step + 41 * number if number < 8 else None)
            break
        except Killed:
            deaths += 1
    assert deaths
    assert killed.findings() == whole.findings()
    assert sorted(killed.launches()) == sorted(whole.launches())
    assert killed.problems() == []
