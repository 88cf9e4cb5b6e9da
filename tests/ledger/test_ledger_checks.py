from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from orchestrator.ledger import Ledger, open_ledger
from tests.ledger.ledger_story import Clock, Story

FREE = "DROP TRIGGER event_is_never_updated; DROP TRIGGER event_is_never_deleted; "
"""What somebody who really wants to change history has to do first."""

PLANTED = [
    (FREE + "DELETE FROM event WHERE seq = 2", "events are missing: where 2 should be, 3 follows"),
    (FREE + "DELETE FROM event WHERE seq = 1", "event 2 is the outcome of 1, which is no earlier intent"),
    (
        "UPDATE launch SET outcome = NULL, ended_at = NULL WHERE id = 1",
        "launch 1 has no outcome, but its experiment #1",
    ),
    ("UPDATE launch SET ended_at = NULL WHERE id = 1", "launch 1 has outcome measured, and its end is None"),
    ("UPDATE launch SET outcome = 'splendid' WHERE id = 1", "launch 1 has an unknown outcome, splendid"),
    ("DELETE FROM sample", "launch 1 was measured, but has no samples"),
    ("UPDATE arm SET ended_at = NULL WHERE id = 1", "arm 1 is open, but its experiment #1 has ended"),
    ("UPDATE arm SET proof = NULL WHERE id = 1", "experiment #1 is done, but its arm 1 is not proved reverted"),
    (
        "UPDATE arm SET proof = json_set(proof, '$.clean', json('false')) WHERE id = 1",
        "experiment #1 is done, but its arm 1 is not proved reverted",
    ),
    ("UPDATE experiment SET state = 'running' WHERE id = 1", "experiment #1 is running, and its end is"),
    (
        "UPDATE experiment SET state = 'running', verdict = NULL, ended_at = NULL WHERE id = 1",
        "finding 1 refers to experiment #1, which has not ended",
    ),
    ("UPDATE experiment SET verdict = NULL WHERE id = 1", "experiment #1 is done, and its verdict is None"),
    ("UPDATE experiment SET verdict = 'fine' WHERE id = 1", "experiment #1 has an unknown verdict, fine"),
    ("UPDATE experiment SET state = 'aborted' WHERE id = 1", "experiment #1 was aborted, and its verdict is improved"),
    (
        "INSERT INTO host (name, state, reason, since) VALUES ('gpu2', 'clean', '', ''); "
        "UPDATE experiment SET host = 'gpu2' WHERE id = 1",
        "experiment #1 has another campaign or host than its run",
    ),
    ("UPDATE run SET state = 'done'", "experiment #2 still runs, but its run #1 has ended (done)"),
    ("UPDATE run SET ended_at = 'now'", "run #1 has a state and an end that disagree"),
    ("UPDATE finding SET verdict = 'no_effect'", "finding 1 says no_effect, its experiment #1 says improved"),
    ("UPDATE finding SET effect = -0.05, low = -0.1", "finding 1: improved with an effect of -0.05"),
    ("UPDATE finding SET effect = NULL", "finding 1: improved has no effect"),
    ("UPDATE finding SET high = 0.045", "finding 1: effect 0.05 lies outside its interval"),
    (
        "UPDATE finding SET verdict = 'crashed'; UPDATE experiment SET verdict = 'crashed' WHERE id = 1",
        "finding 1: crashed carries an effect of 0.05",
    ),
    ("UPDATE finding SET verdict = 'fine'", "finding 1 has an unknown verdict, fine"),
    ("UPDATE finding SET context = 'other'", "finding 1 has another campaign, host, context or hypothesis"),
    ("UPDATE finding SET experiment_id = 77", "row 1 of finding refers to a experiment that does not exist"),
    ("UPDATE artifact SET sha256 = 'abc'", "does not have the bytes it was stored with"),
    ("UPDATE artifact SET path = 'aa/none.gz'", "artifact 1 (aa/none.gz) has no file"),
]


@pytest.fixture
def told(ledger: Ledger, story: Story) -> Story:
    """One experiment done, one running."""
    experiment = story.begin()
    ledger.settle(ledger.intend("apply", experiment_id=experiment.id), "ok")
    ledger.note("third", run_id=story.run.id)
    ledger.add_artifact("log", b"a log", name="log", experiment_id=experiment.id)
    story.finish(experiment)
    story.begin("tree")
    return story


@pytest.mark.parametrize(("statement", "complaint"), PLANTED, ids=[c for _, c in PLANTED])
def test_check_finds_what_was_planted(told: Story, state_dir: Path, statement: str, complaint: str) -> None:
    """A ledger that is well has no complaint; each inconsistency has its own."""
    assert told.ledger.check() == []
    other = sqlite3.connect(state_dir / "ledger.db")
    other.executescript(statement)
    other.close()
    assert any(complaint in problem.what for problem in told.ledger.check()), told.ledger.check()


def test_check_finds_a_damaged_artifact(told: Story, state_dir: Path) -> None:
    """A file that no longer unpacks, or holds other bytes, is named."""
    (path,) = (state_dir / "artifacts").glob("*/*.gz")
    path.write_bytes(path.read_bytes()[:-6])
    assert ["cannot be read" in p.what for p in told.ledger.check()] == [True]
    path.unlink()
    assert ["has no file" in p.what for p in told.ledger.check()] == [True]


def test_check_finds_a_damaged_index(told: Story, state_dir: Path, clock: Clock) -> None:
    """What SQLite itself finds wrong is reported instead of what would be read from it."""
    other = sqlite3.connect(state_dir / "ledger.db")
    other.executescript(
        "PRAGMA writable_schema = ON;"
        "CREATE TEMP TABLE swap AS SELECT name, rootpage FROM sqlite_master"
        " WHERE name IN ('finding_by_campaign', 'finding_by_experiment');"
        "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM swap WHERE swap.name != sqlite_master.name)"
        " WHERE name IN (SELECT name FROM swap);"
    )
    other.close()
    with open_ledger(state_dir, clock=clock) as fresh:
        problems = fresh.check()
    assert problems
    assert all(p.what.startswith("the file is damaged") for p in problems)
