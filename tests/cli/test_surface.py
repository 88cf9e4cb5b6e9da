"""The command line itself: start-up, exit codes, errors as blocks, JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import errors
from orchestrator.cli.diagnostics import render
from orchestrator.cli.main import run_command
from orchestrator.cli.output import printable

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("rich", "pydantic", "paramiko", "sqlalchemy", "sqlmodel", "textual", "git", "alembic", "ruamel")


def test_help_loads_no_heavy_library() -> None:
    """`--help` costs the command-line library and nothing else."""
    code = (
        "import sys\nfrom orchestrator.cli.main import run_command\nrun_command(['--help'])\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "demo" in done.stdout


def test_a_run_connects_before_it_loads_how_to_judge() -> None:
    """What is wanted only once the host is open is loaded while the host answers."""
    code = "import sys, orchestrator.controller.run; print([m for m in sys.modules if m.startswith(sys.argv[1])])"
    later = "orchestrator.core.diagnosis"
    done = subprocess.run([sys.executable, "-c", code, later], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_documented_exit_codes_are_the_real_ones() -> None:
    """The table in docs/exit-codes.md names every kind of error with its code, and no other."""
    text = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    table = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", text, re.MULTILINE)}
    kinds = {k: c for k, c in errors.all_kinds().items() if k != "playbook"}
    assert table == kinds


def test_an_error_is_shown_with_place_caret_facts_and_hint() -> None:
    """What, where with the line and a caret, facts, and the hint last."""
    where = errors.Place("p.yaml", 3, 5, "    leese: 10m")
    text = render("playbook", errors.Problem("unknown key", where, "did you mean 'lease'?", {"known": "lease"}))
    lines = text.splitlines()
    assert lines[0] == "error[playbook]: unknown key"
    assert lines[1].strip() == "--> p.yaml:3:5"
    assert lines[3].index("^") == lines[2].index("leese")
    assert lines[-1].startswith("hint: did you mean")


def test_what_a_host_printed_cannot_steer_the_terminal() -> None:
    """Escape sequences in host output become visible text."""
    assert "\x1b" not in printable("a\x1b[31mred\x1b[0m\a")
    assert "\x1b" not in render("x", errors.Problem("w\x1b]0;t\a", None, "h\x1b[2J", {"f": "\x1b[H"}))


@pytest.mark.parametrize("words", [["no-such-command"], ["run"], ["host", "doctor"], ["run", "x.yaml", "--colour"]])
def test_a_bad_command_line_is_a_usage_error_with_a_hint(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, our own shape, and where to read on."""
    assert run_command(words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error[usage]: ")
    assert "--help" in shown


def test_an_error_under_json_is_one_document_on_stdout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Machine readers find kind, code, problems and hints where the data would be."""
    code = run_command(["check", str(tmp_path / "absent.yaml"), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert code == 2
    assert shown["error"]["exit_code"] == 2
    assert shown["error"]["problems"][0]["what"]


def test_diagnose_names_the_cause_and_its_exit_code_says_whether_all_is_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An array with one object a file; 1 when a log is not healthy, 0 when all are."""
    logs = ROOT / "tests" / "fixtures" / "logs"
    healthy = str(next(logs.glob("G21*")))
    assert run_command(["diagnose", healthy, "--json"]) == 0
    assert [d["outcome"] for d in json.loads(capsys.readouterr().out)] == ["healthy"]
    crashed = str(next(logs.glob("G06*")))
    assert run_command(["diagnose", healthy, crashed, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)[1]
    assert found["category"] == "device_assert"
    assert found["cause_line"] in Path(crashed).read_text().splitlines()[found["cause_lineno"] - 1]


def test_a_working_directory_that_was_deleted_is_a_usage_error(tmp_path: Path) -> None:
    """Exit code 2 and a sentence, not a traceback."""
    code = (
        "import os, sys\nfrom orchestrator.cli.main import main\n"
        "os.mkdir(sys.argv[1])\nos.chdir(sys.argv[1])\nos.rmdir(sys.argv[1])\nmain(['config', 'show'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "gone")], capture_output=True, text=True)
    assert done.returncode == 2
    assert "working directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_ctrl_c_while_python_leaves_keeps_the_exit_code() -> None:
    """130 is what a caller sees, not a death by signal: the signal comes when everything has been said and done."""
    code = (
        "import atexit, os, signal, sys\nfrom orchestrator.cli import main as cli\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "cli.run_command = lambda words: 130\ncli.main([])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr == ""
