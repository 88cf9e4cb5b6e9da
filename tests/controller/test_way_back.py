"""The way back goes on where the ledger cannot be written."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.controller.book import ArmBook, Book
from orchestrator.controller.clock import SystemClock
from orchestrator.controller.history import History
from orchestrator.errors import Refused
from orchestrator.ledger import open_ledger


@contextmanager
def _no_file_grows() -> Iterator[None]:
    """The kernel refuses every write past the present ends of files, as a full disk does."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_the_act_is_carried_out_and_the_loss_told_afterwards(tmp_path: Path) -> None:
    """What puts the host back runs between an intent and an outcome that could not be written."""
    clock = SystemClock()
    acts: list[str] = []
    with open_ledger(tmp_path, clock=clock, mask=lambda value: value) as ledger:
        run = ledger.start_run("c", "0" * 64, "gpu1", "campaign: c\n")
        experiment = ledger.start_experiment(run.id, None, "gpu1", "plain")
        history = History(tmp_path, clock=clock)
        book = Book(ledger, history, run_id=run.id, host="gpu1", tree="/t", name_prefix="orc-1")
        arm = ArmBook(book, experiment, ledger.start_arm(experiment.id, "baseline", changes=[]))
        with _no_file_grows():
            with pytest.raises(Refused), arm.intent("launch", {}):
                acts.append("launch")
            with arm.way_back("stop", {}) as settle:
                acts.append("stop")
                settle({"survivors": 0})
            arm.catch_up()
        book.close()
        assert acts == ["stop"]
        assert isinstance(arm._unwritten, Refused)
