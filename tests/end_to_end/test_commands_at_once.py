"""Several commands of one state directory at the same time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.end_to_end.conftest import Bench

MARKER = {
    "id": "marker",
    "claim": "a variable is set",
    "changes": [{"env": {"A": "1"}}],
}


@pytest.mark.parametrize("words", [["run"], ["host", "verify"], ["host", "recover"], ["host", "forget"]])
def test_a_command_does_not_take_over_from_one_that_lives(bench: Bench, words: list[str]) -> None:
    """Exit code 6 names the process at work; the first run ends as if nobody had come."""
    playbook = bench.write_playbook([MARKER])
    command = [sys.executable, "-m", "orchestrator.cli.main", "run", str(playbook), "--state", str(bench.state)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as first:
        assert first.stderr is not None
        assert any("ready ok" in line for line in first.stderr)
        inventory = ["--hosts", str(bench.lab.root / "hosts.yaml")]
        code, shown = bench.run(*words, *([str(playbook)] if words == ["run"] else ["lab", *inventory]))
        first.communicate(timeout=60)
    assert code == 6
    assert shown["error"]["problems"][0]["facts"]["pid"] == str(first.pid)
    assert first.returncode == 0
