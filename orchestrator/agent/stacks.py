"""Where a launch stands: each process with its state, what it waits for in the kernel, and its Python stack where
`py-spy` is there to ask. Collected before anything is ended; afterwards nobody knows."""

from __future__ import annotations

import os
import shutil
from typing import Any, Dict, List, Optional

from orchestrator.agent import probes, processes, programs
from orchestrator.agent.server import Server

_DUMP_S = 15.0
_MAX_PROCESSES = 24
_MAX_TEXT = 16 << 10


def collect(server: Server) -> Dict[str, Any]:
    """`processes`: `{pid, state, title, waits_in, threads, stack}`, `stack` None without py-spy; `py_spy`: its path, or
    None."""
    family = sorted(server.family().values(), key=lambda stat: stat.pid)[:_MAX_PROCESSES]
    tool = find_tool(server.launched.pid)
    stacks = _dump(tool, [stat.pid for stat in family]) if tool is not None else {}
    shown = [
        {
            "pid": stat.pid,
            "state": stat.state,
            "title": processes.title_of(stat.pid)[:200],
            "waits_in": waits_in(stat.pid),
            "threads": _threads(stat.pid),
            "stack": stacks.get(stat.pid),
        }
        for stat in family
    ]
    return {"processes": shown, "py_spy": tool}


def find_tool(pid: int) -> Optional[str]:
    """Beside the server's own interpreter, on the server's PATH, or on ours."""
    program = programs.program_of(pid)
    beside = os.path.join(os.path.dirname(program), "py-spy") if program else ""
    if beside and os.access(beside, os.X_OK):
        return beside
    theirs = (processes.read_environ(pid) or {}).get("PATH")
    return (shutil.which("py-spy", path=theirs) if theirs else None) or shutil.which("py-spy")


def _dump(tool: str, pids: List[int]) -> Dict[int, str]:
    answers = probes.run_commands(
        [{"name": str(pid), "argv": [tool, "dump", "--pid", str(pid)], "timeout_s": _DUMP_S} for pid in pids]
    )
    texts = {int(name): answer["stdout"] or answer.get("error") or answer["stderr"] for name, answer in answers.items()}
    return {pid: text[:_MAX_TEXT] for pid, text in texts.items()}


def waits_in(pid: int, thread: Optional[int] = None) -> str:
    """The kernel function it sleeps in, empty when it runs or may not be read."""
    path = f"/proc/{pid}/wchan" if thread is None else f"/proc/{pid}/task/{thread}/wchan"
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip("0\n")
    except OSError as error:
        if processes.is_gone(error) or isinstance(error, PermissionError):
            return ""
        raise


def _threads(pid: int) -> Dict[str, int]:
    """Kernel function → how many threads sleep in it; "" are those that run."""
    counts: Dict[str, int] = {}
    try:
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError as error:
        if processes.is_gone(error) or isinstance(error, PermissionError):
            return {}
        raise
    for thread in threads:
        place = waits_in(pid, thread)
        counts[place] = counts.get(place, 0) + 1
    return counts
