"""One command at a time on one host of one state directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.controller.clock import SystemClock
from orchestrator.controller.turn import sole_turn
from orchestrator.errors import Busy, Refused

CLOCK = SystemClock()
_HOLD = """
import sys
from pathlib import Path
from orchestrator.controller.clock import SystemClock
from orchestrator.controller.turn import sole_turn
with sole_turn(Path(sys.argv[1]), "gpu1", SystemClock()):
    print("mine", flush=True)
    sys.stdin.read()
"""


def _holder(state: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", _HOLD, str(state)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    return process


def test_a_second_command_is_told_who_is_at_work(tmp_path: Path) -> None:
    """Busy, with the process and since when; another host is free; afterwards so is this one."""
    with _holder(tmp_path) as process:
        with pytest.raises(Busy) as told, sole_turn(tmp_path, "gpu1", CLOCK):
            pytest.fail("two turns at once")
        assert told.value.problems[0].facts["pid"] == str(process.pid)
        assert told.value.problems[0].facts["since"].endswith("+00:00")
        with sole_turn(tmp_path, "gpu2", CLOCK):
            process.communicate()
    with sole_turn(tmp_path, "gpu1", CLOCK):
        assert process.returncode == 0


def test_a_killed_command_has_no_turn(tmp_path: Path) -> None:
    """SIGKILL gives it back at once: what the dead one left can be put back."""
    with _holder(tmp_path) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with sole_turn(tmp_path, "gpu1", CLOCK):
            assert process.returncode == -signal.SIGKILL


def test_a_state_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """No traceback where the turn cannot be noted."""
    (tmp_path / "turns").write_text("in the way")
    with pytest.raises(Refused), sole_turn(tmp_path, "gpu1", CLOCK):
        pytest.fail("no lock")
