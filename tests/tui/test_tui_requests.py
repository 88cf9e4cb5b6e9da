"""Requests through the ledger where no run lives, and the file of one that does."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.controller.narration import Silent
from orchestrator.controller.requests import Wish, ask, living_run, put_first, rank_again
from orchestrator.errors import Bug, Refused, UsageError
from orchestrator.ledger import open_ledger
from orchestrator.ledger.live import LiveReader, LiveWriter, is_alive, live_path
from orchestrator.ledger.watching import Watch
from tests.tui.stage import SteppedClock


def test_a_read_only_host_refuses_whatever_would_change_it(state: Path) -> None:
    """`write: false` wins, and nothing is written down."""
    for action in ("revert", "reap", "release"):
        with pytest.raises(Refused, match="write: false"):
            ask(Wish(action, "gpu3", state), Silent())
    watch = Watch(state)
    assert [r.action for r in watch.requests()] == ["look"]
    watch.close()


def test_what_needs_a_run_is_refused_where_none_lives(state: Path) -> None:
    """Stopping nothing is told, not done."""
    with pytest.raises(Refused, match="no run lives on gpu2"):
        ask(Wish("stop", "gpu2", state), Silent())


@pytest.mark.parametrize(("action", "host"), [("dance", "gpu1"), ("stop", "gpu9"), ("next", "gpu1")])
def test_a_wish_that_makes_no_sense_is_a_usage_error(state: Path, action: str, host: str) -> None:
    """Unknown action, unknown host, no hypothesis named."""
    with pytest.raises(UsageError):
        ask(Wish(action, host, state), Silent())


def test_a_request_is_taken_once_and_answered_once(state: Path, clock: SteppedClock) -> None:
    """By the run it is for; the trail has both the asking and the answer."""
    with open_ledger(state, clock=clock) as ledger:
        asked = ledger.ask("pause", "gpu1", asked_by="ann", run_id=1)
        assert ledger.take_request("gpu1", pid=7, run_id=2) is None
        taken = ledger.take_request("gpu1", pid=7, run_id=1)
        assert taken is not None
        assert (taken.id, taken.state, taken.taken_by) == (asked.id, "taken", 7)
        assert ledger.take_request("gpu1", pid=8, run_id=1) is None
        assert ledger.answer_request(asked.id, "done", "waits").answer == "waits"
        with pytest.raises(Bug):
            ledger.answer_request(asked.id, "done", "again")
        said = [e.data for e in ledger.events(phase="request") if e.data["request"] == asked.id]
        assert [(d.get("by"), d.get("state")) for d in said] == [("ann", None), (None, "done")]
        assert ledger.check() == []


def test_what_waited_for_a_run_that_ended_is_refused(state: Path, clock: SteppedClock) -> None:
    """Nobody else would carry it out."""
    with open_ledger(state, clock=clock) as ledger:
        asked = ledger.ask("stop", "gpu1", asked_by="ann", run_id=1)
        ledger.refuse_requests_of(1, "the run has ended")
        assert (ledger.request(asked.id).state, ledger.request(asked.id).answer) == ("refused", "the run has ended")


def test_a_run_is_alive_while_its_process_holds_the_live_file(tmp_path: Path, clock: SteppedClock) -> None:
    """The kernel lets go of it however the process ends; the file itself stays."""
    writer = LiveWriter(tmp_path, 3, clock.now, lambda text: text)
    assert is_alive(tmp_path, 3)
    assert not is_alive(tmp_path, 4)
    writer.close()
    assert not is_alive(tmp_path, 3)
    assert live_path(tmp_path, 3).is_file()


def test_living_run_is_the_one_whose_file_is_held(state: Path, clock: SteppedClock) -> None:
    """As the fixture's run does."""
    with open_ledger(state, clock=clock) as ledger:
        assert living_run(ledger, "gpu1") == 1
        assert living_run(ledger, "gpu2") is None


def test_a_reader_reads_on_from_where_it_was_and_begins_anew_with_the_file(tmp_path: Path, clock: SteppedClock) -> None:
    """Lines come once, whole, masked, and on one line each; also after the file was begun anew."""
    writer = LiveWriter(tmp_path, 1, clock.now, lambda text: text.replace("s3cret", "***"))
    reader = LiveReader(tmp_path, 1)
    writer.write("log", "a\nb", "token s3cret")
    assert [line.text for line in reader.read()] == ["a⏎b", "token ***"]
    assert reader.read() == []
    with live_path(tmp_path, 1).open("ab") as file:
        file.write(b"log\t1.0\tha")
        file.flush()
        assert reader.read() == []
        file.write(b"lf\n")
    assert [line.text for line in reader.read()] == ["half"]
    live_path(tmp_path, 1).write_bytes(b"log\t2.0\tx\n")
    assert [line.text for line in reader.read()] == ["x"]
    writer.close()


def test_a_row_that_is_put_first_leads_the_todo_and_stays_there_in_the_next_ranking(
    state: Path, clock: SteppedClock
) -> None:
    """It gets a pin above every rank, which a run keeps when it ranks anew before its next experiment."""
    with open_ledger(state, clock=clock) as ledger:
        answer = put_first(ledger, "first-try", "fewer-channels")
        assert answer == "fewer-channels is first of what is left of first-try"
        rank_again(ledger, "first-try")
        first = ledger.todo("first-try")[0]
        assert first.id == "fewer-channels"
        assert first.pin is not None


def test_watching_changes_nothing(state: Path) -> None:
    """A connection of `Watch` cannot write."""
    watch = Watch(state)
    with pytest.raises(Refused, match="readonly"):
        watch._rows("DELETE FROM host")
    watch.close()
