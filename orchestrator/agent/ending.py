"""Ending processes and proving them gone.

Ours are the descendants of the guard, the members of the launch's sessions, carriers of its run id, and those seen to
be ours before. Every signal goes through a `Grip`. Nothing that is above the agent is ever a target, nor is the guard.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from orchestrator.agent import processes
from orchestrator.agent.processes import Grip, Identity, Table

TMP_PREFIX = "orc-"
POLL_S = 0.05
SETTLE_S = 3.0
"""How long the rest may take once the server's main process has ended in the grace period."""
KILL_S = 45.0
"""A process gives back a hundred GiB of GPU memory in its exit, which has been seen to take half a minute."""
_REAP_S = 1.0
_ORPHANED_S = 1.0


class Launched(NamedTuple):
    """A launch as the journal has it. `pid` and `start_ticks` are 0 when the journal ends before LAUNCHED."""

    launch_id: str
    pid: int
    start_ticks: int
    boot_id: str
    since_ticks: int
    tmp: str

    @property
    def main(self) -> Optional[Identity]:
        return Identity(self.pid, self.start_ticks, self.boot_id) if self.pid else None


class Ours(NamedTuple):
    """What is needed to tell our processes from everybody else's. `seen` grows while the launch lives."""

    launched: Launched
    guard: Optional[Identity]
    seen: Set[Identity]
    spared: Set[int]  # agent and guard


def find_ours(
    ours: Ours, table: Table, *, carriers: bool = True, strangers: Optional[Set[Tuple[int, int]]] = None
) -> Dict[Identity, processes.Stat]:
    """Living processes of the launch. Adds them to `ours.seen`; a defunct one holds nothing and is left out.

    `carriers`: also read every environment, which is most of the cost. `strangers`: (pid, start) of those whose
    environment was read within this look and is not ours; it grows, and is not read again.
    """
    launched = ours.launched
    roots = processes.below_guard(table, ours.guard)
    roots |= {one.pid for one in ours.seen if _is_same(table, one)}
    main = launched.main
    if main is not None and _is_same(table, main):
        roots.add(main.pid)
    if carriers:
        young = {(pid, stat.start_ticks) for pid, stat in table.items() if stat.start_ticks >= launched.since_ticks}
        roots |= _carriers(young, launched, strangers if strangers is not None else set())
    found = _close(table, roots, _sessions(ours, table, roots), launched.since_ticks)
    found -= ours.spared | processes.ancestors(table, os.getpid()) | {1}
    result = {Identity(pid, table[pid].start_ticks, launched.boot_id): table[pid] for pid in found}
    ours.seen.update(result)
    return {identity: stat for identity, stat in result.items() if not stat.is_defunct}


def _is_same(table: Table, identity: Identity) -> bool:
    stat = table.get(identity.pid)
    return stat is not None and stat.start_ticks == identity.start_ticks


def _carriers(young: Set[Tuple[int, int]], launched: Launched, strangers: Set[Tuple[int, int]]) -> Set[int]:
    """Whose environment names this launch. One that is empty now may be of a program that is just being executed."""
    found: Set[int] = set()
    for one in young - strangers:
        environ = processes.read_environ(one[0])
        if environ and _carries(environ, launched):
            found.add(one[0])
        elif environ:
            strangers.add(one)
    return found


def _carries(environ: Dict[str, str], launched: Launched) -> bool:
    """A launch id is only as unique as the controller made it: a carrier of another launch's TMPDIR is not ours."""
    if environ.get(processes.RUN_ID) != launched.launch_id:
        return False
    tmp = environ.get("TMPDIR", "")
    return tmp == launched.tmp or not os.path.basename(tmp).startswith(TMP_PREFIX)


def _sessions(ours: Ours, table: Table, roots: Set[int]) -> Set[int]:
    """Sessions that our processes made. A session id is a pid, which the kernel gives to nobody while members live;
    one whose leader is somebody else by now is not ours."""
    leaders = {one.pid for one in ours.seen} | roots
    if ours.launched.pid:
        leaders.add(ours.launched.pid)
    known = {one.pid: one.start_ticks for one in ours.seen}
    if ours.launched.main is not None:
        known[ours.launched.pid] = ours.launched.start_ticks
    reused = {pid for pid, start in known.items() if pid in table and table[pid].start_ticks != start}
    return leaders - reused


