from __future__ import annotations

import random
from pathlib import Path

import pytest

from orchestrator.core.records import ArtifactRecord, Verdict
from orchestrator.errors import Refused
from orchestrator.ledger import Ledger, Retention
from tests.ledger.ledger_story import PROOF, Clock, Story

EVERYTHING = Retention(log_days=0.0, total_bytes=0)
DAY_S = 86400.0


def files(state_dir: Path) -> list[str]:
    return sorted(str(p.relative_to(state_dir / "artifacts")) for p in (state_dir / "artifacts").glob("*/*"))


def noise(seed: int) -> bytes:
    return random.Random(seed).randbytes(1000)


def test_the_same_bytes_are_stored_once(ledger: Ledger, state_dir: Path) -> None:
    """Two rows, one file; it goes with the last row that needs it."""
    first = ledger.add_artifact("log", b"the same", name="one")
    second = ledger.add_artifact("report", b"the same", name="two")
    assert (first.path, first.size) == (second.path, 8)
    assert files(state_dir) == [first.path]
    assert [a.id for a in ledger.prune(EVERYTHING)] == [first.id]
    assert ledger.read_artifact(second.id) == b"the same"
    with pytest.raises(Refused, match="was pruned"):
        ledger.read_artifact(first.id)
    assert ledger.check() == []


def test_old_logs_go_first(ledger: Ledger, state_dir: Path, clock: Clock) -> None:
    """Logs beyond their age are given up, younger ones and other kinds stay."""
    old = ledger.add_artifact("log", noise(1), name="old")
    report = ledger.add_artifact("report", noise(2), name="report")
    clock.skip(10 * DAY_S)
    young = ledger.add_artifact("log", noise(3), name="young")
    pruned = ledger.prune(Retention(log_days=5))
    assert [(a.id, a.pruned_at is not None) for a in pruned] == [(old.id, True)]
    assert files(state_dir) == sorted([report.path, young.path])
    assert ledger.prune(Retention(log_days=5)) == []


def test_the_oldest_logs_go_until_the_folder_fits(ledger: Ledger) -> None:
    """Beyond the total size the oldest logs go, and no more of them than needed."""
    logs = [ledger.add_artifact("log", noise(n), name=str(n)) for n in range(5)]
    total = sum(a.stored_size for a in logs)
    assert [a.id for a in ledger.prune(Retention(total_bytes=total))] == []
    assert [a.id for a in ledger.prune(Retention(total_bytes=total - 1500))] == [logs[0].id, logs[1].id]


def images(ledger: Ledger, experiment_id: int) -> list[ArtifactRecord]:
    return [
        ledger.add_artifact(kind, noise(n), name="communicator.py", experiment_id=experiment_id)
        for n, kind in enumerate(("found", "patched"))
    ]


def test_preimages_stay_until_their_revert_is_proved(ledger: Ledger, story: Story) -> None:
    """While an experiment runs, lacks a clean proof or has an undecided act, its pre-images survive every rule."""
    experiment = story.begin()
    kept = images(ledger, experiment.id)
    assert ledger.prune(EVERYTHING) == []
    arm = ledger.start_arm(experiment.id, "treatment")
    intent = ledger.intend("revert", experiment_id=experiment.id)
    ledger.end_experiment(experiment.id, "quarantined", None)
    assert ledger.prune(EVERYTHING) == []
    ledger.settle(intent, "dirty")
    assert ledger.prune(EVERYTHING) == []
    dirty = PROOF.model_copy(update={"clean": False})
    ledger.prove_reverted(experiment.id, dirty)
    assert ledger.prune(EVERYTHING) == []
    again = ledger.intend("recover", experiment_id=experiment.id)
    ledger.prove_reverted(experiment.id, PROOF)
    assert ledger.prune(EVERYTHING) == []
    ledger.settle(again, "clean")
    assert [a.id for a in ledger.prune(EVERYTHING)] == [a.id for a in kept]
    assert ledger.experiment(experiment.id).arms[0].id == arm.id
    assert ledger.experiment(experiment.id).is_proved_reverted


def test_preimages_of_no_experiment_are_never_given_up(ledger: Ledger) -> None:
    """A pre-image whose revert nobody can prove stays for ever."""
    ledger.add_artifact("found", b"x", name="x")
    assert ledger.prune(EVERYTHING) == []


def test_preimages_go_after_the_logs(ledger: Ledger, story: Story) -> None:
    """Proved pre-images are given up only when the logs alone do not make enough room."""
    experiment = story.begin()
    found, patched = images(ledger, experiment.id)
    story.finish(experiment)
    log = ledger.add_artifact("log", noise(9), name="log")
    total = found.stored_size + patched.stored_size + log.stored_size
    assert [a.id for a in ledger.prune(Retention(total_bytes=total - 1))] == [log.id]
    assert [a.id for a in ledger.prune(Retention(total_bytes=patched.stored_size))] == [found.id]


def test_what_a_crash_left_is_swept(ledger: Ledger, state_dir: Path) -> None:
    """A file without a row, whole or partial, is removed by the next prune and harms nothing before."""
    kept = ledger.add_artifact("report", b"kept", name="kept")
    (state_dir / "artifacts" / "00").mkdir()
    (state_dir / "artifacts" / "00" / "00ff.gz").write_bytes(b"no row")
    (state_dir / "artifacts" / "00" / "00ee.part").write_bytes(b"half")
    assert ledger.check() == []
    ledger.prune()
    assert files(state_dir) == [kept.path]


def test_damage_is_refused_on_reading(ledger: Ledger, state_dir: Path) -> None:
    """Bytes that are not those that were stored are never handed out."""
    artifact = ledger.add_artifact("found", b"original", name="x.py")
    other = ledger.add_artifact("found", b"something else", name="y.py")
    folder = state_dir / "artifacts"
    (folder / artifact.path).write_bytes((folder / other.path).read_bytes())
    with pytest.raises(Refused, match="bytes it was stored with"):
        ledger.read_artifact(artifact.id)
    (folder / artifact.path).unlink()
    with pytest.raises(Refused, match="has no file"):
        ledger.read_artifact(artifact.id)


def test_artifacts_are_found_by_what_they_belong_to(ledger: Ledger, story: Story) -> None:
    """By experiment or by launch, oldest first."""
    experiment = story.begin()
    arm = ledger.start_arm(experiment.id, "baseline")
    launch = story.launch(arm.id)
    log = ledger.add_artifact("log", b"1", name="log", experiment_id=experiment.id, launch_id=launch)
    other = ledger.add_artifact("report", b"2", name="report", experiment_id=experiment.id)
    assert ledger.artifacts(experiment_id=experiment.id) == [log, other]
    assert ledger.artifacts(launch_id=launch) == [log]
    ledger.end_arm(arm.id)
    ledger.end_experiment(experiment.id, "done", Verdict.inconclusive)
    assert ledger.view("camp").artifacts(experiment.id) == [log, other]
