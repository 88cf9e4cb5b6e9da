"""The real engine from a copy of its package: the installed tree is not touched, and stays as its wheel says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli.main import run_command
from tests.end_to_end.rig import find_rig, free_port

PLAYBOOK = Path(__file__).parents[2] / "playbooks" / "sglang-cpu.yaml"


@pytest.mark.sglang
@pytest.mark.timeout(900)
def test_real_sglang_runs_from_a_copy_and_its_installation_is_as_the_wheel_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A marker in every rank's log proves that the copy runs; no file of the installation changes its inode or
    change time; `verify --against record` finds every file as shipped, before and after."""
    rig = find_rig()
    target = {**rig.target(free_port()), "tree": "shadow", "shadow_dir": str(tmp_path / "copies")}
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text(json.dumps({"hosts": {"rig": {"target": "tiny"}}, "targets": {"tiny": target}}))
    state = tmp_path / "state"
    where = ["--hosts", str(hosts), "--state", str(state)]
    files = [p for p in sorted(rig.source.rglob("*")) if "__pycache__" not in p.parts]
    before = {str(p): (p.lstat().st_ino, p.lstat().st_ctime_ns) for p in files}
    assert run_command(["host", "verify", "rig", "--against", "record", *where]) == 0
    capsys.readouterr()
    code = run_command(["run", str(PLAYBOOK), "--only", "log-marker", "--json", *where])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    summary = json.loads(shown.out)
    assert summary["findings"][0]["verdict"] in {"improved", "regressed", "no_effect", "inconclusive"}
    assert summary["host_state"] == "clean"
    assert {str(p): (p.lstat().st_ino, p.lstat().st_ctime_ns) for p in files} == before
    assert rig.differences_from_wheel() == ""
    assert run_command(["host", "verify", "rig", "--against", "record", *where]) == 0
    assert run_command(["host", "forget", "rig", *where]) == 0
    assert list((tmp_path / "copies").iterdir()) == []
