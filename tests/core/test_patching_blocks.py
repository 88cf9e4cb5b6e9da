"""Blocks in sitecustomize, run in real interpreters: exact, guarded, and seen when they fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.core.patching import (
    Block,
    env_source,
    marker_ids,
    plan_files,
    with_block,
)
from orchestrator.errors import PatchConflict, UsageError


def run_python(source: bytes, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_bytes(source)
    code = "import os, sitecustomize as s; print(os.environ.get('K'), os.environ.get('GONE'), getattr(s, 'mine', None))"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(folder), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_block_sets_and_removes_variables_exactly(tmp_path: Path) -> None:
    """The block runs in a real interpreter behind what was found there, and its values arrive byte for byte."""
    value = "a'b\"c\\n\\ {x} $HOME é\n2"
    source = with_block(b"mine = 7", env_source({"K": value, "GONE": None}), "run-1")
    assert source.startswith(b"mine = 7\n# >>> orchestrator run-1 >>>")
    done = run_python(source, tmp_path, GONE="here", PYTHONUTF8="1")
    assert (done.stdout, done.stderr) == (f"{value} None 7\n", "")


@pytest.mark.parametrize("body", ["raise RuntimeError('boom')", "raise SystemExit(3)", "import no_such_module_here"])
def test_a_failing_block_is_seen_and_stops_nothing(tmp_path: Path, body: str) -> None:
    """An exception in the block, SystemExit included, is written to stderr and the interpreter starts all the same."""
    done = run_python(with_block(b"mine = 7\n", body, "run-1"), tmp_path, K="kept")
    assert (done.returncode, done.stdout) == (0, "kept None 7\n")
    assert "block run-1 in sitecustomize failed" in done.stderr
    assert "Traceback" in done.stderr


def test_a_long_string_in_a_block_keeps_its_value(tmp_path: Path) -> None:
    """Guarding indents the code, never the inner lines of a string."""
    block = 'import os\nos.environ["K"] = """one\ntwo\n  three"""\nif True:\n\tos.environ["GONE"] = "tab"\n'
    done = run_python(with_block(None, block, "b"), tmp_path)
    assert done.stdout == "one\ntwo\n  three tab None\n"


def test_a_second_block_is_refused_unless_it_belongs_to_the_same_change_set() -> None:
    """A block left over from another run is a conflict with its line; one planned beside it is not."""
    once = with_block(b"x = 1\n", "y = 1", "old")
    with pytest.raises(PatchConflict) as caught:
        with_block(once, "y = 2", "new")
    assert caught.value.facts == {"block": "old", "line": "2"}
    assert marker_ids(with_block(once, "y = 2", "new", beside=["old"])) == ["old", "new"]
    with pytest.raises(PatchConflict):
        with_block(once, "y = 2", "old", beside=["old"])
    with pytest.raises(PatchConflict) as planned:
        plan_files([Block("s.py", "y = 2", "new")], {"s.py": once})
    assert planned.value.facts["file"] == "s.py"


@pytest.mark.parametrize(
    ("block", "marker_id"),
    [
        ("x =", "a"),
        ("", "a"),
        ("# nothing", "a"),
        ("from __future__ import annotations", "a"),
        ("x=1", "a b"),
        ("\0", "a"),
    ],
)
def test_a_block_that_cannot_be_guarded_is_refused(block: str, marker_id: str) -> None:
    """What is not Python, does nothing, or cannot stand inside `try` is refused before anything is written."""
    with pytest.raises(UsageError):
        with_block(None, block, marker_id)


def test_a_block_is_written_in_the_encoding_of_the_file() -> None:
    """A Latin-1 file stays one; text it cannot hold is refused."""
    found = b"# -*- coding: latin-1 -*-\nx = '\xe9'\n"
    assert "y = 'é'".encode("latin-1") in with_block(found, "y = 'é'", "a")
    with pytest.raises(UsageError, match="encoding"):
        with_block(found, "y = '→'", "a")


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A": "x\0"}])
def test_an_impossible_variable_is_refused(env: dict[str, str | None]) -> None:
    """What no environment can hold never reaches a host."""
    with pytest.raises(UsageError):
        env_source(env)
