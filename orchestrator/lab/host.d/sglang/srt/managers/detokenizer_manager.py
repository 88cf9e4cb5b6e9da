"""The detokenizer's process. Nothing passes through it here: it is there because its death ends a real server."""

from __future__ import annotations

import signal

from lab_hardware.processes import die_with_parent, set_title


def run_detokenizer_process(main_pid: int) -> None:
    """Wait for the end."""
    die_with_parent(main_pid)
    set_title("sglang::detokenizer")
    while True:
        signal.pause()
