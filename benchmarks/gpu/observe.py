"""What is true on the machine, seen from beside the product: processes, GPU memory over time, fatal log lines.

Nothing here asks the product anything, so that its words can be held against it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SLACK_MIB = 64
FATAL = re.compile(
    r"SIGQUIT received|Scheduler hit an exception|[Ww]atchdog timeout|Capture cuda graph failed|OutOfMemoryError"
)


@dataclass(frozen=True)
class Stat:
    """One line of /proc. `start`: clock ticks since boot; with the pid it is an identity."""

    pid: int
    ppid: int
    sid: int
    start: int
    state: str
    title: str

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.start

    @property
    def is_dead(self) -> bool:
        return self.state in "ZX"


@dataclass
class Life:
    """A process as it was seen. `dead_at`: first seen as a zombie or gone; `gone_at`: no longer in the table."""

    stat: Stat
    title: str
    seen_at: float
    dead_at: float | None = None
    gone_at: float | None = None


def read_bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def read_stat(pid: int) -> Stat | None:
    data = read_bytes(f"/proc/{pid}/stat")
    if not data:
        return None
    fields = data.rpartition(b")")[2].split()
    title = read_bytes(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return Stat(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0].decode(), title)


def table() -> dict[int, Stat]:
    """Every process that is there, zombies too, by pid."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {pid: stat for pid in pids if (stat := read_stat(pid))}


