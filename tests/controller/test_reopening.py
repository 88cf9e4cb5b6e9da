"""What a finding was found under is among the facts it depends on: another setting makes it due again, and says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.controller.changesets import setting_facts
from orchestrator.controller.choose import due_trials, reopen_changed, todo_order
from orchestrator.controller.conclude import depends_on
from orchestrator.core.model import Playbook, Target
from orchestrator.core.records import Conclusion, Verdict
from orchestrator.ledger import Ledger, open_ledger
from tests.ledger.ledger_story import PROOF, Clock

TARGET = Target(args={"tp-size": 8}, env={"HF_TOKEN": "hf_secret_word"})


def playbook(**more: Any) -> Playbook:
    rows = [
        {"id": name, "claim": "c", "expect": gain, "context": ["plain", "fast"], "changes": [{"env": {"A": name}}]}
        for name, gain in (("first", 0.5), ("second", 0.1))
    ]
    values: dict[str, Any] = {
        "campaign": "camp", "hypotheses": rows, "contexts": {"plain": {}, "fast": {"args": {"spec": True}}}
    }  # fmt: skip
    return Playbook.model_validate(values | more)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "state", clock=Clock()) as ledger:
        yield ledger


def conclude(ledger: Ledger, name: str, context: str, verdict: Verdict, effect: float | None = None) -> None:
    book = playbook()
    ledger.upsert_hypotheses("camp", book.hypotheses)
    run = ledger.start_run("camp", "d", "gpu1", "text")
    experiment = ledger.start_experiment(run.id, name, "gpu1", context)
    arm = ledger.start_arm(experiment.id, "treatment")
    ledger.end_arm(arm.id, PROOF)
    [hypothesis] = [h for h in book.hypotheses if h.id == name]
    facts = depends_on(hypothesis, setting_facts(book, TARGET), verdict)
    ledger.add_finding(
        experiment.id, Conclusion(verdict=verdict, effect=effect, closes=True, depends_on=facts, cause="x")
    )
    ledger.end_experiment(experiment.id, "done", verdict)
    ledger.set_status("camp", name, "done")
    ledger.end_run(run.id, "done")


def due(ledger: Ledger, book: Playbook, target: Target = TARGET) -> set[tuple[str, str]]:
    order, _ = todo_order(ledger, book)
    return {(h.id, c) for h, c in due_trials(ledger, book, order, "gpu1", setting_facts(book, target), ())}


def everything_but(*known: tuple[str, str]) -> set[tuple[str, str]]:
    return {(h, c) for h in ("first", "second") for c in ("plain", "fast")} - set(known)


def test_other_flags_of_the_target_reopen_a_dead_end_and_the_row_says_why(ledger: Ledger) -> None:
    """The finding is stored as reopened with what was and what is, and its row is open with the same words."""
    conclude(ledger, "first", "plain", Verdict.crashed)
    assert due(ledger, playbook()) == everything_but(("first", "plain"))
    other = Target(args={"tp-size": 4}, env={"HF_TOKEN": "hf_secret_word"})
    [reopened] = reopen_changed(ledger, "camp", "gpu1", setting_facts(playbook(), other))
    assert '"tp-size": 8' in str(reopened.reopened_because) and '"tp-size": 4' in str(reopened.reopened_because)
    row = ledger.todo_row("camp", "first")
    assert row.status == "open" and str(reopened.reopened_because) in row.reason
    assert due(ledger, playbook(), other) == everything_but()
    assert due(ledger, playbook()) == everything_but()  # once reopened, it is to be judged anew


def test_a_changed_context_reopens_what_was_found_in_it_and_nothing_else(ledger: Ledger) -> None:
    """The other context's findings hold."""
    conclude(ledger, "first", "plain", Verdict.crashed)
    conclude(ledger, "first", "fast", Verdict.crashed)
    changed = playbook(contexts={"plain": {}, "fast": {"args": {"spec": False}}})
    assert due(ledger, changed) == everything_but(("first", "plain"))


def test_how_speed_is_measured_reopens_effects_and_not_crashes(ledger: Ledger) -> None:
    """A crash stays one under another metric; `no_effect` is judged anew; more launches ask the undecided again."""
    conclude(ledger, "first", "plain", Verdict.crashed)
    conclude(ledger, "second", "plain", Verdict.no_effect, 0.001)
    conclude(ledger, "second", "fast", Verdict.inconclusive, 0.01)
    known = {("first", "plain"), ("second", "plain"), ("second", "fast")}
    assert due(ledger, playbook()) == everything_but(*known)
    other_metric = playbook(measure={"metric": "ttft_ms", "direction": "lower"})
    assert due(ledger, other_metric) == everything_but(("first", "plain"))
    assert due(ledger, playbook(measure={"launches": 9})) == everything_but(*(known - {("second", "fast")}))


def test_a_secret_is_in_no_fact() -> None:
    """Flags and variables are shown masked, and a new secret changes nothing."""
    facts = setting_facts(playbook(), TARGET)
    assert "hf_secret_word" not in str(facts) and "HF_TOKEN" in facts["target"]
    assert facts == setting_facts(playbook(), Target(args={"tp-size": 8}, env={"HF_TOKEN": "hf_another"}))


def test_what_a_person_ranked_or_dropped_stays_so(ledger: Ledger) -> None:
    """A pinned row goes first whatever its gain, a dropped one is left out until it is named."""
    ledger.upsert_hypotheses("camp", playbook().hypotheses)
    assert [h.id for h in todo_order(ledger, playbook())[0]] == ["first", "second"]
    ledger.pin("camp", "second", 99.0, ledger.add_decision("cheap", campaign="camp").id)
    order, ranked = todo_order(ledger, playbook())
    assert [h.id for h in order] == ["second", "first"]
    assert ranked[0].reason.startswith("ranked by hand")
    ledger.set_status("camp", "second", "skipped", "dropped")
    assert [h.id for h in todo_order(ledger, playbook())[0]] == ["first"]
    assert {h.id for h in todo_order(ledger, playbook(), ["second"])[0]} == {"first", "second"}
