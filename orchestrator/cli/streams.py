"""Streams that outlast their reader: a run is not given up because nobody watches it any more.

The terminal is closed, the pipe into a pager ends, the disk of a log is full: then a line of narration cannot be
written. Were that an error, it would come up in the middle of a change, and leave the host as it is then. What
narration says is in the ledger too. Data is another matter: its loss is told.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, TextIO

from orchestrator.errors import Refused


class ReaderLeft(Exception):
    """Nobody reads standard output any more, as after `| head`."""


class Lasting:
    """A text stream that drops what it cannot write, and everything after it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._give_up()
        except RuntimeError:  # a signal handler speaks while the interrupted code was speaking
            os.write(self._stream.fileno(), text.encode("utf-8", "replace"))
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._give_up()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a stream has
        return getattr(self._stream, name)

    def _give_up(self) -> None:
        """The descriptor leads nowhere from now on, so that Python's own last flush succeeds as well."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, self._stream.fileno())
        finally:
            os.close(nowhere)


class Data(Lasting):
    """Standard output: what cannot be written is `Refused`. A reader that left has read enough (`| head`)."""

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise self._loss(error) from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise self._loss(error) from error

    def _loss(self, error: OSError) -> type[Exception] | Exception:
        self._give_up()
        if error.errno == errno.EPIPE:
            return ReaderLeft
        return Refused(f"standard output cannot be written: {error.strerror}", hint="what was done is in the ledger")


def secure_streams() -> None:
    """Standard output and error of this process: there, and able to write any character."""
    sys.stdout = Data(_open_stream(sys.stdout))
    sys.stderr = Lasting(_open_stream(sys.stderr))


def _open_stream(stream: TextIO | None) -> TextIO:
    """A closed one is replaced; one of an old locale writes escapes for what it lacks instead of failing."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - it lives as long as the process
    reconfigure = getattr(stream, "reconfigure", None)
    if callable(reconfigure):
        reconfigure(errors="backslashreplace")
    return stream
