"""Questions about playbooks that touch no host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.controller.clock import SystemClock
from orchestrator.controller.prepare import last_seen
from orchestrator.errors import PlaybookError


@dataclass(frozen=True)
class CheckedPlaybook:
    """`host` None: the playbook is well, and no inventory says where it would run."""

    playbook: str
    host: str | None


def check_playbook(path: Path, hosts: Path | None, host: str | None, state: Path) -> CheckedPlaybook:
    """Raises one `PlaybookError` with every problem. A playbook is checked on its own where there is no inventory."""
    from orchestrator.playbook import check, load

    seen = last_seen(state, SystemClock())
    wants_host = host is not None or hosts is not None
    problems = check(path, hosts_file=hosts, host=host, last_seen=seen, needs_host=wants_host)
    if problems:
        raise PlaybookError(problems)
    if not check(path, hosts_file=hosts, host=host, last_seen=seen):
        return CheckedPlaybook(str(path), load(path, hosts_file=hosts, host=host, last_seen=seen).host_name)
    return CheckedPlaybook(str(path), None)


def playbook_schema() -> dict[str, Any]:
    from orchestrator.playbook import schema

    return schema()