def _close(table: Table, roots: Set[int], sessions: Set[int], since_ticks: int) -> Set[int]:
    """Roots, their descendants, and members of their sessions with theirs, until nothing is added."""
    found = set(roots)
    while True:
        size = len(found)
        found |= processes.descendants(table, found)
        members = {s.pid for s in table.values() if s.sid in sessions and s.start_ticks >= since_ticks}
        found |= members
        sessions |= {pid for pid in found if table[pid].sid == pid}
        if len(found) == size:
            return found


class Ended(NamedTuple):
    """`ended`: pids of ours that lived when it began or came later, and are gone; `left`: those that are not, with
    their state now."""

    ended: List[int]
    left: List[processes.Stat]
    seconds: float


def end_launch(
    ours: Ours,
    *,
    grace_s: float,
    kill_s: float = KILL_S,
    reap: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> Ended:
    """TERM to the main process, `grace_s`, KILL to all of ours, then look again until none is left or `kill_s` is over.

    `reap` is called while waiting, by whoever is the parent. The family is taken down before the first signal: a
    process that is re-parented or renamed later is still known.
    """
    started = clock()
    before = set(ours.seen)
    strangers: Set[Tuple[int, int]] = set()
    alive = find_ours(ours, processes.read_table(), strangers=strangers)
    before -= set(alive)
    if grace_s > 0 and alive:
        _ask_to_end(ours, clock() + grace_s, reap, clock)
        strangers.clear()  # one that was just being started has its own environment by now
        alive = find_ours(ours, processes.read_table(), strangers=strangers)
    deadline = clock() + kill_s
    empty = 0
    while True:
        # Twice, since a child forked during the scan is seen only by the next one.
        empty = 0 if alive else empty + 1
        if empty == 2 or clock() >= deadline:
            break
        _kill(alive, min(deadline, clock() + 1.0), reap, clock)
        reap()
        alive = find_ours(ours, processes.read_table(), strangers=strangers)
    remaining = {identity.pid for identity in alive}
    ended = sorted({one.pid for one in ours.seen - before} - remaining)
    return Ended(ended, [alive[one] for one in sorted(alive)], clock() - started)


def _ask_to_end(ours: Ours, deadline: float, reap: Callable[[], None], clock: Callable[[], float]) -> None:
    main = ours.launched.main
    grip = Grip.take(main, main.boot_id) if main is not None else None
    if grip is not None:
        grip.send(signal.SIGTERM)
    # Whose parent was dead before goes within a second, if it asked for that signal; nobody else told it to.
    settle: float | None = None if grip is not None else clock() + _ORPHANED_S
    deadline = min(deadline, settle or deadline)
    try:
        while clock() < deadline:
            reap()
            if not find_ours(ours, processes.read_table(), carriers=False):
                return
            if settle is None and grip is not None and grip.has_ended():
                settle = clock() + SETTLE_S
                deadline = min(deadline, settle)
            wait_for_end([grip] if grip is not None and settle is None else [], min(2 * POLL_S, deadline - clock()))
    finally:
        if grip is not None:
            grip.close()


def _kill(alive: Iterable[Identity], deadline: float, reap: Callable[[], None], clock: Callable[[], float]) -> None:
    """KILL, then wait for the kernel to have taken everything back, up to the deadline."""
    grips = [g for g in (Grip.take(one, one.boot_id) for one in alive) if g is not None]
    try:
        for grip in grips:
            with contextlib.suppress(PermissionError):  # another user's by now: the next scan reports it as left
                grip.send(signal.SIGKILL)
        waiting = grips
        while waiting and clock() < deadline:
            wait_for_end(waiting, POLL_S)
            reap()
            waiting = [g for g in waiting if not g.has_ended()]
    finally:
        for grip in grips:
            grip.close()


def wait_for_end(grips: Iterable[Grip], timeout_s: float) -> None:
    """Return when one of them ends, or after `timeout_s`. Needs pidfds to be prompt, works without."""
    poller = select.poll()
    for grip in grips:
        if grip.pidfd is not None:
            poller.register(grip.pidfd, select.POLLIN)
    poller.poll(max(timeout_s, 0) * 1000)


def kill_and_wait(identity: Identity, boot: str, timeout_s: float) -> bool:
    """SIGKILL to exactly this process; whether it is gone. The agent ends an older one of its holder this way too."""
    grip = Grip.take(identity, boot)
    if grip is None:
        return True
    try:
        grip.send(signal.SIGKILL)
        deadline = time.monotonic() + timeout_s
        while not grip.has_ended() and time.monotonic() < deadline:
            wait_for_end([grip], POLL_S)
        return grip.has_ended()
    finally:
        grip.close()


def why_alive(stat: processes.Stat | None) -> str:
    """One sentence on a process that did not go."""
    if stat is None:
        return "it is gone"
    if stat.state in "ZXx":
        parent = processes.title_of(stat.ppid) or "?"
        return f"defunct: its parent {stat.ppid} ({parent}) has not reaped it"
    if stat.state == "D":
        return "in an uninterruptible system call: no signal reaches it until the kernel returns"
    return f"still in state {stat.state} after SIGKILL"


def end_processes(identities: Iterable[Dict[str, Any]], term_s: float, kill_s: float, boot: str) -> Dict[str, Any]:
    """TERM, `term_s`, KILL, `kill_s`, for exactly these identities: the reply to `end_processes`."""
    wanted = [Identity(int(i["pid"]), int(i["start_ticks"]), str(i["boot_id"])) for i in identities]
    above = processes.ancestors(processes.read_table(), os.getpid()) | {1}
    survivors: List[Dict[str, Any]] = []
    ended: List[int] = []
    grips: List[Grip] = []
    for identity in wanted:
        grip, verdict = _take(identity, above, boot)
        if grip is not None:
            grips.append(grip)
        elif verdict is None:  # ended before we came
            ended.append(identity.pid)
        else:
            survivors.append(verdict)
    try:
        for number, wait_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, kill_s)):
            survivors += _signal_and_wait(grips, number, wait_s, ended)
        survivors += [_survivor(g.identity.pid, g.stat(), why_alive(g.stat())) for g in grips]
    finally:
        for grip in grips:
            grip.close()
    return {"ended": sorted(ended), "survivors": survivors}


