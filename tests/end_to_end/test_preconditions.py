"""What cannot work is said before anything is launched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli.main import run_command
from tests.end_to_end.conftest import Bench
from tests.end_to_end.rig import find_rig, free_port


def test_a_variable_that_nothing_reads_is_not_applicable(bench: Bench) -> None:
    """The name is in no registry and no file of the tree: no launch, and the evidence says which."""
    row = {"id": "noop", "changes": [{"env": {"SGLANG_FORCE_CUSTOM_AR_PCIE": "1"}}]}
    code, summary = bench.run("run", str(bench.write_playbook([row])))
    assert code == 0
    finding = summary["findings"][0]
    assert finding["verdict"] == "not_applicable"
    assert "SGLANG_FORCE_CUSTOM_AR_PCIE" in finding["cause"]
    assert summary["launches"] == 0


@pytest.mark.sglang
def test_real_flags_and_variables_are_known_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On real SGLang: an unknown flag and an unread variable are told from known ones, and from one that a patch
    makes known; nothing is launched."""
    rig = find_rig()
    read = {"file": "sglang/srt/layers/communicator.py", "find": "import logging", "count": 1}
    reader = {**read, "replace": "import logging\nimport os\nos.environ.get('SGLANG_FORCE_CUSTOM_AR_PCIE')"}
    changes: dict[str, list[dict[str, object]]] = {
        "flag": [{"args": {"cuda-graph-max-bz": 8}}],
        "known-flag": [{"args": {"cuda-graph-max-bs": 8}}],
        "env": [{"env": {"SGLANG_FORCE_CUSTOM_AR_PCIE": "1"}}],
        "known-env": [{"env": {"SGLANG_CACHE_DIR": "/tmp/x"}}],
        "patched-env": [{"env": {"SGLANG_FORCE_CUSTOM_AR_PCIE": "1"}}, {"patch": {"edits": [reader]}}],
    }
    rows = [{"id": i, "claim": "c", "bundle": "together", "changes": c} for i, c in changes.items()]
    playbook = {
        "campaign": "words",
        "hosts": {"rig": {"route": "local", "target": rig.target(free_port())}},
        "hypotheses": rows,
    }
    path = tmp_path / "words.yaml"
    path.write_text(json.dumps(playbook))
    assert run_command(["plan", str(path), "--state", str(tmp_path / "state"), "--json"]) == 0
    trials = {t["hypothesis"]: t for t in json.loads(capsys.readouterr().out)["trials"]}
    unmet = {name: trial["why_not"] for name, trial in trials.items() if trial["why_not"]}
    assert set(unmet) == {"flag", "env"}
    assert "perhaps --cuda-graph-max-bs" in unmet["flag"]
    assert "nothing in the engine's source reads SGLANG_FORCE_CUSTOM_AR_PCIE" in unmet["env"]
