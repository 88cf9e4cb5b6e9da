"""What a launched server says and does, as the agent pushes it: log lines, phases, its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.core.diagnosis import LiveWatch

FATAL_GRACE_S = 0.8
"""A fatal line is waited out this long for the process to end and the log to be complete; some servers linger for a
minute after it."""


class ServerWatch:
    """Collects the events of one launch. Its listener runs on the connection's reader thread.

    `wake` is set when the server ended or its log says that it is lost; waits on the server end then.
    """

    def __init__(self, launch_id: str, on_phase: Callable[[str], None]) -> None:
        self.launch_id = launch_id
        self.lines: list[str] = []
        self.exit: Mapping[str, Any] | None = None
        self.fatal: str | None = None
        self.wake = threading.Event()
        self._live = LiveWatch()
        self._phase: str | None = None
        self._on_phase = on_phase

    def __call__(self, event: str, data: Mapping[str, Any]) -> None:
        if data.get("launch_id") != self.launch_id:
            return
        if event == "log":
            self._read(list(data["lines"]))
        elif event == "exit":
            self.exit = data
            self.wake.set()
        elif event == "rank_exit":
            self._fail(f"{data.get('title', 'a rank')} (pid {data.get('pid')}) ended")

    @property
    def is_lost(self) -> bool:
        return self.exit is not None or self.fatal is not None

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    def _read(self, lines: list[str]) -> None:
        self.lines += lines
        for event in self._live.feed(lines):
            if event.kind == "lost":
                self._fail(event.line)
        if self._live.phase != self._phase:
            self._phase = self._live.phase
            if self._phase is not None:
                self._on_phase(self._phase)

    def _fail(self, sentence: str) -> None:
        self.fatal = self.fatal or sentence
        self.wake.set()
