"""A small client of the agent for tests: a real subprocess under `python3 -I -S`, frames on its pipes."""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
START = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from orchestrator.agent.main import run_agent; "
    "sys.exit(run_agent(0, 1))"
)
PATIENCE_S = 20.0
PYTHON = os.environ.get("AGENT_PYTHON", sys.executable)
"""The agent's interpreter: set it to try the whole suite with an older one."""


class AgentReply(Exception):
    """The agent's error, as it answered it."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['kind']}: {error['what']} {error['facts']}")
        self.kind: str = error["kind"]
        self.what: str = error["what"]
        self.facts: dict[str, str] = error["facts"]


class AgentClient:
    """`call` waits for the reply; `events` are kept in order of arrival and can be awaited."""

    def __init__(self, home: Path, python: str = PYTHON) -> None:
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            [python, "-I", "-S", "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.stderr = bytearray()
        self._numbers = itertools.count(1)
        self._replies: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._drain = threading.Thread(target=self._drain_stderr, daemon=True)
        self._reader.start()
        self._drain.start()

    # -- requests --------------------------------------------------------------------------------------------------

    def send(self, do: str, **given: Any) -> int:
        """Send without waiting; the number to `receive` with."""
        number = next(self._numbers)
        self.send_raw(pack({"id": number, "do": do, "with": given}))
        return number

    def send_raw(self, data: bytes) -> None:
        self._stdin.write(data)
        self._stdin.flush()

    def receive(self, number: int, timeout_s: float = PATIENCE_S) -> Any:
        with self._changed:
            there = self._changed.wait_for(lambda: number in self._replies or self._ended, timeout_s)
            assert there, f"no reply to {number} in {timeout_s} s; stderr: {self.stderr.decode()}"
            assert number in self._replies, f"the agent ended; stderr: {self.stderr.decode()}"
            reply = self._replies.pop(number)
        if "error" in reply:
            raise AgentReply(reply["error"])
        return reply["ok"]

    def call(self, do: str, **given: Any) -> Any:
        return self.receive(self.send(do, **given))

    # -- events ----------------------------------------------------------------------------------------------------

    def named(self, event: str) -> list[dict[str, Any]]:
        with self._changed:
            return [data for name, data in self.events if name == event]

    def wait_event(self, event: str, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        with self._changed:
            there = self._changed.wait_for(lambda: any(name == event for name, _ in self.events), timeout_s)
            assert there, f"no {event}; got {[name for name, _ in self.events]}; stderr: {self.stderr.decode()}"
            return next(data for name, data in self.events if name == event)

    def lines(self) -> list[str]:
        return [line for data in self.named("log") for line in data["lines"]]

    def wait_line(self, wanted: str, timeout_s: float = PATIENCE_S) -> None:
        with self._changed:
            there = self._changed.wait_for(lambda: self._has_line(wanted), timeout_s)
        assert there, f"{wanted!r} is not in {self.lines()}; stderr: {self.stderr.decode()}"

    def _has_line(self, wanted: str) -> bool:
        return any(wanted in line for name, data in self.events if name == "log" for line in data["lines"])

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> int:
        """EOF on stdin, and the exit code."""
        if not self._stdin.closed:
            self._stdin.close()
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self._drain.join(PATIENCE_S)
        self._stdout.close()
        assert self.process.stderr
        self.process.stderr.close()
        return code

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def _read(self) -> None:
        while (message := self._frame()) is not None:
            with self._changed:
                if message["id"] is None:
                    self.events.append((message["event"], message["data"]))
                else:
                    self._replies[message["id"]] = message
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _frame(self) -> dict[str, Any] | None:
        head = self._stdout.read(4)
        if len(head) < 4:
            return None
        body = self._stdout.read(struct.unpack(">I", head)[0])
        result: dict[str, Any] = json.loads(body)
        return result

    def _drain_stderr(self) -> None:
        assert self.process.stderr
        while block := self.process.stderr.read1(65536):  # type: ignore[attr-defined]
            self.stderr += block


def pack(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return struct.pack(">I", len(body)) + body


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Poll a condition that no descriptor tells of, with a deadline; its first true value."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        pause.wait(0.01)
    return value


def is_running(pid: int) -> bool:
    """Alive, and not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
