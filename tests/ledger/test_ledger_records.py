from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.core.model import Inventory
from orchestrator.core.records import Conclusion, RevertProof, Sample, Verdict
from orchestrator.errors import Bug, UsageError
from orchestrator.ledger import Ledger, open_ledger
from orchestrator.ledger.base import storable
from tests.ledger.ledger_story import PROOF, Clock, Story, hypothesis


def test_an_experiment_reads_back_with_all_its_parts(ledger: Ledger, story: Story) -> None:
    """Arms, launches and samples come back as they were written, in order."""
    experiment = story.begin()
    assert experiment.changes == ({"env": {"NAME": "fewer-channels", "GONE": None}},)
    baseline = ledger.start_arm(experiment.id, "baseline")
    story.launch(baseline.id, samples=2)
    ledger.end_arm(baseline.id)
    treatment = ledger.start_arm(experiment.id, "treatment")
    launch = ledger.start_launch(treatment.id, "x1", ["python3", "--tp", "8"])
    ledger.note_launch(launch.id, ready_s=93.5, facts={"loaded": True})
    ledger.end_launch(launch.id, "exited", exit_code=1, cause="KeyError: 12", facts={"signature": "symm-mem"})
    ledger.end_arm(treatment.id, PROOF)
    with ledger.batch():
        finding = ledger.add_finding(
            experiment.id,
            Conclusion(verdict=Verdict.crashed, cause="KeyError: 12", closes=True, depends_on={"torch": "2.9"}),
        )
        ledger.end_experiment(experiment.id, "done", Verdict.crashed, cause="KeyError: 12")
    back = ledger.experiment(experiment.id)
    assert [(a.kind, a.number, len(a.launches), a.proof) for a in back.arms] == [
        ("baseline", 1, 1, None),
        ("treatment", 2, 1, PROOF),
    ]
    assert back.arms[0].launches[0].samples == tuple(Sample(repetition=n, ttft_s=0.1, decode_s=1.0) for n in range(2))
    failed = back.arms[1].launches[0]
    assert (failed.ready_s, failed.exit_code, failed.facts) == (93.5, 1, {"loaded": True, "signature": "symm-mem"})
    assert back.is_proved_reverted
    assert (finding.family, finding.hypothesis_id, finding.is_dead_end) == ("nccl", "fewer-channels", True)
    assert list(ledger.each_experiment("camp")) == [back]
    assert ledger.check() == []


def test_what_a_start_returns_is_what_is_stored(ledger: Ledger, story: Story) -> None:
    """Records made on the way in equal those read back."""
    experiment = story.begin()
    assert ledger.experiments("camp") == [experiment]
    arm = ledger.start_arm(experiment.id, "treatment")
    launch = ledger.start_launch(arm.id, "x1")
    assert ledger.launch(launch.id) == launch
    assert ledger.experiment(experiment.id).arms == (arm.model_copy(update={"launches": (launch,)}),)
    finding = story.finish(story.begin("tree"))
    assert ledger.finding(finding.id) == finding
    note = ledger.note("hello", {"n": 1}, run_id=story.run.id)
    assert ledger.events() == [note]
    assert note.host == "gpu1"


def test_times_come_from_the_clock_in_utc(ledger: Ledger) -> None:
    """An event carries the time of the injected clock as UTC text."""
    assert ledger.note("now").at.startswith("2026-03-01T12:00:0")


def test_a_playbook_row_keeps_its_place_until_its_changes_differ(ledger: Ledger, story: Story) -> None:
    """Upserting the same rows keeps status and rank; other changes open the row again."""
    ledger.set_status("camp", "tree", "done", "crashed")
    ledger.set_rank("camp", "tree", 3.0, "cheap")
    rows = ledger.upsert_hypotheses("camp", [hypothesis("tree", claim="said anew", expect=0.1)])
    assert [(r.id, r.status, r.rank, r.expect) for r in rows] == [
        ("tree", "done", 3.0, 0.1),
        ("fewer-channels", "open", None, None),
    ]
    assert rows[0].as_hypothesis() == hypothesis("tree", claim="said anew", expect=0.1)
    changed = ledger.upsert_hypotheses("camp", [hypothesis("tree", changes=[{"env": {"NAME": "other"}}])])
    assert (changed[0].status, changed[0].reason) == ("open", "its changes are other ones now")


def test_rows_are_added_by_people_and_by_isolation(ledger: Ledger, story: Story) -> None:
    """A row added later says where it came from; a taken id is a usage error."""
    row = ledger.add_todo("camp", hypothesis("alone"), origin="isolation", parent="bundle", reason="never run alone")
    assert (row.origin, row.parent, row.number) == ("isolation", "bundle", 3)
    assert ledger.todo("camp")[-1] == row
    with pytest.raises(UsageError, match="already has"):
        ledger.add_todo("camp", hypothesis("alone"), origin="person")


