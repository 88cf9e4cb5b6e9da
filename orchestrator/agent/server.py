"""One launch as the agent sees it: its log, its end, its ranks, its family; inspect and stop."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Set

from orchestrator.agent import ending, holders, leftovers, processes
from orchestrator.agent.logtail import LogTail
from orchestrator.agent.processes import Identity
from orchestrator.agent.ranks import RankWatch, read_ranks
from orchestrator.agent.runs import Run

Emit = Callable[[str, Dict[str, Any]], None]
_CODE_S = 1.0


class Server:
    """Watches from creation to `stop`. `ended` is set once the log is flushed and the `exit` event is sent."""

    def __init__(self, run: Run, record: Mapping[str, Any], guard: Optional[Identity], boot: str, emit: Emit) -> None:
        self.run, self.record, self.boot = run, dict(record), boot
        self.launched = run.launched(record)
        self.ours = ending.Ours(self.launched, guard, run.seen(boot), _spared(guard))
        self.mapped: Set[int] = run.mapped()
        self._new_files = leftovers.NewFiles()
        self.end: Optional[Dict[str, Any]] = None
        self.ended = threading.Event()
        self._emit = emit
        self._lock = threading.Lock()
        self._is_ending = False
        self._on_end: List[Callable[[], None]] = []
        self.tail = LogTail(run.launch_id, run.log, emit) if os.path.exists(run.log) else None
        self._ranks = RankWatch(self) if self.launched.main is not None else None

    @property
    def launch_id(self) -> str:
        return self.run.launch_id

    @property
    def is_alive(self) -> bool:
        main = self.launched.main
        return main is not None and self.end is None and processes.is_alive(main, self.boot)

    def emit_rank_exit(self, pid: int, title: str) -> None:
        self._emit("rank_exit", {"launch_id": self.launch_id, "pid": pid, "title": title})

    def lose_guard(self) -> None:
        """From now on session, run id and what was seen tell who is ours."""
        self.ours = self.ours._replace(guard=None)

    # -- the end ---------------------------------------------------------------------------------------------------

    def take_exit(self, end: Mapping[str, Any]) -> None:
        """The main process is gone; `end` has `exit_code`, `signal` (both None when nobody saw it) and `at_s` since
        boot. The first call counts. The rest of the log goes out before the event."""
        with self._lock:
            if self._is_ending:
                return
            self._is_ending = True
        if self.tail is not None:
            self.tail.flush()
        after_s = max(float(end["at_s"]) - self.launched.start_ticks / processes.TICKS_PER_S, 0.0)
        event = {"exit_code": end["exit_code"], "signal": end["signal"], "after_s": round(after_s, 3)}
        self._emit("exit", {"launch_id": self.launch_id, **event})
        with self._lock:
            self.end = event
            calls = list(self._on_end)
        self.ended.set()
        for call in calls:
            call()

    def on_end(self, call: Callable[[], None]) -> None:
        """Have it called at the end of the main process, at once when that is past."""
        with self._lock:
            if self.end is None:
                self._on_end.append(call)
                return
        call()

    def end_sentence(self) -> str:
        end = self.end or {}
        if end.get("signal") is not None:
            return f"the server ended with signal {end['signal']} after {end['after_s']} s"
        return f"the server ended with exit code {end.get('exit_code')} after {end.get('after_s')} s"

    def replay_log(self) -> None:
        """The log once more from its first line, for a controller that was not there."""
        if self.tail is not None:
            self.tail.close()
            self.tail = LogTail(self.launch_id, self.run.log, self._emit)

    # -- looking ---------------------------------------------------------------------------------------------------

    def family(self, *, carriers: bool = True) -> Dict[Identity, processes.Stat]:
        """Living processes of this launch."""
        with self._lock:
            return ending.find_ours(self.ours, processes.read_table(), carriers=carriers)

    def note_family(self) -> Dict[Identity, processes.Stat]:
        """`family`, kept on disk with the shared memory it maps, for whoever has to clean up without us."""
        found = self.family()
        self._note(found)
        return found

    def _note(self, family: Iterable[Identity]) -> None:
        mapped = leftovers.shared_memory(identity.pid for identity in family)
        with self._lock:
            self.mapped |= mapped
            self.run.save_seen(self.ours.seen, self.mapped)

    def note_helper(self, identity: Identity) -> None:
        """A command of ours that runs beside the server: ended with it, also by somebody who only has what is noted."""
        with self._lock:
            self.ours.seen.add(identity)
            self.run.save_seen(self.ours.seen, self.mapped)

    def look(self) -> Dict[Identity, processes.Stat]:
        """The cheap look that is taken all the time; what is new is noted."""
        with self._lock:
            known = len(self.ours.seen)
        found = self.family(carriers=False)
        if self._new_files.are_there(self.mapped) or len(self.ours.seen) != known:
            self._note(found)
        return found

    def inspect(self, names: Iterable[str] = ()) -> Dict[str, Any]:
        """The reply to `inspect`; of the ranks' environment only these names are told."""
        found = self.note_family()
        pids = {identity.pid for identity in found}
        listens = holders.listening_ports(pids)
        view = processes.take_view(self.ours.guard, listens=listens)
        pid = self.launched.pid
        alive = self.is_alive
        return {
            "pid": pid or None,
            "alive": alive,
            "environ": processes.read_environ(pid) if alive else None,
            "cmdline": processes.read_cmdline(pid) if alive else [],
            "cwd": processes.read_link(pid, "cwd") if alive else None,
            "limits": _limits(pid) if alive else {},
            "descendants": processes.describe(pids - {pid}, view),
            "ranks": read_ranks(pids - {pid}, list(names), self.launch_id),
            "listens": sorted({port for ports in listens.values() for port in ports}),
        }

    def relax(self) -> None:
        """Ready: the family no longer changes, so look rarely and leave the processor to the server."""
        self.note_family()
        if self._ranks is not None:
            self._ranks.relax()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """While tokens are timed in this process nothing else computes in it; ends are still seen at once."""
        if self._ranks is not None:
            self._ranks.is_quiet = True
        try:
            yield
        finally:
            if self._ranks is not None:
                self._ranks.is_quiet = False

    # -- ending ----------------------------------------------------------------------------------------------------

    def stop(self, grace_s: float) -> Dict[str, Any]:
        """The reply to `stop`. Everything that was ever ours is ended; survivors are named."""
        started = time.monotonic()
        if self._ranks is not None:
            self._ranks.close()
        self.note_family()
        # A copy: threads that still look at the family must not change the set under the scan.
        ours = self.ours._replace(seen=set(self.ours.seen))
        ended = ending.end_launch(ours, grace_s=grace_s)
        if self.launched.main is not None and not any(stat.pid == self.launched.pid for stat in ended.left):
            self._settle_exit()
        swept = leftovers.sweep(
            tmp=self.launched.tmp if not ended.left else "",
            mapped=self.mapped,
            pids={identity.pid for identity in ours.seen},
            since_s=Run.since_s(self.record),
        )
        if self.tail is not None:
            self.tail.close()
            self.tail = None
        view = processes.take_view(self.ours.guard)
        left = {stat.pid: ending.why_alive(stat) for stat in ended.left}
        end = self.end or {"exit_code": None, "signal": None}
        return {
            "exit_code": end["exit_code"],
            "signal": end["signal"],
            "seconds": round(time.monotonic() - started, 3),
            "ended": ended.ended,
            "survivors": [{**p, "why": left[p["pid"]]} for p in processes.describe(left, view)],
            "leftovers": {"removed": swept.removed, "kept": swept.kept},
        }

    def _settle_exit(self) -> None:
        """The guard tells how it ended; when there is none, nobody knows."""
        if self.ended.wait(_CODE_S if self.ours.guard is not None else 0):
            return
        unknown = {"exit_code": None, "signal": None, "at_s": processes.boottime_s()}
        self.take_exit(self.run.read_exit() or unknown)
        self.ended.wait(_CODE_S)

    def close(self) -> None:
        """End the threads; the server goes on."""
        if self._ranks is not None:
            self._ranks.close()


def _spared(guard: Optional[Identity]) -> Set[int]:
    return {os.getpid()} | ({guard.pid} if guard is not None else set())


def _limits(pid: int) -> Dict[str, Dict[str, str]]:
    """/proc/PID/limits: name → soft, hard, as text (`unlimited` is one)."""
    try:
        with open(f"/proc/{pid}/limits", encoding="ascii") as file:
            lines = file.read().splitlines()[1:]
    except OSError as error:
        if processes.is_gone(error):
            return {}
        raise
    return {line[:25].strip(): {"soft": line[26:46].strip(), "hard": line[47:67].strip()} for line in lines}
