"""Ctrl-C, SIGTERM and SIGHUP: the run stops at the next safe moment, and the retreat runs to its end.

A signal never interrupts code that is changing something. It sets a flag, which is looked at between steps, and breaks
only the waits that are marked `cancellable`: for a server to load, for a benchmark, for a connection. A second
signal says what is still pending.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from orchestrator.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PAUSE_LOOK_S = 0.2


class _Cancelled(KeyboardInterrupt):
    """Leaves a cancellable wait; turned into `Interrupted` at its edge."""


class Interrupts:
    """One object a run. `say` prints a line for a person; it is called from the signal handler."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._requested = False
        self._waiting = False
        self._pending = ""
        self._is_installed = False
        self._may_go_on = threading.Event()
        self._may_go_on.set()

    @property
    def requested(self) -> bool:
        return self._requested

    @contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Handle the signals for as long as this lasts. Outside the main thread the flag alone works."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        self._is_installed = True
        try:
            yield self
        finally:
            self._is_installed = False
            for number, handler in before.items():
                signal.signal(number, handler)

    def request(self) -> None:
        """What a signal does, for callers that have none."""
        self._requested = True

    def stop(self) -> None:
        """What a signal does, from any thread: it also ends a wait that may be ended."""
        main = threading.main_thread().ident
        if self._is_installed and main is not None:
            signal.pthread_kill(main, signal.SIGTERM)
        else:
            self._requested = True

    def pause(self) -> None:
        """The next `check` waits until `go_on` or a request to stop; of any thread."""
        self._may_go_on.clear()

    def go_on(self) -> None:
        self._may_go_on.set()

    @property
    def is_paused(self) -> bool:
        return not self._may_go_on.is_set()

    def check(self) -> None:
        """Between two steps: waits while paused, and raises `Interrupted` when somebody asked to stop."""
        while not self._requested and not self._may_go_on.wait(_PAUSE_LOOK_S):
            pass  # a signal's handler runs between two looks
        self._refuse_if_requested()

    def _refuse_if_requested(self) -> None:
        if self._requested:
            raise Interrupted("stopped on request")

    @contextmanager
    def cancellable(self) -> Iterator[None]:
        """A wait that changes nothing: a signal ends it with `Interrupted`."""
        self._refuse_if_requested()
        try:
            self._waiting = True
            self._refuse_if_requested()
            yield
        except _Cancelled as signalled:
            raise Interrupted("stopped on request") from signalled
        finally:
            self._waiting = False

    @contextmanager
    def retreating(self, pending: str) -> Iterator[None]:
        """Nothing in here is interrupted; a further signal is answered with what is still pending."""
        before, self._pending = self._pending, pending
        waiting, self._waiting = self._waiting, False
        try:
            yield
        finally:
            self._pending, self._waiting = before, waiting

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._requested:
            still = f"still pending: {self._pending}" if self._pending else "already stopping at the next safe moment"
            self._say(f"{still}; this is not abandoned")
            return
        self._requested = True
        self._say(f"{signal.Signals(number).name}: stopping; the host is put back first")
        if self._waiting:
            self._waiting = False
            raise _Cancelled
