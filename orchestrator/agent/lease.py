"""Who holds a tree, until when, on which boot.

The lease is one framed record in a preallocated file, rewritten in place and never synced: a power cut ends it anyway,
because it counts for one boot only. The deadline is on CLOCK_BOOTTIME, which goes on while the machine sleeps.
"""

from __future__ import annotations

import datetime
import os
from typing import Any, Dict, NamedTuple, Optional, Sequence

from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.journal import decode, encode

_FILE_BYTES = 4096


class Lease(NamedTuple):
    """`pid` is the controller's, `host_pid` and `start_ticks` are the agent's; `role` is agent or guard; `since_s` is
    wall clock, `deadline_s` CLOCK_BOOTTIME, both in seconds. `claims` are the files of what is held beside the tree."""

    token: str
    name: str
    pid: int
    host_pid: int
    start_ticks: int
    role: str
    epoch: int
    boot_id: str
    since_s: float
    deadline_s: float
    claims: Sequence[str] = ()

    def is_valid(self, boot_id: str, now_s: float) -> bool:
        return self.boot_id == boot_id and now_s < self.deadline_s

    def agent(self) -> Dict[str, Any]:
        """The identity of the process that holds the lock."""
        return {"pid": self.host_pid, "start_ticks": self.start_ticks, "boot_id": self.boot_id}


def own_start_ticks() -> int:
    """When this process started, in clock ticks since boot."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def read_lease(fs: Fs, path: str) -> Optional[Lease]:
    """The lease in this file, or None."""
    if fs.find(path) is None:
        return None
    found = decode(fs.read_file(path))
    return None if found is None else Lease(**found[0].data)


class LeaseFile:
    """The open file of the holder."""

    def __init__(self, fs: Fs, path: str) -> None:
        self._fs = fs
        self._path = path
        self._fd = fs.open(path, os.O_RDWR | os.O_CREAT)
        try:
            if fs.fstat(self._fd).size < _FILE_BYTES:
                fs.fallocate(self._fd, _FILE_BYTES)
        except BaseException:
            fs.close(self._fd)
            raise

    def write(self, lease: Lease) -> None:
        frame = encode(lease.epoch, "LEASE", dict(lease._asdict()))
        self._fs.pwrite_all(self._fd, frame, 0)

    def read(self) -> Optional[Lease]:
        found = decode(self._fs.pread(self._fd, _FILE_BYTES, 0))
        return None if found is None else Lease(**found[0].data)

    def close(self) -> None:
        self._fs.close(self._fd)


def busy(lease: Optional[Lease], now_s: float, wall_s: float) -> AgentError:
    """The error for whoever comes second."""
    if lease is None:
        facts = {"holder": "unknown", "since": "unknown", "until": "unknown", "host_pid": "unknown"}
        return AgentError("busy", "another agent holds the tree", facts, "it may be reached by another route")
    until = wall_time(wall_s + lease.deadline_s - now_s)
    facts = {"holder": lease.name, "since": wall_time(lease.since_s), "until": until, "host_pid": str(lease.host_pid)}
    if lease.role == "guard":
        return AgentError("busy", "the guard is undoing what a silent controller left", facts, "try again in a moment")
    hint = f"it is free when {lease.name} is done, or at {until} when it stays silent"
    return AgentError("busy", f"{lease.name} holds the tree until {until}", facts, hint)


def wall_time(seconds: float) -> str:
    """A moment in UTC, for people."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