class Gpus:
    """NVML. Memory as `nvidia-smi` counts it, the driver's reserve left out. Without cards all answers are empty."""

    def __init__(self, *, present: bool) -> None:
        self._handles: list[Any] = []
        if present:
            import pynvml  # type: ignore[import-not-found]

            self._nvml = pynvml
            pynvml.nvmlInit()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]

    def used_mib(self) -> tuple[int, ...]:
        ask = self._nvml.nvmlDeviceGetMemoryInfo if self._handles else None
        return tuple(ask(h, version=self._nvml.nvmlMemory_v2).used >> 20 for h in self._handles) if ask else ()

    def holders(self) -> frozenset[int]:
        """Pids with memory on a card."""
        found: set[int] = set()
        for handle in self._handles:
            found |= {p.pid for p in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        return frozenset(found)


class Watch:
    """Samples the machine from a thread until it is stopped. Times are `time.monotonic()`."""

    def __init__(self, gpus: Gpus, port: int, runs: Path, *, period_s: float) -> None:
        self._gpus = gpus
        self._main = re.compile(rf"sglang\.launch_server.*--port {port}\b")
        self._runs = runs  # folder that holds the state directory of the tree
        self._period_s = period_s
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._offsets: dict[Path, int] = {}
        self._sessions: set[int] = set()
        self._lives: dict[tuple[int, int], Life] = {}
        self._memory: list[tuple[float, tuple[int, ...]]] = []
        self._holders: list[tuple[float, frozenset[int]]] = []
        self._fatal: list[tuple[float, str]] = []
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._loop, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Raises what ended the thread early: a table without observations is worth nothing."""
        self._done.set()
        self._thread.join(5.0)
        if self._failure is not None:
            raise self._failure

    def _loop(self) -> None:
        try:
            while not self._done.wait(self._period_s):
                self._look()
        except Exception as error:
            self._failure = error

    def _look(self) -> None:
        used, holders, now_there = self._gpus.used_mib(), self._gpus.holders(), table()
        now = time.monotonic()
        with self._lock:
            if not self._memory or any(abs(a - b) >= 16 for a, b in zip(used, self._memory[-1][1], strict=True)):
                self._memory.append((now, used))
            if not self._holders or holders != self._holders[-1][1]:
                self._holders.append((now, holders))
            self._sessions |= {s.sid for s in now_there.values() if s.pid == s.sid and self._main.search(s.title)}
            self._meet((s for s in now_there.values() if s.sid in self._sessions), now)
            self._miss(now_there, now)
        self._read_logs()

    def _meet(self, members: Iterable[Stat], now: float) -> None:
        for stat in members:
            life = self._lives.setdefault(stat.key, Life(stat, stat.title, now))
            life.title = stat.title or life.title
            if stat.is_dead and life.dead_at is None:
                life.dead_at = now

    def _miss(self, now_there: dict[int, Stat], now: float) -> None:
        for key, life in self._lives.items():
            there = now_there.get(key[0])
            if life.gone_at is None and (there is None or there.start != key[1]):
                life.gone_at = now
                life.dead_at = life.dead_at or now

    def _read_logs(self) -> None:
        for log in self._runs.glob(".orchestrator-*/runs/*/server.log"):
            text = read_bytes(str(log))
            begin = self._offsets.get(log, 0)
            end = text.rfind(b"\n") + 1
            if end <= begin:
                continue
            self._offsets[log] = end
            now = time.monotonic()
            for line in text[begin:end].decode("utf-8", "replace").splitlines():
                if FATAL.search(line):
                    with self._lock:
                        self._fatal.append((now, line))

    # ---------------------------------------------------------------- questions

    def family(self, since: float, until: float = float("inf")) -> list[Life]:
        """Processes of servers that were first seen in this span, as copies."""
        with self._lock:
            return [Life(**vars(life)) for life in self._lives.values() if since <= life.seen_at <= until]

    def living(self, since: float = 0.0) -> list[Stat]:
        """Members of servers' sessions that are alive now; zombies are not."""
        found = (read_stat(life.stat.pid) for life in self.family(since))
        keys = {life.stat.key for life in self.family(since)}
        return [stat for stat in found if stat and stat.key in keys and not stat.is_dead]

    def main(self, since: float) -> Stat | None:
        """The leader of the newest server's session since then, when it is alive."""
        leaders = [s for s in self.living(since) if s.pid == s.sid]
        return max(leaders, key=lambda s: s.start, default=None)

    def first_fatal(self, since: float, until: float) -> tuple[float, str] | None:
        with self._lock:
            return next(((t, line) for t, line in self._fatal if since <= t <= until), None)

    def idle_at(self, since: float, floor_mib: tuple[int, ...]) -> float | None:
        """The first moment from then on at which every card was back at its floor; None without cards."""
        if not floor_mib:
            return None
        with self._lock:
            samples = [s for s in self._memory if s[0] >= since]
            before = [s for s in self._memory if s[0] < since][-1:]
        for at, used in [(since, u) for _, u in before] + samples:
            if all(u <= f + SLACK_MIB for u, f in zip(used, floor_mib, strict=True)):
                return at
        return None

    def holders_between(self, since: float, until: float) -> frozenset[int]:
        with self._lock:
            before = [h for t, h in self._holders if t < since][-1:]
            return frozenset().union(*before, *(h for t, h in self._holders if since <= t <= until))

    def timeline(self, origin: float) -> Iterator[str]:
        with self._lock:
            rows = [(t, f"memory {used} MiB") for t, used in self._memory]
            rows += [(t, f"holders {sorted(pids)}") for t, pids in self._holders]
            rows += [(t, f"fatal {line[:200]}") for t, line in self._fatal]
            for life in self._lives.values():
                name = f"{life.stat.pid} {life.title[:60]}"
                rows.append((life.seen_at, f"seen {name}"))
                rows += [(t, f"dead {name}") for t in (life.dead_at,) if t is not None]
        return (f"{at - origin:8.2f} {what}" for at, what in sorted(rows))


def shared_files() -> set[str]:
    """Names in /dev/shm and those of temporary files that an engine leaves in /tmp."""
    names = {f"/dev/shm/{p.name}" for p in Path("/dev/shm").iterdir()}  # noqa: S108 - it is looked at, not written
    temporary = (p.name for p in Path("/tmp").iterdir())  # noqa: S108
    return names | {f"/tmp/{n}" for n in temporary if n.startswith(("tmp", "sgl", "torchinductor", "ipc"))}  # noqa: S108
