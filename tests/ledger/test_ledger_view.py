from __future__ import annotations

import io
import json

import pytest

from orchestrator.core.records import EventRecord, ExperimentRecord, FindingRecord
from orchestrator.errors import UsageError
from orchestrator.ledger import Ledger, experiments, trail
from orchestrator.report import FORMATS, export
from tests.ledger.ledger_story import Story


def test_a_ledger_is_exported_and_reads_back(ledger: Ledger, story: Story) -> None:
    """What the JSON says of a campaign equals what the ledger says, all parts and events included."""
    experiment = story.begin()
    ledger.settle(ledger.intend("apply", {"n": 1}, experiment_id=experiment.id), "ok")
    ledger.add_artifact("log", b"x", name="log", experiment_id=experiment.id)
    finding = story.finish(experiment)
    ledger.add_insight("calls cost", [finding.id])
    ledger.start_run("other", "d", "gpu2", "")
    ledger.note("elsewhere", host="gpu2")
    out = io.StringIO()
    export(ledger.view("camp"), "json", out)
    data = json.loads(out.getvalue())
    (artifacts,) = [e.pop("artifacts") for e in data["experiments"]]
    assert [a["id"] for a in artifacts] == [1]
    assert [ExperimentRecord.model_validate(e) for e in data["experiments"]] == [ledger.experiment(experiment.id)]
    assert [FindingRecord.model_validate(f) for f in data["findings"]] == ledger.findings("camp")
    assert [EventRecord.model_validate(e) for e in data["events"]] == ledger.events(host="gpu1")
    assert {run["campaign"] for run in data["runs"]} == {"camp"}
    for format in FORMATS:
        export(ledger.view("camp"), format, io.StringIO())


def test_a_view_reads_page_by_page_and_anew_each_time(
    ledger: Ledger, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows than a page come out once each, in order, as often as they are asked for."""
    monkeypatch.setattr(experiments, "PAGE", 3)
    monkeypatch.setattr(trail, "PAGE", 3)
    for _ in range(7):
        story.finish(story.begin())
        ledger.note("step", run_id=story.run.id)
    view = ledger.view("camp")
    for _ in range(2):
        assert [e.id for e in view.experiments] == list(range(1, 8))
        assert [e.seq for e in view.events] == list(range(1, 8))


def test_a_campaign_that_is_not_there_is_a_usage_error(ledger: Ledger) -> None:
    """The name is in the message."""
    with pytest.raises(UsageError, match="no campaign nowhere"):
        ledger.view("nowhere")
