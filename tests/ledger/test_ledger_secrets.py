from __future__ import annotations

import stat
from pathlib import Path

import pytest

from orchestrator.core.model import Inventory
from orchestrator.core.records import Conclusion, Sample, Verdict
from orchestrator.core.secrets import Masker
from orchestrator.errors import Refused
from orchestrator.ledger import Ledger, open_ledger
from tests.ledger.ledger_story import PROOF, Clock, hypothesis

SECRET = "hunter2-and-more"


def test_no_secret_reaches_the_disk(state_dir: Path, clock: Clock) -> None:
    """Every text and every JSON that a caller can hand over is masked before it is written, artifacts included."""
    said = f"--api-key {SECRET}"
    with open_ledger(state_dir, clock=clock, mask=Masker([SECRET]).data) as ledger:
        run = ledger.start_run("camp", "d", "gpu1", said, description=said, measure={"x": said}, options={"a": said})
        ledger.upsert_hypotheses("camp", [hypothesis("h", why=said, changes=[{"env": {"HF_TOKEN": SECRET}}])])
        ledger.set_rank("camp", "h", 1.0, said)
        ledger.quarantine("gpu1", said)
        fingerprint = ledger.fingerprint("gpu1", {"cmdline": [said]})
        experiment = ledger.start_experiment(run.id, "h", "gpu1", "plain", fingerprint_id=fingerprint.id)
        ledger.settle(ledger.intend("launch", {"argv": [said]}, experiment_id=experiment.id), "ok", {"out": said})
        arm = ledger.start_arm(experiment.id, "treatment", changes=[{"env": {"HF_TOKEN": SECRET}}])
        launch = ledger.start_launch(arm.id, "L", [said])
        assert launch.argv == ("--api-key ***",)
        ledger.add_samples(launch.id, [Sample(repetition=0, text=said, error=said)])
        log = ledger.add_artifact("log", f"line\n{said}\n".encode(), name="log", launch_id=launch.id)
        assert ledger.read_artifact(log.id) == b"line\n--api-key ***\n"
        ledger.end_launch(launch.id, "exited", cause=said, facts={"line": said}, log_artifact=log.id)
        ledger.end_arm(arm.id, PROOF)
        with ledger.batch():
            told = Conclusion(verdict=Verdict.crashed, summary=said, cause=said, evidence=(said,), closes=True)
            finding = ledger.add_finding(experiment.id, told)
            ledger.end_experiment(experiment.id, "done", Verdict.crashed, cause=said)
        ledger.reopen(finding.id, said)
        ledger.add_decision(said, [finding.id], author=said)
        ledger.add_insight(said, [finding.id])
        target = {"args": {"api_key": SECRET}, "env": {"HF_TOKEN": SECRET}}
        ledger.remember_inventory(Inventory.model_validate({"hosts": {"gpu1": {"target": target}}}))
        assert ledger.check() == []
        files = [p for p in state_dir.rglob("*") if p.is_file()]
        assert len(files) >= 3
        assert [p for p in files if SECRET.encode() in p.read_bytes()] == []


def test_a_secret_spelled_like_one_of_our_words_breaks_nothing(state_dir: Path, clock: Clock) -> None:
    """Names, states and times of ours are not masked."""
    with open_ledger(state_dir, clock=clock, mask=Masker(["running", "2026", "gpu1", "state"]).data) as ledger:
        run = ledger.start_run("camp", "d", "gpu1", "running on gpu1")
        assert (run.state, run.host, run.playbook_text) == ("running", "gpu1", "*** on ***")
        assert ledger.end_run(run.id, "done").ended_at is not None


def test_a_preimage_is_never_masked(state_dir: Path, clock: Clock) -> None:
    """What was found on a host must come back byte for byte, secret or not, valid text or not."""
    data = f"password = {SECRET}\n".encode() + b"\xff\x00"
    with open_ledger(state_dir, clock=clock, mask=Masker([SECRET]).data) as ledger:
        assert ledger.read_artifact(ledger.add_artifact("found", data, name="settings.py").id) == data
        log = ledger.add_artifact("log", data, name="log")
        assert ledger.read_artifact(log.id) == b"password = ***\n\xff\x00"


def test_the_holder_token_is_stable_and_private(ledger: Ledger, state_dir: Path, clock: Clock) -> None:
    """The same for the same tree in every process, another for another tree or state; its secret is in a 0600 file."""
    token = ledger.holder_token("gpu1", "/opt/sglang")
    assert token == ledger.holder_token("gpu1", "/opt/sglang")
    assert len({token, ledger.holder_token("gpu2", "/opt/sglang"), ledger.holder_token("gpu1", "/opt/vllm")}) == 3
    with open_ledger(state_dir, clock=clock) as again:
        assert again.holder_token("gpu1", "/opt/sglang") == token
    with open_ledger(state_dir.parent / "other", clock=clock) as other:
        assert other.holder_token("gpu1", "/opt/sglang") != token
    holder = state_dir / "holder"
    assert stat.S_IMODE(holder.stat().st_mode) == 0o600
    for text in (token, holder.read_text()):
        assert [p for p in state_dir.glob("ledger.db*") if text.encode() in p.read_bytes()] == []
    assert sorted(p.name for p in state_dir.iterdir() if "holder" in p.name) == ["holder"]


def test_a_holder_file_that_others_can_read_is_refused(ledger: Ledger, state_dir: Path) -> None:
    """A copied state directory with loose modes is noticed before its token is used."""
    ledger.holder_token("gpu1", "/opt/sglang")
    (state_dir / "holder").chmod(0o644)
    with pytest.raises(Refused, match="read by others"):
        ledger.holder_token("gpu1", "/opt/sglang")
