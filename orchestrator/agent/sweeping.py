"""Leftovers of launches that ended without anybody to clean up: a killed controller and a killed guard leave both."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from orchestrator.agent import leftovers, processes
from orchestrator.agent.runs import Run, list_runs


def sweep_dead(state_dir: str, boot: str, open_launch: Optional[str]) -> Dict[str, Any]:
    """The reply to `sweep`: what launches of this tree left in /tmp and /dev/shm goes when all of their processes are
    dead; anything else stays, and what merely looks alike is named in `kept`. `alive`: launches passed over."""
    removed: List[str] = []
    kept: List[str] = []
    alive: List[str] = []
    for run in list_runs(state_dir):
        seen = run.seen(boot)
        if run.launch_id == open_launch or any(processes.is_alive(one, boot) for one in seen):
            alive.append(run.launch_id)
            continue
        record = run.read_record()
        if record is None:
            continue
        is_this_boot = record.get("boot_id") == boot
        swept = leftovers.sweep(
            tmp=str(record.get("tmp") or ""),
            # After a reboot /dev/shm is another one, and its numbers are other files'.
            mapped=run.mapped() if is_this_boot else set(),
            pids={one.pid for one in seen},
            since_s=Run.since_s(record) if is_this_boot else float("inf"),
        )
        removed += swept.removed
        kept += swept.kept
    return {"removed": sorted(set(removed)), "kept": sorted(set(kept) - set(removed)), "alive": alive}
