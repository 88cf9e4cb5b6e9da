"""Asking the runner: by the command line that a person would type, in a process that outlives the dashboard."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    is_yes: bool
    text: str


def send(words: Sequence[str]) -> Answer:
    """Blocks until it is answered; called from a worker thread. `words` begin with the program's name."""
    command = [sys.executable, "-m", "orchestrator.cli.main", *words[1:]]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, start_new_session=True, check=False
    )
    said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return Answer(done.returncode == 0, said[-1 if done.returncode == 0 else 0] if said else f"exit {done.returncode}")
