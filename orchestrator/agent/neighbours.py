"""Who else lives off a tree: processes of its interpreter, or at home in it. When they start again, they load what lies
there then."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from orchestrator.agent import processes, programs
from orchestrator.agent.processes import Identity

_SHARED_BIN = frozenset({"/bin", "/usr/bin", "/usr/local/bin"})


def find_neighbours(python: str, source: str, guard: Optional[Identity]) -> List[Dict[str, Any]]:
    """`Process`es of the protocol with `why`. Not the agent and its family, and nothing below its guard.

    An interpreter of the whole machine runs much that never imports this tree: there, only what works in it counts.
    """
    view = processes.take_view(guard)
    me = os.getpid()
    own = processes.ancestors(view.table, me) | processes.descendants(view.table, [me])
    own |= processes.below_guard(view.table, guard)
    wanted = None if os.path.dirname(python) in _SHARED_BIN else _spelled(python)
    reasons = {pid: _why(pid, wanted, source) for pid in view.table if pid not in own}
    near = {pid: why for pid, why in reasons.items() if why is not None}
    return [{**process, "why": near[process["pid"]]} for process in processes.describe(near, view)]


def _why(pid: int, python: Optional[str], source: str) -> Optional[str]:
    program = programs.program_of(pid)
    if python is not None and program is not None and _spelled(program) == python:
        return f"it runs {program}"
    cwd = processes.read_link(pid, "cwd")
    if cwd is not None and (cwd == source or cwd.startswith(source + "/")):
        return f"it works in {cwd}"
    words = processes.read_cmdline(pid)
    inside = next((word for word in words[1:] if word.startswith(source + "/")), None)
    return f"it was started with {inside}" if inside is not None else None


def _spelled(path: str) -> str:
    """Links in the directories resolved, the name itself kept: a venv's python is a link to the machine's."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
