"""What a process was started as: its first word, found where its own PATH or directory has it.

`/proc/PID/exe` follows links: every virtual environment's python is the system's there.
"""

from __future__ import annotations

import os
from typing import Optional

from orchestrator.agent import processes


def program_of(pid: int) -> Optional[str]:
    """An absolute path, None when it cannot be told (gone, not ours to look at, or the words were overwritten)."""
    words = processes.read_cmdline(pid)
    if not words or not words[0]:
        return None
    first = words[0]
    if os.path.isabs(first):
        return first
    if "/" in first:
        cwd = processes.read_link(pid, "cwd")
        return os.path.normpath(os.path.join(cwd, first)) if cwd is not None else None
    exe = processes.read_link(pid, "exe")
    path = (processes.read_environ(pid) or {}).get("PATH", "")
    for folder in path.split(":"):
        candidate = os.path.join(folder, first)
        # A PATH that was changed after the start is caught by what really runs.
        if folder and os.access(candidate, os.X_OK) and os.path.realpath(candidate) == exe:
            return candidate
    return None
