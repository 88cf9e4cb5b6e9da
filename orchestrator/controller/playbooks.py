"""Questions about playbooks that touch no host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.controller.clock import SystemClock
from orchestrator.controller.prepare import last_seen


@dataclass(frozen=True)
class CheckedPlaybook:
    campaign: str
    host: str
    hypotheses: int


def check_playbook(path: Path, hosts: Path | None, host: str | None, state: Path) -> CheckedPlaybook:
    """Raises one `PlaybookError` with every problem."""
    from orchestrator.playbook import load

    loaded = load(path, hosts_file=hosts, host=host, last_seen=last_seen(state, SystemClock()))
    return CheckedPlaybook(loaded.playbook.campaign, loaded.host_name, len(loaded.playbook.hypotheses))


def playbook_schema() -> dict[str, Any]:
    from orchestrator.playbook import schema

    return schema()
