"""Progress or a hang: what a launch has done, compared over time. Loading, compiling and capturing are progress,
however long they say nothing."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from orchestrator.agent import probes, processes
from orchestrator.agent.server import Server

SAMPLE_S = 2.0
_BUSY_SHARE = 0.05
_READ_BYTES = 64 << 10
_MEMORY_S = 20.0
_COMPILERS = frozenset(
    {"nvcc", "cicc", "ptxas", "fatbinary", "ninja", "cc1plus", "cc1", "gcc", "g++", "c++", "clang", "ld", "hipcc"}
)


class Work(NamedTuple):
    """What a launch has done so far."""

    at_s: float
    log_bytes: int
    cpu_ticks: Dict[int, int]
    read_bytes: Dict[int, int]
    compilers: frozenset[int]


def has_moved(before: Work, now: Work) -> bool:
    """A log that grows, processor time above idling, bytes read, or new compilers."""
    if now.log_bytes != before.log_bytes or now.compilers - before.compilers:
        return True
    ticks = sum(max(n - before.cpu_ticks.get(pid, 0), 0) for pid, n in now.cpu_ticks.items())
    if ticks > _BUSY_SHARE * (now.at_s - before.at_s) * processes.TICKS_PER_S:
        return True
    return sum(max(n - before.read_bytes.get(pid, 0), 0) for pid, n in now.read_bytes.items()) >= _READ_BYTES


def measure(server: Server) -> Work:
    family = server.family(carriers=False)
    return Work(
        at_s=time.monotonic(),
        log_bytes=server.tail.size if server.tail is not None else 0,
        cpu_ticks={stat.pid: stat.cpu_ticks for stat in family.values()},
        read_bytes={identity.pid: _read_bytes(identity.pid) for identity in family},
        compilers=frozenset(stat.pid for stat in family.values() if stat.comm in _COMPILERS),
    )


class Progress:
    """Of one launch. `memory_argv` prints how much of each GPU is taken; it is asked beside, and only once everything
    else stands still."""

    def __init__(self, server: Server, stall_s: float, memory_argv: Optional[Sequence[str]] = None) -> None:
        self._server, self._stall_s = server, stall_s
        self._work = measure(server)
        self._moved_at = time.monotonic()
        self._memory = MemoryWatch(memory_argv, stall_s / 4) if memory_argv else None

    @property
    def stalled_s(self) -> float:
        return time.monotonic() - self._moved_at

    def look(self) -> bool:
        """Whether the launch has stood still for the whole stall time. Cheap to call often."""
        now = time.monotonic()
        if now - self._work.at_s >= min(SAMPLE_S, self._stall_s / 4):
            work = measure(self._server)
            if has_moved(self._work, work):
                self._moved_at = now
            self._work = work
        if self._memory is not None and now - self._moved_at >= self._stall_s / 4 and self._memory.ask():
            self._moved_at = now
        return now - self._moved_at >= self._stall_s


class MemoryWatch:
    """Asks a command in a thread of its own, at most every `every_s`, and tells whether its answer has changed."""

    def __init__(self, argv: Sequence[str], every_s: float, run: Callable[..., Any] = probes.run_commands) -> None:
        self._argv: List[str] = list(argv)
        self._every_s = max(every_s, 0.5)
        self._run = run
        self._asked_at = float("-inf")
        self._last: Optional[str] = None
        self._has_changed = False
        self._is_asking = False
        self._lock = threading.Lock()

    def ask(self) -> bool:
        """Starts an asking when it is time; True once for each change of the answer."""
        with self._lock:
            changed, self._has_changed = self._has_changed, False
            if self._is_asking or time.monotonic() - self._asked_at < self._every_s:
                return changed
            self._is_asking = True
        self._asked_at = time.monotonic()
        threading.Thread(target=self._talk, name="gpu memory", daemon=True).start()
        return changed

    def _talk(self) -> None:
        answer = self._run([{"name": "m", "argv": self._argv, "timeout_s": _MEMORY_S}])["m"]
        with self._lock:
            self._is_asking = False
            if answer["rc"] == 0:
                self._has_changed = self._last is not None and answer["stdout"] != self._last
                self._last = answer["stdout"]


def _read_bytes(pid: int) -> int:
    """Bytes that the process had fetched from storage; 0 when it may not be read."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            fields = dict(line.split(":") for line in file)
    except OSError as error:
        if processes.is_gone(error) or isinstance(error, PermissionError):
            return 0
        raise
    return int(fields["read_bytes"])
