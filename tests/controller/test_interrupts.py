"""Signals stop a run at safe moments and nowhere else."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from orchestrator.controller.interrupts import Interrupts
from orchestrator.errors import Interrupted


def test_a_signal_breaks_a_cancellable_wait() -> None:
    """A wait for a server ends at once on Ctrl-C."""
    said: list[str] = []
    with Interrupts(said.append).installed() as interrupts, pytest.raises(Interrupted), interrupts.cancellable():
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(5.0)
    assert "stopping" in said[0]


def test_a_signal_while_something_changes_waits_for_the_next_step() -> None:
    """Outside of a cancellable wait the signal only sets a flag, which the next check turns into the stop."""
    with Interrupts(lambda _: None).installed() as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.requested
        with pytest.raises(Interrupted):
            interrupts.check()


def test_a_second_signal_says_what_is_pending_and_abandons_nothing() -> None:
    """During the retreat a further Ctrl-C is answered, not obeyed."""
    said: list[str] = []
    with Interrupts(said.append).installed() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        with interrupts.retreating("revert, verify on gpu1"):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert "revert, verify on gpu1" in said[1]
    assert "already stopping" in said[2]


def test_the_handlers_found_are_put_back() -> None:
    """A run leaves the process's own signal handling as it was."""
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(lambda _: None).installed():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
