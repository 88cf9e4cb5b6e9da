"""The guard leaves the login it was started from, where logind would end it with that login."""

from __future__ import annotations

import re
import subprocess
from typing import Sequence

from orchestrator.agent.errors import AgentError

_TIMEOUT_S = 10.0
_LOGIN = re.compile(r"/session-[^/]+\.scope")


def leave_login(pid: int, argv: Sequence[str]) -> None:
    """Runs the controller's command for this pid; `refused` when the guard is still in a login's scope afterwards.

    `{pid}` in the command stands for the pid.
    """
    command = [word.replace("{pid}", str(pid)) for word in argv]
    facts = {"command": " ".join(command), "pid": str(pid)}
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False)
        facts["said"] = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-300:]
        is_done = done.returncode == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        facts["said"] = str(error)
        is_done = False
    if not is_done or is_in_login(pid):
        what = "the guard cannot leave the login, and would be ended with it"
        raise AgentError("refused", what, facts, "`loginctl enable-linger` for this account, or log in as root")


def is_in_login(pid: int) -> bool:
    with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
        return _LOGIN.search(file.read()) is not None
