"""Which processes may be ended, and the sentence that says why.

A process is ours by proof: descent from our guard, an identity in our journal, the session of our launch, or a run id
of ours in its environment. Its name proves nothing: it never gets a process ended. No ancestor of ours is ever ended,
and what cannot be seen is unknown, not free.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class Kind(StrEnum):
    """What a process is to us. Only the first three are ever ended."""

    OURS = "ours"
    ENGINE = "engine"
    LISTED = "listed"
    FOREIGN = "foreign"
    ANCESTOR = "ancestor"  # the agent runs below it; our guard and process 1 are held as dear
    AGENT = "agent"  # the agent asks something with it, such as nvidia-smi
    MONITOR = "monitor"  # a tool that watches cards and computes nothing; never ended, and in nobody's way
    DEFUNCT = "defunct"  # holds nothing; its parent has to collect it
    STUCK = "stuck"  # in the kernel, beyond signals: the host is quarantined, nothing is retried
    UNKNOWN = "unknown"  # not ours as far as can be seen, and not all could be seen


MONITORS = frozenset(
    {"dcgm-exporter", "dcgmi", "gpustat", "nv-hostengine", "nvidia-fabricmanager", "nvidia-persistenced", "nvidia-smi"}
    | {"nvitop", "nvtop", "nv-fabricmanager", "nvidia_gpu_exporter"}
)
"""Programs that keep a card's device file open to read its counters. One that took memory all the same is caught when
memory is held against the card's idle level."""


@dataclass(frozen=True)
class Process:
    """A process as the agent saw it. `start_ticks` since boot; `fds_readable` and `environ_readable` False: EACCES."""

    pid: int
    ppid: int
    start_ticks: int
    sid: int
    uid: int
    state: str
    cmdline: tuple[str, ...] = ()
    exe: str | None = None
    program: str | None = (
        None  # the first word, found as its shell found it: a venv's python, where `exe` is the system's
    )
    run_id: str | None = None
    environ_readable: bool = True
    fds_readable: bool = True
    devices: tuple[str, ...] = ()
    listens: tuple[int, ...] = ()
    user: str = ""
    age_s: float = 0.0
    rss_kib: int = 0
    container: str | None = None
    descends_from_guard: bool = False
    is_ancestor_of_agent: bool = False

    @classmethod
    def from_agent(cls, seen: Mapping[str, Any]) -> Process:
        """From the agent's `Process` object; keys not named here are left out."""
        fields = {name: seen[name] for name in cls.__dataclass_fields__ if name in seen}
        for name in ("cmdline", "devices", "listens"):
            fields[name] = tuple(fields.get(name) or ())
        return cls(**fields)

    @property
    def is_monitor(self) -> bool:
        """By the program's own file, or the script that an interpreter was started with."""
        names = {posixpath.basename(word) for word in (self.exe, *self.cmdline[:2]) if word}
        return bool(names & MONITORS)

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.start_ticks)

    def __str__(self) -> str:
        return f"{self.pid} ({' '.join(self.cmdline) or self.exe or 'no command line'})"


@dataclass(frozen=True)
class Identity:
    """Of one boot; the caller compares boot ids before it asks here. None: a person named the pid alone."""

    pid: int
    start_ticks: int | None = None

    def is_of(self, process: Process) -> bool:
        return self.pid == process.pid and self.start_ticks in (None, process.start_ticks)


@dataclass(frozen=True)
class Ours:
    """What proves that a process is ours: from the journal of this boot, and from the agent's own seat."""

    run_ids: frozenset[str] = frozenset()
    identities: frozenset[Identity] = frozenset()
    sessions: Mapping[int, int] = field(default_factory=dict)  # session id → start ticks of the launch that led it
    agent_pid: int = 0
    guard_pid: int = 0
    agent_uid: int = 0


@dataclass(frozen=True)
class Policy:
    """What may be ended beside our own: `engine`, all that serves with the target's interpreter on its GPUs or port,
    and `listed`, what a person named."""

    reap: Literal["ours", "engine"] = "ours"
    listed: tuple[Identity, ...] = ()
    interpreters: frozenset[str] = frozenset()  # the target's interpreter: as configured, and as /proc/PID/exe shows it
    port: int | None = None


@dataclass(frozen=True)
class Decision:
    """One process: whether it is ended, and why or why not."""

    pid: int
    start_ticks: int
    end: bool
    kind: Kind
    why: str


def decide(processes: Sequence[Process], ours: Ours, policy: Policy) -> list[Decision]:
    """One decision per process, in the order given. Only processes with `end` may be signalled, by identity."""
    table = _Table(processes, ours, policy)
    return [table.decide(process) for process in processes]


def absent(processes: Sequence[Process], listed: Sequence[Identity]) -> list[str]:
    """A sentence for each named process that is not there, or whose pid has gone to another process."""
    by_pid = {process.pid: process for process in processes}
    said = []
    for identity in listed:
        now = by_pid.get(identity.pid)
        if now is None:
            said.append(f"process {identity.pid} is not there")
        elif not identity.is_of(now):
            said.append(f"process {identity.pid} is another one than was named: it started at {now.start_ticks} ticks")
    return said


