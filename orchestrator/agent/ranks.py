"""Watches the ends of a server's processes: the main one, and its ranks, which may die first and be noticed late."""

from __future__ import annotations

import os
import select
import threading
from typing import Any, Dict, Iterable, List, Mapping, Optional, Protocol

from orchestrator.agent import processes
from orchestrator.agent.ending import Launched
from orchestrator.agent.processes import Grip, Identity
from orchestrator.agent.runs import Run

TITLES = ("sglang::", "VLLM::")
STARTING_S = 0.5
READY_S = 5.0
_CODE_S = 0.15
"""How long the guard's word on the exit code is waited for: it comes at once or, when the guard is dead, never."""


def read_ranks(pids: Iterable[int], names: List[str], launch_id: str) -> List[Dict[str, Any]]:
    """`{pid, title, environ: {name: value or null} or null}` of processes with a rank's title. An environment that has
    lost our launch's name was overwritten by the title: null, since what is missing there proves nothing."""
    ranks = []
    for pid in sorted(pids):
        title = processes.title_of(pid)
        if title.startswith(TITLES):
            environ = processes.read_environ(pid) or {}
            is_whole = environ.get(processes.RUN_ID) == launch_id
            told = {name: environ.get(name) for name in names} if is_whole else None
            ranks.append({"pid": pid, "title": title.split()[0], "environ": told})
    return ranks


class Watched(Protocol):
    """The launch whose processes are watched. `ended` is set once its end is told."""

    boot: str
    launched: Launched
    run: Run
    ended: threading.Event

    def look(self) -> Mapping[Identity, processes.Stat]:
        """Living processes of the launch."""

    def emit_rank_exit(self, pid: int, title: str) -> None:
        """A rank has ended."""

    def take_exit(self, end: Mapping[str, Any]) -> None:
        """The main process has ended."""


class RankWatch:
    """A thread that holds a pidfd of each. New ranks are looked for every `STARTING_S`, later every `READY_S`."""

    def __init__(self, server: Watched) -> None:
        self._server = server
        self._every_s = STARTING_S
        self._wake_read, self._wake_write = os.pipe()
        self._closing = False
        self.is_quiet = False
        self._grips: Dict[Identity, Grip] = {}
        self._titles: Dict[Identity, str] = {}
        self._thread = threading.Thread(target=self._watch, name="ranks", daemon=True)
        self._thread.start()

    def relax(self) -> None:
        self._every_s = READY_S

    def close(self) -> None:
        """No more events from here."""
        if self._closing:
            return
        self._closing = True
        os.write(self._wake_write, b".")
        self._thread.join()
        for grip in self._grips.values():
            grip.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _watch(self) -> None:
        main = self._server.launched.main
        assert main is not None
        grip = Grip.take(main, self._server.boot)
        if grip is None:
            self._main_ended()
            return
        self._grips[main] = grip
        while not self._closing:
            if not self.is_quiet:
                self._look_for_ranks()
            self._wait()
            if self._closing:
                return
            if grip.has_ended():
                self._main_ended()
                return
            for identity in [i for i, g in self._grips.items() if i != main and g.has_ended()]:
                self._grips.pop(identity).close()
                self._server.emit_rank_exit(identity.pid, self._titles[identity])

    def _look_for_ranks(self) -> None:
        for identity in self._server.look():
            if identity in self._grips:
                continue
            title = processes.title_of(identity.pid)
            grip = Grip.take(identity, self._server.boot) if title.startswith(TITLES) else None
            if grip is not None:
                self._grips[identity], self._titles[identity] = grip, title

    def _wait(self) -> None:
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        blind = False
        for grip in self._grips.values():
            if grip.pidfd is None:
                blind = True
            else:
                poller.register(grip.pidfd, select.POLLIN)
        poller.poll((0.1 if blind else self._every_s) * 1000)

    def _main_ended(self) -> None:
        server = self._server
        if server.ended.wait(_CODE_S):
            return
        unknown = {"exit_code": None, "signal": None, "at_s": processes.boottime_s()}
        found: Optional[Dict[str, object]] = server.run.read_exit()
        server.take_exit(found or unknown)