def test_a_fingerprint_is_stored_once(ledger: Ledger, clock: Clock) -> None:
    """The same facts, in whatever order, are one row whose last sight moves."""
    first = ledger.fingerprint("gpu1", {"driver": "580", "arch": ["12.0"]})
    clock.skip(60)
    again = ledger.fingerprint("gpu1", {"arch": ["12.0"], "driver": "580"})
    other = ledger.fingerprint("gpu1", {"driver": "581", "arch": ["12.0"]})
    assert (again.id, again.first_seen, again.last_seen > first.last_seen) == (first.id, first.first_seen, True)
    assert ledger.fingerprints("gpu1") == [again, other]
    assert ledger.fingerprint("gpu2", {"driver": "580"}).id not in {first.id, other.id}


def test_decisions_and_insights_rest_on_findings(ledger: Ledger, story: Story) -> None:
    """They belong to the campaign of their findings, and a finding that does not exist is a usage error."""
    finding = story.finish(story.begin())
    insight = ledger.add_insight("the number of calls is the cost", [finding.id, finding.id])
    assert (insight.campaign, insight.finding_ids) == ("camp", (finding.id,))
    assert ledger.insights("camp") == [insight]
    ledger.add_decision("test it alone", campaign="camp", author="A")
    assert [(d.text, d.finding_ids) for d in ledger.decisions()] == [("test it alone", ())]
    with pytest.raises(UsageError, match="no finding #99"):
        ledger.add_decision("x", [99])
    with pytest.raises(UsageError, match="exactly one campaign"):
        ledger.add_insight("of nothing")
    assert len(ledger.insights()) == 1


def test_a_dead_end_reopens_once(ledger: Ledger, story: Story) -> None:
    """Reopening says why and takes the dead end away; twice is a mistake."""
    conclusion = Conclusion(verdict=Verdict.hung, closes=True, depends_on={"driver": "580"})
    finding = story.finish(story.begin(), conclusion)
    reopened = ledger.reopen(finding.id, "driver 580 → 581")
    assert not reopened.is_dead_end
    assert ledger.findings("camp", context="plain") == [reopened]
    with pytest.raises(Bug, match="no dead end"):
        ledger.reopen(finding.id, "again")


def test_the_life_of_rows_cannot_be_skipped(ledger: Ledger, story: Story) -> None:
    """What has ended does not change, and nothing ends before its parts."""
    experiment = story.begin()
    arm = ledger.start_arm(experiment.id, "baseline")
    launch = ledger.start_launch(arm.id, "x1")
    with pytest.raises(Bug, match="cannot be done"):
        ledger.end_experiment(experiment.id, "done", Verdict.no_effect)
    ledger.end_launch(launch.id, "exited", signal=9)
    with pytest.raises(Bug, match="has ended as exited"):
        ledger.end_launch(launch.id, "hung")
    ledger.end_arm(arm.id)
    for late in (lambda: ledger.end_arm(arm.id), lambda: ledger.start_launch(arm.id, "x2")):
        with pytest.raises(Bug, match="has ended"):
            late()
    ledger.end_experiment(experiment.id, "done", Verdict.crashed)
    for late in (
        lambda: ledger.set_phase(experiment.id, "measure"),
        lambda: ledger.end_experiment(experiment.id, "done", Verdict.improved),
        lambda: ledger.start_arm(experiment.id, "treatment"),
    ):
        with pytest.raises(Bug, match="has ended"):
            late()
    ledger.end_run(story.run.id, "done")
    with pytest.raises(Bug, match="cannot end"):
        ledger.end_run(story.run.id, "done")


def test_a_baseline_alone_needs_no_verdict(ledger: Ledger, story: Story) -> None:
    """It tests no hypothesis; one with a hypothesis does need a verdict."""
    baseline = story.begin(None)
    assert ledger.end_experiment(baseline.id, "done", None).verdict is None
    with pytest.raises(Bug, match="cannot be done"):
        ledger.end_experiment(story.begin().id, "done", None)
    assert ledger.check() == []


def test_an_intent_is_settled_once(ledger: Ledger, story: Story) -> None:
    """A second outcome, or an outcome of something that is no intent, is a mistake."""
    intent = ledger.intend("apply", experiment_id=story.begin().id)
    outcome = ledger.settle(intent, "ok", {"seconds": 0.2})
    assert (outcome.settles, outcome.host, outcome.experiment_id) == (intent.seq, "gpu1", intent.experiment_id)
    with pytest.raises(Bug, match="nothing to settle"):
        ledger.settle(intent, "ok")
    with pytest.raises(Bug, match="nothing to settle"):
        ledger.settle(outcome, "ok")


