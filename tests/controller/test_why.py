"""Why: a place in the todo, a verdict, two findings that differ; and the trail of who did what."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.controller import todo
from orchestrator.controller.trail import acts, write_trail
from orchestrator.controller.why import Answer, last_two, why_not_reproduced, why_ranked, why_verdict
from orchestrator.core.differences import differences
from orchestrator.core.records import Conclusion, FindingRecord, Verdict
from orchestrator.errors import UsageError
from orchestrator.ledger import Ledger, open_ledger
from tests.ledger.ledger_story import PROOF, Clock, Story, hypothesis


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "state", clock=Clock()) as ledger:
        yield ledger


@pytest.fixture
def story(ledger: Ledger) -> Story:
    return Story(ledger)


def told(answer: Answer) -> str:
    return "\n".join([answer.title, *(f"{heading}: {line}" for heading, lines in answer.parts for line in lines)])


def measured(story: Story, driver: str, effect: float, resolved: dict[str, Any], **more: Any) -> FindingRecord:
    """A finding on `tree` with its own fingerprint and configuration of the server."""
    ledger = story.ledger
    experiment = story.begin("tree")
    ledger.set_fingerprint(experiment.id, ledger.fingerprint("gpu1", {"driver": driver, "boot": {"id": "b"}}).id)
    arm = ledger.start_arm(experiment.id, "treatment")
    story.launch(arm.id)
    second = ledger.start_launch(arm.id, f"R{experiment.id}", ["server"])
    ledger.end_launch(second.id, "measured", facts={"value": 80.0, "resolved": resolved})  # type: ignore[arg-type]
    ledger.end_arm(arm.id, PROOF)
    verdict = Verdict.improved if effect > 0 else Verdict.regressed
    conclusion = Conclusion(
        verdict=verdict, effect=effect, low=effect - 0.01, high=effect + 0.01, depends_on={"driver": driver}, **more
    )
    finding = ledger.add_finding(experiment.id, conclusion)
    ledger.end_experiment(experiment.id, "done", verdict)
    return finding


def test_a_place_in_the_todo_is_explained(story: Story) -> None:
    """The reckoning, the family so far, what it waits for, whose word it was."""
    story.ledger.upsert_hypotheses("camp", [hypothesis("ep", after=("tree",), expect=0.2)])
    story.finish(story.begin("fewer-channels"), Conclusion(verdict=Verdict.crashed, closes=True))
    answer = why_ranked(story.ledger, "camp", "ep")
    assert answer.title.startswith("ep: open, place")
    text = told(answer)
    assert "+20.0 % expected × 33% odds ÷" in text
    assert "family nccl: 0 won, 1 lost among the others" in text and "waits for: tree" in text
    todo.rank_by_hand(story.ledger, "camp", "tree", "the vendor says so")
    text = told(why_ranked(story.ledger, "camp", "tree"))
    assert "ranked by hand before all" in text and "the vendor says so" in text
    with pytest.raises(UsageError, match="no hypothesis 'eb'"):
        why_ranked(story.ledger, "camp", "eb")


def test_a_verdict_is_explained(story: Story) -> None:
    """Summary, interval, evidence, the launches behind it, what rests on it, and what would reopen it."""
    ledger = story.ledger
    finding = story.finish(
        story.begin("tree"),
        Conclusion(verdict=Verdict.regressed, summary="regressed -5 %", effect=-0.05, low=-0.06, high=-0.04,
                   confidence=0.95, evidence=("the interval excludes zero",), closes=True,
                   depends_on={"driver": "580"}),
    )  # fmt: skip
    todo.decide(ledger, "camp", "leave the tree alone", [finding.id])
    text = told(why_verdict(ledger, finding))
    for words in ("regressed -5 %", "effect -5.0%, -6.0% to -4.0% at 95%", "the interval excludes zero",
                  "treatment L1: measured", "until one of these changes: driver 580",
                  "leave the tree alone"):  # fmt: skip
        assert words in text, words


def test_what_was_not_the_same_is_named(story: Story) -> None:
    """The driver, the server's own configuration without what changes at every launch; the intervals do not overlap."""
    first = measured(story, "580", 0.05, {"tp_size": 8, "port": 1, "deep": {"list": [1, 2]}})
    second = measured(story, "581", -0.05, {"tp_size": 4, "port": 2, "deep": {"list": [1, 3]}})
    assert last_two(story.ledger, "camp", "tree") == [first, second]
    text = told(why_not_reproduced(story.ledger, first, second))
    assert "their intervals do not overlap" in text
    assert "host differs: driver: 580 → 581" in text and "settings differs: driver: 580 → 581" in text
    assert "server differs: tp_size: 8 → 4" in text and "deep.list[1]: 2 → 3" in text and "port" not in text


