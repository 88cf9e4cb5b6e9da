"""The agent as a real process, driven frame by frame by one thread with a deadline on every wait."""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orchestrator

PACKAGE = Path(orchestrator.__file__).resolve().parents[1]
"""Where the agent's code is imported from: another copy of it is tested by importing that one."""
PATIENCE_S = 20.0
_LOOK_S = 0.05
_RUN = "from orchestrator.agent.main import run_agent; sys.exit(run_agent(0, 1))"


class AgentError(Exception):
    """The agent's answer, when it is an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['kind']}: {error['what']} {error['facts']}")
        self.kind: str = error["kind"]
        self.what: str = error["what"]
        self.facts: dict[str, str] = error["facts"]


class AgentEnded(Exception):
    """The stream ended where an answer was due."""


class TooLate(Exception):
    """A wait that did not end within its deadline: invariant 12."""


class Agent:
    """`prefix` is an argument vector that runs the agent, `shim` Python that runs in it before the agent starts."""

    def __init__(self, home: Path, *, prefix: Sequence[str] = (), shim: str = "") -> None:
        code = f"import sys; sys.path.insert(0, {str(PACKAGE)!r})\n{shim}\n{_RUN}"
        self.stderr_path = home / "agent.err"
        with self.stderr_path.open("ab") as errors:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-I", "-S", "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"},
                bufsize=0,
            )
        assert self.process.stdin and self.process.stdout
        self._in, self._out = self.process.stdin, self.process.stdout
        self._data = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self.is_given_up: Callable[[], bool] = lambda: False
        """Asked while waiting for an answer: true ends the wait as if it were too late."""

    @property
    def pid(self) -> int:
        return self.process.pid

    # -- frames --------------------------------------------------------------------------------------------------

    def frame(self, do: str, given: dict[str, Any] | None = None) -> bytes:
        """The bytes of a request, with the number that `answer` waits for."""
        self._number += 1
        body = json.dumps({"id": self._number, "do": do, "with": given or {}}).encode()
        return struct.pack(">I", len(body)) + body

    def send(self, data: bytes) -> None:
        try:
            self._in.write(data)
        except (BrokenPipeError, ValueError) as error:
            raise AgentEnded(f"nobody reads any more; {self.last_words()}") from error

    def answer(self, timeout_s: float = PATIENCE_S) -> Any:
        """The reply to the last request; events before it are kept."""
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._take(deadline)
            if message.get("id") is None:
                self.events.append(message)
            elif message["id"] == self._number:
                if "error" in message:
                    raise AgentError(message["error"])
                return message["ok"]

    def call(self, do: str, timeout_s: float = PATIENCE_S, **given: Any) -> Any:
        self.send(self.frame(do, given))
        return self.answer(timeout_s)

    def read_some(self, size: int, timeout_s: float = PATIENCE_S) -> bytes:
        """The first bytes of an answer, for a wire that is cut inside it."""
        if not select.select([self._out], [], [], timeout_s)[0]:
            raise TooLate("no byte of an answer")
        return os.read(self._out.fileno(), size)

    def wait_log(self, wanted: str, timeout_s: float = PATIENCE_S, *, may_end: bool = False) -> None:
        """Until the server's log shows a line that holds `wanted`. `may_end`: a daemon's main process ends first."""
        deadline = time.monotonic() + timeout_s
        while not any(wanted in line for event in self.events for line in event["data"].get("lines", ())):
            message = self._take(deadline)
            if message.get("id") is None:
                self.events.append(message)
            if message.get("event") == "exit" and not may_end:
                raise AgentEnded(f"the server ended before it said {wanted!r}: {self.events}")

    def _take(self, deadline: float) -> dict[str, Any]:
        while len(self._data) < 4 or len(self._data) < 4 + struct.unpack(">I", self._data[:4])[0]:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self.is_given_up():
                raise TooLate(f"no answer of the agent; {self.last_words()}")
            if not select.select([self._out], [], [], min(left_s, _LOOK_S))[0]:
                continue
            block = os.read(self._out.fileno(), 1 << 16)
            if not block:
                raise AgentEnded(self.last_words())
            self._data += block
        size = 4 + struct.unpack(">I", self._data[:4])[0]
        message: dict[str, Any] = json.loads(self._data[4:size])
        self._data = self._data[size:]
        return message

    def last_words(self) -> str:
        return self.stderr_path.read_text(errors="replace")[-600:]

    # -- the end -------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """EOF in both directions: what a connection that is closed properly does."""
        for stream in (self._in, self._out):
            if not stream.closed:
                stream.close()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.wait()
        self.cut()

    def leave(self) -> None:
        """EOF, and its end; killed when that does not come."""
        self.cut()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise TooLate("the agent did not end at EOF") from error

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TooLate("the agent did not end") from error

    def line_thread(self) -> int:
        """The thread that carries out what changes state: after the first answer the only one beside the first."""
        self.call("hello")
        others = [int(name) for name in os.listdir(f"/proc/{self.pid}/task") if int(name) != self.pid]
        assert len(others) == 1, others
        return others[0]


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Polls what no descriptor tells of; its first true value."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TooLate(f"not within {timeout_s} s: {what}")
        select.select([], [], [], 0.003)
    return value


def pause(seconds: float) -> None:
    """Lets a deadline pass of which nothing else tells."""
    select.select([], [], [], seconds)


def processes_of(marker: str) -> dict[int, str]:
    """pid → command line of living processes whose environment or command line holds `marker`."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
            environ = Path(f"/proc/{name}/environ").read_bytes()
            state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # gone meanwhile
            continue
        if marker.encode() in words + b"\0" + environ and state not in "ZX":
            found[int(name)] = words.replace(b"\0", b" ").decode(errors="replace")[:200]
    return found
