"""A pair of byte streams to the far end of a route, and what it said on stderr."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

CHUNK = 1 << 16
_TAIL_BYTES = 16384


class Tail:
    """The end of a stream that is always read: `drain` runs in a thread until the stream ends."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._kept = b""
        self._lock = threading.Lock()
        self._read = read
        self._thread = threading.Thread(target=self._drain, name="orchestrator-stderr", daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while chunk := self._read():
            with self._lock:
                self._kept = (self._kept + chunk)[-_TAIL_BYTES:]

    def text(self, wait_s: float = 0.0) -> str:
        """What is kept. Waits up to `wait_s` for the stream to end, so that last words are in it."""
        if wait_s:
            self._thread.join(wait_s)
        with self._lock:
            return self._kept.decode("utf-8", "replace")


class Wire(Protocol):
    """One process at the end of a route. `send` and `recv` block; `close` from another thread ends both."""

    stderr: Tail

    def send(self, data: bytes) -> None:
        """All of `data`, or `OSError`."""
        ...

    def recv(self) -> bytes:
        """Some bytes; empty at the end of the stream, however it ended."""
        ...

    def finish(self) -> None:
        """End of input: nothing more will be sent."""
        ...

    def exit_code(self, wait_s: float) -> int | None:
        """How the process ended; None when it did not within `wait_s`, or when nobody said."""
        ...

    def close(self) -> None:
        """Drop everything, now. May be called more than once."""
        ...
