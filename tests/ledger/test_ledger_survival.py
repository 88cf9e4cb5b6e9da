"""What survives: each docstring below is a sentence of docs/ledger.md, word for word."""

from __future__ import annotations

import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.core.records import Verdict
from orchestrator.errors import Bug, Busy, Refused
from orchestrator.ledger import Ledger, database, open_ledger
from tests.ledger.ledger_story import Clock, Story

ROOT = Path(__file__).parents[2]
WRITER = """
import sys, time
from pathlib import Path
from tests.ledger.ledger_story import Story, PROOF
from orchestrator.core.records import Conclusion, Sample, Verdict
from orchestrator.ledger import open_ledger

class Clock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

def say(*words):
    print(*words, flush=True)

ledger = open_ledger(Path(sys.argv[1]), clock=Clock())
story = Story(ledger)
say("run", story.run.id)
story._names = (f"{story.run.id}-{n}" for n in range(10**9))
while True:
    experiment = story.begin()
    say("experiment", experiment.id)
    intent = ledger.intend("apply", {"files": 2}, experiment_id=experiment.id)
    say("event", intent.seq)
    say("event", ledger.settle(intent, "ok").seq)
    say("artifact", ledger.add_artifact("log", f"log of {experiment.id}".encode(), name="log").id)
    say("finding", story.finish(experiment).id)
"""