def test_where_nothing_differs_that_is_said(story: Story) -> None:
    """Noise is the honest answer then."""
    pair = [measured(story, "580", 0.05, {"tp_size": 8}), measured(story, "580", 0.052, {"tp_size": 8})]
    text = told(why_not_reproduced(story.ledger, *pair))
    assert "their intervals overlap" in text and "nothing that we know of" in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, JSON)
def test_differences_are_the_same_both_ways(one: object, other: object) -> None:
    """Nothing differs from itself; turned round, what was and what is change places."""
    assert differences(one, one) == []
    there, back = differences(one, other), differences(other, one)
    assert [(d.name, d.was, d.now) for d in there] == [(d.name, d.now, d.was) for d in back]


def test_the_trail_tells_who_did_what_in_order(story: Story) -> None:
    """People, the controller and the guard on the host; an act without an outcome is open; the command is there."""
    ledger = story.ledger
    experiment = story.begin("tree")
    done = ledger.intend("launch", {"argv": ["python", "-m", "a b"]}, experiment_id=experiment.id)
    ledger.settle(done, "done", {"pid": 7})
    ledger.intend("revert", {"txn": "t"}, experiment_id=experiment.id)
    ledger.note("guard_outcome", {"state": "reverted"}, host="gpu1", run_id=story.run.id)
    todo.decide(ledger, "camp", "stop here")
    rows = list(acts(ledger, campaign="camp"))
    assert [a.seq for a in rows] == [1, 2, 3, 4, 5]
    assert [(a.what, a.outcome) for a in rows] == [
        ("launch begins", None), ("launch", "done"), ("revert begins", "open"), ("guard_outcome", None),
        ("decision", None),
    ]  # fmt: skip
    assert rows[0].command == "python -m 'a b'"
    assert rows[0].who.startswith("controller of run #1") and rows[3].who == "guard on gpu1" and "@" in rows[4].who
    assert [a.seq for a in acts(ledger, host="gpu1")] == [1, 2, 3, 4]
    assert list(acts(ledger, since="2027")) == []


def test_the_trail_can_be_exported(story: Story) -> None:
    """Text, csv and JSON say the same acts; other campaigns' are left out; an unknown form is a usage error."""
    ledger = story.ledger
    todo.decide(ledger, "camp", "=cmd|' /c calc'!A1 \x1b[31m")
    ledger.add_campaign("other")
    todo.decide(ledger, "other", "elsewhere")

    def written(form: str) -> str:
        out = io.StringIO()
        write_trail(ledger, form, out, campaign="camp")
        return out.getvalue()

    assert [row["what"] for row in csv.DictReader(io.StringIO(written("csv")))] == ["decision"]
    assert [row["seq"] for row in json.loads(written("json"))] == [1]
    assert json.loads(written("jsonl"))["details"]["text"].startswith("=cmd")
    assert "\x1b" not in written("text") and "elsewhere" not in written("text")
    with pytest.raises(UsageError, match="no form"):
        written("xml")
    with pytest.raises(UsageError, match="no campaign"):
        write_trail(ledger, "text", io.StringIO(), campaign="none")