def test_events_are_read_in_pages(ledger: Ledger, story: Story) -> None:
    """`after` and `limit` walk the trail without gaps; filters narrow it."""
    for n in range(5):
        ledger.note("odd" if n % 2 else "even", {"n": n}, host=f"gpu{n % 2}")
    first = ledger.events(limit=3)
    rest = ledger.events(after=first[-1].seq, limit=3)
    assert [e.data["n"] for e in first + rest] == [0, 1, 2, 3, 4]
    assert [e.data["n"] for e in ledger.events(phase="odd", host="gpu1", kind="info")] == [1, 3]


def test_a_quarantined_host_is_remembered(state_dir: Path, clock: Clock) -> None:
    """Quarantine and release survive a new process, with their reason."""
    with open_ledger(state_dir, clock=clock) as ledger:
        assert ledger.host("gpu1") is None
        ledger.quarantine("gpu1", "verify failed")
    with open_ledger(state_dir, clock=clock) as ledger:
        host = ledger.host("gpu1")
        assert host is not None
        assert (host.state, host.reason) == ("quarantined", "verify failed")
        assert ledger.release("gpu1", "recovered").state == "clean"
        assert [h.name for h in ledger.hosts()] == ["gpu1"]


def test_the_inventory_is_remembered(ledger: Ledger) -> None:
    """The inventory last seen reads back equal; seeing the same again adds no row."""
    assert ledger.last_inventory() is None
    inventory = Inventory.model_validate(
        {
            "hosts": {
                "gpu1": {
                    "route": {"ssh": "root@pve", "hops": ["pct exec 129 --", {"ssh": "inner"}], "keepalive": "3s"},
                    "target": {"args": {"tp": 8}, "env": {"A": None}, "ready": {"limit": "30m"}},
                    "reap": [12, 13],
                }
            }
        }
    )
    ledger.remember_inventory(inventory)
    ledger.remember_inventory(inventory)
    assert ledger.last_inventory() == inventory
    ledger.remember_inventory(Inventory())
    assert ledger.last_inventory() == Inventory()


def test_launches_of_baselines_are_found_by_host_and_context(ledger: Ledger, story: Story) -> None:
    """Between-launch noise is asked of the baselines of one host, over all campaigns."""
    fingerprint = ledger.fingerprint("gpu1", {"driver": "580"})
    experiment = story.begin(None)
    ledger.set_fingerprint(experiment.id, fingerprint.id)
    arm = ledger.start_arm(experiment.id, "baseline")
    ids = [story.launch(arm.id), story.launch(arm.id)]
    story.finish(story.begin())
    found = ledger.launches(host="gpu1", kind="baseline", fingerprint_id=fingerprint.id)
    assert [launch.id for launch in found] == ids
    assert all(len(launch.samples) == 3 for launch in found)
    assert len(ledger.launches(host="gpu1", context="plain")) == 3
    assert ledger.launches(host="gpu2") == []


@pytest.mark.parametrize(
    "values",
    [
        {"verdict": "crashed", "effect": 0.0},
        {"verdict": "improved"},
        {"verdict": "improved", "effect": -0.1},
        {"verdict": "regressed", "effect": 0.1},
        {"verdict": "no_effect", "effect": 0.0, "low": 0.1, "high": 0.2},
    ],
)
def test_a_verdict_and_its_effect_must_fit(values: dict[str, object]) -> None:
    """A failure is never a number, and a measured verdict never contradicts its own."""
    with pytest.raises(ValidationError):
        Conclusion.model_validate(values)


def test_a_clean_proof_lists_no_difference_of_ours() -> None:
    """Foreign differences may stand in a clean proof, ours may not."""
    foreign = {"path": "/x", "what": "changed", "ours": False}
    assert RevertProof(clean=True, found_digest="a", now_digest="b", files=1, differences=(foreign,)).clean
    with pytest.raises(ValidationError):
        RevertProof(clean=True, found_digest="a", now_digest="b", files=1, differences=(foreign | {"ours": True},))


@given(st.text() | st.binary().map(lambda b: b.decode("utf-8", "surrogateescape")))
def test_any_text_can_be_stored(text: str) -> None:
    """What a host prints is valid UTF-8 after `storable`, and valid text is not changed by it."""
    assert storable(text).encode().decode() == storable(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert storable(text) == text


def test_bytes_that_are_no_text_are_kept_readable(ledger: Ledger, story: Story) -> None:
    """A log line with broken UTF-8 is stored with its bytes escaped."""
    note = ledger.note("log", {"line": b"caf\xe9 \xf0\x9f".decode("utf-8", "surrogateescape"), "ok": "café"})
    assert note.data == {"line": "caf\\udce9 \\udcf0\\udc9f", "ok": "café"}
    assert ledger.events()[-1] == note
