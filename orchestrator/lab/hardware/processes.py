"""Titles and ties of processes, by prctl and by writing over the argument area, as setproctitle does."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_SET_PDEATHSIG = 1
_SET_NAME = 15
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel for SIGKILL when the parent ends; leave at once when it already has."""
    _libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def set_title(title: str) -> None:
    """Make `/proc/PID/cmdline` read `title`, cut to the room there is.

    The environment area is blanked too unless SPT_NOENV is set: in that, too, the ranks look like SGLang's. What
    `os.environ` holds stays as it is.
    """
    arguments_at, arguments_end, environ_at, environ_end = _areas()
    room = arguments_end - arguments_at
    text = title.encode()[: room - 1]
    ctypes.memmove(arguments_at, text + b"\0" * (room - len(text)), room)
    if "SPT_NOENV" not in os.environ and environ_end > environ_at:
        ctypes.memset(environ_at, 0, environ_end - environ_at)
    _libc.prctl(_SET_NAME, title.encode()[:15], 0, 0, 0)


def _areas() -> tuple[int, int, int, int]:
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    first, second, third, fourth = (int(n) for n in stat.rpartition(")")[2].split()[45:49])
    return first, second, third, fourth
