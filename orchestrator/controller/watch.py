"""What a launched server says and does, as the agent pushes it: log lines, phases, its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.core.diagnosis import Diagnosis, LiveWatch

FATAL_GRACE_S = 0.8
"""A fatal line is waited out this long for the process to end and the log to be complete; some servers linger for a
minute after it."""


_VICTIMS = frozenset({"peer_died", "worker_died_silently"})
"""What the others say of a rank that is gone."""
_COMPUTES = ("scheduler", "Worker")
"""In the titles of processes that take part in collectives; only the loss of one of them breaks a collective."""


class ServerWatch:
    """Collects the events of one launch. Its listener runs on the connection's reader thread.

    `wake` is set when the server ended or its log says that it is lost; waits on the server end then. `on_lost` hears
    the first sign of a loss at once, before its cause is known; nothing is told any more once `is_ending` is set.
    """

    def __init__(
        self, launch_id: str, on_phase: Callable[[str], None], on_lost: Callable[[str], None] = lambda _: None
    ) -> None:
        self.launch_id = launch_id
        self.lines: list[str] = []
        self._evidence: int | None = None
        self.exit: Mapping[str, Any] | None = None
        self.fatal: str | None = None
        self.ended_ranks: list[tuple[str, int]] = []
        self.wake = threading.Event()
        self.is_ending = False
        self._lost = threading.Event()
        self._live = LiveWatch()
        self._phase: str | None = None
        self._on_phase = on_phase
        self._on_lost = on_lost

    def __call__(self, event: str, data: Mapping[str, Any]) -> None:
        if data.get("launch_id") != self.launch_id:
            return
        if event == "log":
            self._read(list(data["lines"]))
        elif event == "exit":
            self.exit = data
            self._lose(_ended(data))
        elif event == "rank_exit":
            title, pid = str(data["title"]), int(data["pid"])
            self.ended_ranks.append((title, pid))
            self._fail(f"{title} (pid {pid}) ended")

    @property
    def is_lost(self) -> bool:
        return self.exit is not None or self.fatal is not None

    @property
    def phase(self) -> str | None:
        """How far the start got, as the log says."""
        return self._phase

    @property
    def text(self) -> str:
        """The log as evidence: up to `end_record`."""
        return "".join(f"{line}\n" for line in self.lines[: self._evidence])

    def end_record(self) -> None:
        """What is logged from now on follows from our own stop, and says nothing of a cause."""
        self._evidence = len(self.lines)

    def cause_of(self, diagnosis: Diagnosis) -> str | None:
        """Why the server failed, None where nothing shows it. Of a rank that ended without a word the log holds only
        the complaints of those that talked to it."""
        if diagnosis.outcome != "failed" or not diagnosis.cause_line:
            return None
        silent = self._silent_rank(diagnosis) if diagnosis.category in _VICTIMS and self.ended_ranks else None
        return f"{silent} ended without a word; then: {diagnosis.cause_line}" if silent else diagnosis.cause_line

    def _silent_rank(self, diagnosis: Diagnosis) -> str | None:
        """The first that ended. All end within a tenth of a second once one is lost, so where a collective broke it is
        the first that takes part in collectives and is not the one that complains."""
        ended = self.ended_ranks
        if diagnosis.category == "peer_died":
            ended = [one for one in ended if any(word in one[0] for word in _COMPUTES)]
            ended = [one for one in ended if not (diagnosis.rank and one[0].endswith(diagnosis.rank))]
            if not ended:
                return f"a peer of {diagnosis.rank}" if diagnosis.rank else None
        return f"{ended[0][0]} (pid {ended[0][1]})"

    def await_loss(self, timeout_s: float) -> bool:
        """Whether the server is lost now or within `timeout_s`."""
        return self._lost.wait(timeout_s)

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
        self._lose(sentence)

    def _lose(self, sentence: str) -> None:
        is_first = not self._lost.is_set()
        self._lost.set()
        self.wake.set()
        if is_first and not self.is_ending:
            self._on_lost(sentence)


def _ended(data: Mapping[str, Any]) -> str:
    how = f"signal {data['signal']}" if data.get("signal") else f"exit code {data.get('exit_code')}"
    return f"the server ended with {how}"
