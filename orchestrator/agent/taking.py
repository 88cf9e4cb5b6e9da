"""Who may have the lock of a tree: against other agents, and against a lease that still runs."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Optional

from orchestrator.agent import state
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.lease import Lease, busy, read_lease

PATIENCE_S = 5.0  # for an agent that was just ended


def take_lock(
    fs: Fs,
    lock: state.Lock,
    state_dir: str,
    mine: Lease,
    kill_agent: Callable[[Dict[str, Any]], bool],
    now_s: float,
) -> None:
    """Takes the lock, or raises `busy`: against another agent, and against a lease that still runs."""
    lease_path = os.path.join(state_dir, "lease")
    if not lock.try_take():
        lease = read_lease(fs, lease_path)
        is_mine = lease is not None and (lease.token, lease.boot_id) == (mine.token, mine.boot_id)
        if lease is None or not is_mine:
            raise busy(lease, now_s, mine.since_s)
        if lease.role == "agent" and not kill_agent(lease.agent()):
            raise busy(lease, now_s, mine.since_s)
        if not lock.take(PATIENCE_S):
            raise busy(lease, now_s, mine.since_s)
    lease = read_lease(fs, lease_path)
    if lease is not None and lease.token != mine.token and lease.is_valid(mine.boot_id, now_s):
        raise busy(lease, now_s, mine.since_s)


def take_lock_as_guard(
    fs: Fs,
    lock: state.Lock,
    state_dir: str,
    epoch: int,
    boot_id: str,
    clock: Callable[[], float],
    patience_s: float,
) -> Lease:
    is_taken = lock.take(patience_s)
    lease = read_lease(fs, os.path.join(state_dir, "lease"))
    if not is_taken or lease is None or lease.epoch != epoch or lease.is_valid(boot_id, clock()):
        raise busy(lease, clock(), fs.now_ns() / 1e9)
    return lease


def is_held_error(lease: Optional[Lease], state_dir: str) -> AgentError:
    facts = {"holder": lease.name if lease else "unknown", "state_dir": state_dir}
    return AgentError("refused", "somebody holds the tree", facts)
