"""Who is who in /proc: tables, identities, descent, and what a process looks like to a person.

A process is (pid, start time, boot id), never a name and never a bare pid.
"""

from __future__ import annotations

import errno
import os
import pwd
import time
from typing import Any, Dict, Iterable, Iterator, NamedTuple, Optional, Set

from orchestrator.agent import kernel

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
RUN_ID = "ORC_RUN_ID"

_GONE = (errno.ENOENT, errno.ESRCH)
_HIDDEN = (errno.EACCES, errno.EPERM)  # other users' processes, and all of them where /proc is mounted with hidepid
_KERNEL_THREAD = 0x00200000


class Stat(NamedTuple):
    """One line of /proc/PID/stat. Times in clock ticks, `rss_kib` in KiB."""

    pid: int
    comm: str
    state: str
    ppid: int
    sid: int
    flags: int
    threads: int
    cpu_ticks: int
    start_ticks: int
    rss_kib: int

    @property
    def is_defunct(self) -> bool:
        """Ended and not yet reaped. A leader whose other threads live is Z as well, and still holds everything."""
        return self.state in "ZXx" and self.threads <= 1

    @property
    def is_kernel_thread(self) -> bool:
        return bool(self.flags & _KERNEL_THREAD)


class Identity(NamedTuple):
    """What stays true of a process for its whole life, and of no other on this boot (to a clock tick)."""

    pid: int
    start_ticks: int
    boot_id: str


Table = Dict[int, Stat]


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def boottime_s() -> float:
    """Seconds since boot, suspend included: the clock that start times are on."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def is_gone(error: OSError) -> bool:
    """The process ended while we looked."""
    return error.errno in _GONE


def parse_stat(text: str) -> Stat:
    """A command name may hold spaces and brackets: the last bracket counts."""
    opened, closed = text.index("("), text.rindex(")")
    rest = text[closed + 2 :].split()
    return Stat(
        pid=int(text[:opened]),
        comm=text[opened + 1 : closed],
        state=rest[0],
        ppid=int(rest[1]),
        sid=int(rest[3]),
        flags=int(rest[6]),
        threads=int(rest[17]),
        cpu_ticks=int(rest[11]) + int(rest[12]),
        start_ticks=int(rest[19]),
        rss_kib=int(rest[21]) * PAGE_KIB,
    )


def read_stat(pid: int) -> Stat | None:
    """None when there is no such process, or none that we may see."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return parse_stat(file.read())
    except OSError as error:
        if is_gone(error) or error.errno in _HIDDEN:
            return None
        raise


def pids() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield int(name)


def read_table() -> Table:
    """Every process of this pid namespace, kernel threads left out."""
    found = (read_stat(pid) for pid in pids())
    return {s.pid: s for s in found if s is not None and not s.is_kernel_thread}


def identity_of(pid: int, boot: str) -> Identity | None:
    stat = read_stat(pid)
    return Identity(pid, stat.start_ticks, boot) if stat else None


def is_alive(identity: Identity, boot: str) -> bool:
    """Still that process, and not defunct."""
    stat = read_stat(identity.pid) if identity.boot_id == boot else None
    return stat is not None and stat.start_ticks == identity.start_ticks and not stat.is_defunct


def ancestors(table: Table, pid: int) -> Set[int]:
    """The process itself and everything above it."""
    seen: Set[int] = set()
    while pid in table and pid not in seen:
        seen.add(pid)
        pid = table[pid].ppid
    return seen


def descendants(table: Table, roots: Iterable[int]) -> Set[int]:
    """Everything below the roots, without them."""
    children: Dict[int, list[int]] = {}
    for stat in table.values():
        children.setdefault(stat.ppid, []).append(stat.pid)
    found: Set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def read_environ(pid: int) -> Dict[str, str] | None:
    """None when it may not be read, or the process is gone. Overwritten by a title it is short or odd, not None."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            raw = file.read()
    except OSError as error:
        if is_gone(error) or error.errno in _HIDDEN:
            return None
        raise
    pairs = (os.fsdecode(item).partition("=") for item in raw.split(b"\0"))
    return {name: value for name, mark, value in pairs if mark}


def read_cmdline(pid: int) -> list[str]:
    """Words of the command line, empty when the process is gone or defunct."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            raw = file.read()
    except OSError as error:
        if is_gone(error) or error.errno in _HIDDEN:
            return []
        raise
    # A title written over the arguments is padded with NULs.
    return [os.fsdecode(word) for word in raw.rstrip(b"\0").split(b"\0")] if raw.strip(b"\0") else []


