"""What a command does when nobody reads what it says, or cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SPEAK = """
import sys
from orchestrator.cli.streams import secure_streams
secure_streams()
for number in range(100):
    print("narration", number, file=sys.stderr, flush=True)
open(sys.argv[1], "w").write("to the end")
"""


@pytest.mark.parametrize("where", ["reader left", "disk full", "closed"])
def test_narration_that_cannot_be_written_stops_nothing(tmp_path: Path, where: str) -> None:
    """The work goes on to its end, and the exit code is that of the work."""
    done = tmp_path / "done"
    words = [sys.executable, "-c", _SPEAK, str(done)]
    if where == "reader left":
        read_end, write_end = os.pipe()
        os.close(read_end)
    else:
        write_end = os.open("/dev/full" if where == "disk full" else os.devnull, os.O_WRONLY)
    if where == "closed":
        words = ["sh", "-c", 'exec "$@" 2>&-', "sh", *words]
    try:
        ended = subprocess.run(words, stderr=write_end)
    finally:
        os.close(write_end)
    assert ended.returncode == 0
    assert done.read_text() == "to the end"


def test_a_locale_without_our_characters_gets_escapes() -> None:
    """An arrow is written as an escape where the locale has none, and nothing fails."""
    code = "from orchestrator.cli.streams import secure_streams\nsecure_streams()\nprint('a \\u2192 b')\n"
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=ascii_only, capture_output=True, text=True, check=True)
    assert done.stdout == "a \\u2192 b\n"


def test_a_closed_standard_output_is_no_bug() -> None:
    """`>&-` costs the data and nothing else."""
    words = [sys.executable, "-m", "orchestrator.cli.main", "config", "show"]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *words], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == ""


def test_data_that_cannot_be_written_is_told() -> None:
    """A full disk behind standard output is an error with a sentence, and not a success."""
    words = [sys.executable, "-m", "orchestrator.cli.main", "playbook", "schema"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 5
    assert "standard output cannot be written: No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_read_enough_is_no_failure() -> None:
    """`| head` ends a listing early, with exit code 0 and without a word."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    words = [sys.executable, "-m", "orchestrator.cli.main", "playbook", "schema"]
    try:
        done = subprocess.run(words, stdout=write_end, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")