class _Table:
    """All processes of one look, so that descent and sessions can be followed."""

    def __init__(self, processes: Sequence[Process], ours: Ours, policy: Policy) -> None:
        self.ours = ours
        self.policy = policy
        self.by_pid = {process.pid: process for process in processes}
        above = self._chain(ours.agent_pid) | {p.pid for p in processes if p.is_ancestor_of_agent}
        self.protected = above | {1, ours.guard_pid}
        self.roots = {p.pid: why for p in processes if (why := self._serves(p))} if policy.reap == "engine" else {}

    def decide(self, process: Process) -> Decision:
        kind, why = self._classify(process)
        if kind not in (Kind.OURS, Kind.ENGINE, Kind.LISTED):
            return Decision(process.pid, process.start_ticks, False, kind, why)
        if process.state.startswith("D"):
            what = f"uninterruptible in the kernel, no signal reaches it ({kind}: {why})"
            return Decision(process.pid, process.start_ticks, False, Kind.STUCK, what)
        if self.ours.agent_uid not in (0, process.uid):
            owner = process.user or f"user {process.uid}"
            return Decision(process.pid, process.start_ticks, False, kind, f"{why}, but it belongs to {owner}")
        return Decision(process.pid, process.start_ticks, True, kind, why)

    def _classify(self, process: Process) -> tuple[Kind, str]:
        if process.pid in self.protected:
            return Kind.ANCESTOR, "our guard" if process.pid == self.ours.guard_pid else "the agent runs below it"
        if process.state[:1] in ("Z", "X"):
            parent = self.by_pid.get(process.ppid)
            name = str(parent) if parent else str(process.ppid)
            return Kind.DEFUNCT, f"defunct, it holds nothing; its parent {name} has to collect it"
        if why := self._is_ours(process):
            return Kind.OURS, why
        if self.ours.agent_pid in self._chain(process.ppid):
            return Kind.AGENT, "our agent asks something with it"
        if any(identity.is_of(process) for identity in self.policy.listed):
            return Kind.LISTED, "named by a person"
        if why := self._is_engine(process):
            return Kind.ENGINE, why
        return self._foreign(process)

    def _is_ours(self, process: Process) -> str | None:
        if process.descends_from_guard:
            return "descends from our guard"
        if process.identity in self.ours.identities:
            return "its identity is in our journal"
        if process.run_id is not None and process.run_id in self.ours.run_ids:
            return f"carries our run id {process.run_id}"
        started = self.ours.sessions.get(process.sid)
        if started is not None and process.start_ticks >= started and self._is_session_still_ours(process.sid, started):
            return f"in session {process.sid} of our launch"
        return None

    def _is_session_still_ours(self, sid: int, started: int) -> bool:
        """A session id is the pid of its leader. While the session lives the kernel gives that pid to nobody else,
        so a leader with another start time means that ours has ended and the number came round again."""
        leader = self.by_pid.get(sid)
        return leader is None or leader.start_ticks == started

    def _serves(self, process: Process) -> str | None:
        """Whether the process itself serves with the target's interpreter, and on what."""
        runs = {process.exe, process.program, *process.cmdline[:1]}
        if process.pid in self.protected or not runs & self.policy.interpreters:
            return None
        if self.policy.port is not None and self.policy.port in process.listens:
            return f"runs the target's interpreter and listens on port {self.policy.port}"
        if process.devices:
            return f"runs the target's interpreter and holds {', '.join(process.devices)}"
        return None

    def _is_engine(self, process: Process) -> str | None:
        if process.pid in self.roots:
            return self.roots[process.pid]
        above = next((pid for pid in self._chain(process.ppid) if pid in self.roots), None)
        return f"descends from {above}, which {self.roots[above]}" if above is not None else None

    def _foreign(self, process: Process) -> tuple[Kind, str]:
        owner = process.user or f"user {process.uid}"
        holds = [*process.devices, *(f"port {port}" for port in process.listens)]
        holding = f", holds {', '.join(holds)}" if holds else ""
        holding += ", uninterruptible in the kernel" if process.state.startswith("D") else ""
        hidden = [
            name
            for name, is_readable in (
                ("environment", process.environ_readable),
                ("open files", process.fds_readable),
            )
            if not is_readable
        ]
        if hidden:
            return Kind.UNKNOWN, f"of {owner}{holding}; its {' and '.join(hidden)} cannot be read: unknown, not free"
        if process.is_monitor and not process.listens:
            return Kind.MONITOR, f"of {owner}{holding}; watches the cards, and is in nobody's way"
        return Kind.FOREIGN, f"of {owner}, for {process.age_s:.0f} s{holding}; nothing shows that it is ours"

    def _chain(self, pid: int) -> set[int]:
        """The process and everything above it, as far as the table shows."""
        chain: set[int] = set()
        while pid > 0 and pid not in chain:
            chain.add(pid)
            parent = self.by_pid.get(pid)
            pid = parent.ppid if parent else 0
        return chain
