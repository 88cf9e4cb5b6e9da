"""A route without ssh: the same argument vector, as a child of ours."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence

from orchestrator.errors import Unreachable
from orchestrator.hosts.wire import CHUNK, Tail

_END_S = 2.0


class LocalWire:
    """A child in a session of its own: a terminal's Ctrl-C does not reach it, and nothing can ask for a password."""

    def __init__(self, argv: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise Unreachable(
                f"{argv[0]} could not be started here",
                facts={"why": error.strerror or str(error)},
                hint="correct `hops:` or `python:` of the route",
            ) from error
        streams = self._process.stdin, self._process.stdout, self._process.stderr
        self._stdin, self._stdout, stderr = (stream.fileno() for stream in streams if stream)
        self.stderr = Tail(lambda: os.read(stderr, CHUNK))

    def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._stdin, rest) :]

    def recv(self) -> bytes:
        return os.read(self._stdout, CHUNK)

    def finish(self) -> None:
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()

    def exit_code(self, wait_s: float) -> int | None:
        try:
            return self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Ends the child, which wakes whoever reads or writes its pipes. Only the agent ends: the guard has left it."""
        for end in (self._process.terminate, self._process.kill):
            if self.exit_code(0.0) is None:
                end()
                self.exit_code(_END_S)
        with contextlib.suppress(BrokenPipeError):
            self.finish()
