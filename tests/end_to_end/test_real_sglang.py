"""The main job on the real engine: unmodified SGLang, tensor parallel 2, through a real sshd."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli.main import run_command
from tests.end_to_end.rig import find_rig, free_port
from tests.sshd import Sshd

PLAYBOOK = Path(__file__).parents[2] / "playbooks" / "sglang-cpu.yaml"


@pytest.mark.sglang
@pytest.mark.timeout(900)
def test_patches_are_measured_diagnosed_and_reverted_on_real_sglang(
    sshd: Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The marker proves a live patch, the right edit is measured, the broken one crashes with its NameError as the
    cause, and afterwards every file below sglang/ matches the wheel's RECORD."""
    rig = find_rig()
    assert rig.differences_from_wheel() == ""
    inventory = {
        "hosts": {"rig": {"route": sshd.route().model_dump(mode="json", exclude_unset=True), "target": "tiny"}},
        "targets": {"tiny": rig.target(free_port())},
    }
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text(json.dumps(inventory))
    state = tmp_path / "state"
    code = run_command(["run", str(PLAYBOOK), "--hosts", str(hosts), "--state", str(state), "--json"])
    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    assert code == 0, shown.err
    findings = {f["hypothesis_id"]: f for f in summary["findings"]}
    measured = {"improved", "regressed", "no_effect", "inconclusive"}
    assert findings["log-marker"]["verdict"] in measured
    assert findings["sm120-fusion-gate"]["verdict"] in measured
    assert findings["sm120-fusion-gate-broken"]["verdict"] == "crashed"
    assert "NameError: name '_is_sm120_supported' is not defined" in findings["sm120-fusion-gate-broken"]["cause"]
    assert summary["host_state"] == "clean"
    assert rig.differences_from_wheel() == ""
    assert run_command(["ledger", "check", "--state", str(state)]) == 0
    assert run_command(["host", "verify", "rig", "--hosts", str(hosts), "--state", str(state)]) == 0
    assert run_command(["host", "forget", "rig", "--hosts", str(hosts), "--state", str(state)]) == 0
    assert list(rig.site.glob(".orchestrator*")) == []
