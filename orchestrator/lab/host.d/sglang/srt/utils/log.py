"""The log: one record, one write, so that the lines of several processes do not mix."""

from __future__ import annotations

import os
import time
from contextlib import suppress

_prefix = ""


def set_rank(label: str) -> None:
    """Records of this process carry ` TP0` and the like after the time."""
    global _prefix  # one label a process
    _prefix = f" {label}"


def log(message: str) -> None:
    """A record with time and rank."""
    bare(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{_prefix}] {message}")


def bare(text: str) -> None:
    """A line without them, as progress bars and libraries write."""
    with suppress(BrokenPipeError):  # a server does not end because nobody reads its log any more
        os.write(2, f"{text}\n".encode())
