"""A limit that several steps share, and a way to hold any call to it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Deadline:
    """`seconds` from now, on a clock that never goes back."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.seconds = seconds
        self._end = clock() + seconds

    def left_s(self) -> float:
        """Seconds that remain, never below zero."""
        return max(0.0, self._end - self._clock())

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A person's time at a prompt does not count."""
        began = self._clock()
        try:
            yield
        finally:
            self._end += self._clock() - began


def within(seconds: float, call: Callable[[], T]) -> T:
    """The result of `call`, or `TimeoutError`.

    For calls that know no limit of their own (name resolution, an ssh-agent, a channel request). The call goes on in
    a daemon thread when its time is up: the caller closes what it is blocked on.
    """
    outcome: Future[T] = Future()

    def carry_out() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=carry_out, name="orchestrator-call", daemon=True).start()
    return outcome.result(seconds)