def start_writer(state_dir: Path) -> subprocess.Popen[str]:

    arguments = [sys.executable, "-c", WRITER, str(state_dir)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def read_lines(child: subprocess.Popen[str], count: int) -> list[str]:
    assert child.stdout is not None
    return [child.stdout.readline().strip() for _ in range(count)]


def kill(child: subprocess.Popen[str]) -> list[str]:
    """What it had still acknowledged when it died."""
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate(timeout=30)
    assert child.returncode == -signal.SIGKILL, "it ended by itself"
    return [line for line in rest.split("\n")[:-1] if line]


@pytest.mark.parametrize("seed", range(5))
def test_acknowledged_rows_survive(state_dir: Path, clock: Clock, seed: int) -> None:
    """What a call has returned is there after a kill -9 at any moment, and `ledger check` finds nothing wrong."""
    child = start_writer(state_dir)
    acknowledged = read_lines(child, random.Random(seed).randint(1, 60)) + kill(child)
    rows = {tuple(line.split()) for line in acknowledged}
    with open_ledger(state_dir, clock=clock) as ledger:
        stored = {("run", str(run.id)) for run in ledger.runs()}
        stored |= {("experiment", str(e.id)) for e in ledger.experiments()}
        stored |= {("event", str(e.seq)) for e in ledger.events(limit=10**6)}
        stored |= {("finding", str(f.id)) for f in ledger.findings()}
        stored |= {("artifact", str(a.id)) for a in ledger.artifacts()}
        assert rows <= stored
        assert [p.what for p in ledger.check()] == []
        assert all(ledger.read_artifact(a.id) for a in ledger.artifacts())


def test_an_intent_survives_undecided(state_dir: Path, clock: Clock) -> None:
    """An intent whose outcome was never written is listed as open by whoever comes next."""
    with open_ledger(state_dir, clock=clock) as ledger:
        story = Story(ledger)
        experiment = story.begin()
        settled = ledger.intend("reap", experiment_id=experiment.id)
        ledger.settle(settled, "ok")
        left = ledger.intend("apply", {"files": 2}, experiment_id=experiment.id)
        elsewhere = ledger.intend("apply", host="gpu2")
    with open_ledger(state_dir, clock=clock) as ledger:
        assert ledger.open_intents("gpu1") == [left]
        assert ledger.open_intents() == [left, elsewhere]
        ledger.settle(left, "reverted")
        assert ledger.open_intents("gpu1") == []


def test_an_intent_is_on_the_disk_before_the_act(ledger: Ledger, state_dir: Path) -> None:
    """When `intend` returns, another process can read the intent."""
    intent = ledger.intend("launch", {"argv": ["x"]}, host="gpu1")
    other = sqlite3.connect(state_dir / "ledger.db")
    assert other.execute("SELECT seq, phase FROM event").fetchall() == [(intent.seq, "launch")]
    other.close()


def test_a_killed_run_can_be_ended(state_dir: Path, clock: Clock) -> None:
    """A run that was killed is found as unfinished, and ending what it left open makes its rows consistent."""
    with open_ledger(state_dir, clock=clock) as ledger:
        story = Story(ledger)
        experiment = story.begin("tree")
        ledger.set_status("camp", "tree", "running")
        launch = ledger.start_launch(ledger.start_arm(experiment.id, "treatment").id, "L1")
    with open_ledger(state_dir, clock=clock) as ledger:
        run = ledger.unfinished_run("camp", "gpu1")
        assert run is not None
        with pytest.raises(Bug, match="still run"):
            ledger.end_run(run.id, "interrupted")
        (ended,) = ledger.abort_open(run.id, "the controller was killed")
        ledger.end_run(run.id, "interrupted")
        assert (ended.verdict, ended.state) == (Verdict.aborted, "aborted")
        assert ledger.launch(launch.id).outcome == "lost"
        assert ledger.todo_row("camp", "tree").status == "open"
        assert ledger.unfinished_run("camp", "gpu1") is None
        assert ledger.check() == []


def test_a_batch_is_all_or_nothing(ledger: Ledger, story: Story) -> None:
    """A batch that fails leaves none of its rows, even when the failure was caught inside."""
    before = len(ledger.events())
    with pytest.raises(KeyError), ledger.batch():
        ledger.note("first")
        raise KeyError("outside of the ledger")
    with pytest.raises(Bug, match="inside this batch failed"), ledger.batch():
        ledger.note("first")
        with pytest.raises(Bug):
            ledger.start_experiment(story.run.id, "unknown", "gpu1", "plain")
        ledger.note("second")
    assert len(ledger.events()) == before
    ledger.note("afterwards")
    assert len(ledger.events()) == before + 1


def test_two_processes_write_at_once(state_dir: Path, clock: Clock) -> None:
    """Two processes that write at the same time wait for one another and lose no row."""
    children = [start_writer(state_dir) for _ in range(2)]
    acknowledged = [line for child in children for line in read_lines(child, 80)]
    acknowledged += [line for child in children for line in kill(child)]
    events = [line for line in acknowledged if line.startswith("event")]
    with open_ledger(state_dir, clock=clock) as ledger:
        stored = {f"event {e.seq}" for e in ledger.events(limit=10**6)}
        assert len(events) == len(set(events))
        assert set(events) <= stored
        assert ledger.check() == []


def test_threads_share_a_ledger(ledger: Ledger, story: Story) -> None:
    """Threads of one process may share a ledger; a batch of one is not mixed with rows of another."""

    def write(name: str) -> None:
        for _ in range(20):
            with ledger.batch():
                ledger.note(name)
                ledger.note(name)

    threads = [threading.Thread(target=write, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    phases = [e.phase for e in ledger.events()]
    assert len(phases) == 160
    assert phases[::2] == phases[1::2]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET phase = 'other' WHERE seq = 1",
        "DELETE FROM event WHERE seq = 2",
        "REPLACE INTO event (seq, at, kind, phase, data) VALUES (1, 'now', 'info', 'other', '{}')",
        "INSERT INTO event (seq, at, kind, phase, data) VALUES (9, 'now', 'info', 'later', '{}')",
        "INSERT INTO event (at, kind, phase, data) VALUES ('now', 'info', 'unnumbered', '{}')",
    ],
)
def test_events_are_append_only(ledger: Ledger, state_dir: Path, statement: str) -> None:
    """An event is never changed, removed, replaced or numbered out of order, whatever program tries."""
    ledger.note("one")
    ledger.note("two")
    other = sqlite3.connect(state_dir / "ledger.db")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        other.execute(statement)
    other.close()
    assert [e.phase for e in ledger.events()] == ["one", "two"]


def test_somebody_who_keeps_writing_makes_us_busy(
    state_dir: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that never ends its transaction makes others `busy`, and what they wrote before stays."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.1)
    with open_ledger(state_dir, clock=clock) as ledger:
        ledger.note("before")
        other = sqlite3.connect(state_dir / "ledger.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy, match="another process"):
            ledger.note("meanwhile")
        assert [e.phase for e in ledger.events()] == ["before"]
        other.execute("ROLLBACK")
        other.close()
        ledger.note("after")
        assert [e.phase for e in ledger.events()] == ["before", "after"]


def test_a_full_disk_refuses_and_loses_nothing(ledger: Ledger) -> None:
    """A full disk refuses the write that does not fit and keeps all others."""
    ledger.note("before")
    pages = int(ledger._database._pragma("page_count"))
    ledger._database._pragma(f"max_page_count = {pages}")
    with pytest.raises(Refused, match="full"):
        ledger.note("too much", {"data": "x" * 200_000})
    ledger._database._pragma(f"max_page_count = {pages + 1000}")
    ledger.note("after")
    assert [e.phase for e in ledger.events()] == ["before", "after"]
    assert ledger.check() == []


def test_a_backup_is_whole_while_others_write(state_dir: Path, clock: Clock, tmp_path: Path) -> None:
    """A backup that is taken while a run writes is a consistent ledger in one file."""
    child = start_writer(state_dir)
    seen = [line for line in read_lines(child, 30) if line.startswith("event")]
    (tmp_path / "copy").mkdir()
    with open_ledger(state_dir, clock=clock) as ledger:
        ledger.backup(tmp_path / "copy" / "ledger.db")
        with pytest.raises(Refused, match="exists"):
            ledger.backup(tmp_path / "copy" / "ledger.db")
    read_lines(child, 5)
    kill(child)
    assert [p.name for p in (tmp_path / "copy").iterdir()] == ["ledger.db"]
    with open_ledger(tmp_path / "copy", clock=clock, create=False) as copy:
        stored = {f"event {e.seq}" for e in copy.events(limit=10**6)}
        assert set(seen) <= stored
        assert {p.what.split(" (")[0] for p in copy.check()} <= {f"artifact {a.id}" for a in copy.artifacts()}


def test_every_sentence_of_the_documentation_is_tested_here() -> None:
    """The list in docs/ledger.md and the docstrings of this file are the same sentences."""
    text = (ROOT / "docs" / "ledger.md").read_text()
    section = text.split("## What survives", 1)[1].split("\n## ", 1)[0]
    items = re.findall(r"^- (.*(?:\n  .*)*)", section, re.MULTILINE)
    sentences = {" ".join(item.split()) for item in items}
    tests = [value for name, value in globals().items() if name.startswith("test_") and "documentation" not in name]
    assert sentences == {" ".join((test.__doc__ or "").split()) for test in tests}