def read_link(pid: int, name: str) -> str | None:
    """`exe` or `cwd`; None when it may not be read or the process is gone."""
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError as error:
        if is_gone(error) or error.errno in _HIDDEN:
            return None
        raise


def owner_of(pid: int) -> int | None:
    """Effective user id."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError as error:
        if is_gone(error):
            return None
        raise


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def title_of(pid: int) -> str:
    """The command line as one text, as `ps -o args` shows it."""
    return " ".join(read_cmdline(pid)).strip()


class View(NamedTuple):
    """What `describe` needs to know about everybody, taken once for many processes."""

    table: Table
    guard: Optional[Identity]
    devices: Dict[int, Set[str]]
    listens: Dict[int, Set[int]]
    unreadable_fds: Set[int]


def take_view(
    guard: Identity | None,
    devices: Dict[int, Set[str]] | None = None,
    listens: Dict[int, Set[int]] | None = None,
    unreadable_fds: Set[int] | None = None,
) -> View:
    return View(read_table(), guard, devices or {}, listens or {}, unreadable_fds or set())


def below_guard(table: Table, guard: Identity | None) -> Set[int]:
    """Descendants of the guard, none when another process has its pid by now."""
    if guard is None or guard.pid not in table or table[guard.pid].start_ticks != guard.start_ticks:
        return set()
    return descendants(table, [guard.pid])


def describe(found: Iterable[int], view: View) -> list[Dict[str, Any]]:
    """`Process` objects of the protocol, in order of pid; those that ended meanwhile are left out."""
    ours = below_guard(view.table, view.guard)
    above = ancestors(view.table, os.getpid()) - {os.getpid()}
    shown = (view.table[pid] for pid in sorted(set(found)) if pid in view.table)
    return [p for p in (_describe_one(stat, view, ours, above) for stat in shown) if p is not None]


def _describe_one(stat: Stat, view: View, ours: Set[int], above: Set[int]) -> Dict[str, Any] | None:
    pid = stat.pid
    uid = owner_of(pid)
    if uid is None:
        return None
    environ = read_environ(pid)
    return {
        "pid": pid,
        "ppid": stat.ppid,
        "sid": stat.sid,
        "start_ticks": stat.start_ticks,
        "uid": uid,
        "user": user_name(uid),
        "state": stat.state,
        "age_s": round(boottime_s() - stat.start_ticks / TICKS_PER_S, 2),
        "cmdline": read_cmdline(pid) or [f"[{stat.comm}]"],
        "exe": read_link(pid, "exe"),
        "run_id": (environ or {}).get(RUN_ID),
        "environ_readable": environ is not None,
        "devices": sorted(view.devices.get(pid, ())),
        "listens": sorted(view.listens.get(pid, ())),
        "descends_from_guard": pid in ours,
        "is_ancestor_of_agent": pid in above,
        "rss_kib": stat.rss_kib,
        "fds_readable": pid not in view.unreadable_fds,
    }


class Grip:
    """A hold on one verified process: signals reach it and nobody else, and its end can be waited for.

    Without pidfds in the kernel the identity is compared again right before each signal, which leaves the
    microseconds in between.
    """

    def __init__(self, identity: Identity, pidfd: int | None) -> None:
        self.identity = identity
        self.pidfd = pidfd

    @classmethod
    def take(cls, identity: Identity, boot: str) -> Grip | None:
        """None when the process is gone or the pid belongs to another one by now."""
        if identity.boot_id != boot:
            return None
        try:
            pidfd = kernel.open_pidfd(identity.pid)
        except ProcessLookupError:
            return None
        # The descriptor is open before the comparison: what is compared is what it holds.
        stat = read_stat(identity.pid)
        if stat is None or stat.start_ticks != identity.start_ticks:
            if pidfd is not None:
                os.close(pidfd)
            return None
        return cls(identity, pidfd)

    def send(self, number: int) -> bool:
        """False when the process has ended. Raises PermissionError for somebody else's."""
        try:
            if self.pidfd is not None:
                kernel.send_through_pidfd(self.pidfd, number)
            elif self.stat() is None:
                return False
            else:
                os.kill(self.identity.pid, number)
        except ProcessLookupError:
            return False
        return True

    def stat(self) -> Stat | None:
        """As it is now; None when it is gone."""
        stat = read_stat(self.identity.pid)
        return stat if stat is not None and stat.start_ticks == self.identity.start_ticks else None

    def has_ended(self) -> bool:
        """Gone or defunct: it holds nothing any more."""
        stat = self.stat()
        return stat is None or stat.is_defunct

    def close(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