def _take(identity: Identity, above: Set[int], boot: str) -> tuple[Grip | None, Dict[str, Any] | None]:
    """(grip, None) to end it, (None, survivor) to leave it, (None, None) when it has ended already."""
    pid = identity.pid
    stat = processes.read_stat(pid)
    if pid in above:
        return None, _survivor(pid, stat, "an ancestor of this agent: never ended")
    if identity.boot_id != boot or (stat is not None and stat.start_ticks != identity.start_ticks):
        return None, _survivor(pid, stat, "not the process that was meant: its identity differs")
    if stat is None:
        return None, None
    if stat.is_defunct and not _is_reaped(identity, _REAP_S):
        return None, _survivor(pid, stat, why_alive(stat))
    return Grip.take(identity, boot), None


def _is_reaped(identity: Identity, within_s: float) -> bool:
    """A parent that is only slow is no finding."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        stat = processes.read_stat(identity.pid)
        if stat is None or stat.start_ticks != identity.start_ticks:
            return True
        time.sleep(POLL_S)
    return False


def _signal_and_wait(grips: List[Grip], number: int, wait_s: float, ended: List[int]) -> List[Dict[str, Any]]:
    """Drops from `grips` those that ended or may not be signalled; returns the latter."""
    refused = []
    for grip in list(grips):
        try:
            grip.send(number)
        except PermissionError:
            refused.append(_survivor(grip.identity.pid, grip.stat(), "it belongs to a user we may not signal"))
            grips.remove(grip)
            grip.close()
    deadline = time.monotonic() + wait_s
    while True:
        for grip in [g for g in grips if g.has_ended()]:
            ended.append(grip.identity.pid)
            grips.remove(grip)
            grip.close()
        if not grips or time.monotonic() >= deadline:
            return refused
        wait_for_end(grips, min(POLL_S, deadline - time.monotonic()))


def _survivor(pid: int, stat: processes.Stat | None, why: str) -> Dict[str, Any]:
    return {"pid": pid, "state": stat.state if stat else None, "why": why}
