"""Verdicts come out of what the host is, never out of a table: other constants and gates, other verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.lab import create
from tests.end_to_end.conftest import Bench

EXPERT_PARALLEL = {"id": "expert-parallel", "context": "speculative", "changes": [{"args": {"ep-size": 8}}]}
SPECULATIVE = {
    "args": {"speculative-algorithm": "EAGLE3", "speculative-num-steps": 2, "speculative-num-draft-tokens": 3}
}


def bench_with(tmp_path: Path, capsys: pytest.CaptureFixture[str], **constants: float) -> Bench:
    return Bench(create(tmp_path / "lab", constants=constants), tmp_path / "state", capsys)


def expert_parallel(bench: Bench) -> dict[str, object]:
    measure = {"repetitions": 2, "launches": 3}  # a gain of a fifth on a busy machine may take a second launch
    playbook = bench.write_playbook([EXPERT_PARALLEL], contexts={"speculative": SPECULATIVE}, measure=measure)
    code, summary = bench.run("run", str(playbook))
    assert code == 0, summary
    return dict(summary["findings"][0])


def test_one_constant_turns_a_win_into_a_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Expert parallelism wins with cheap exchanges and loses once an exchange costs ten times as much."""
    assert expert_parallel(bench_with(tmp_path / "cheap", capsys))["verdict"] == "improved"
    dear = expert_parallel(bench_with(tmp_path / "dear", capsys, all_to_all_verify_ms=0.95))
    assert dear["verdict"] == "regressed"


def test_one_gate_turns_a_crash_into_a_measurement(bench: Bench) -> None:
    """The fused all-reduce crashes while FlashInfer's table lacks this architecture, and is measured once it has it;
    the dead end reopens by itself, because the version it depends on has changed."""
    playbook = bench.write_playbook(
        [
            {
                "id": "fused",
                "revisit_when": ["flashinfer-python"],
                "changes": [{"patch": "patches/fused-all-reduce.patch"}],
            }
        ]
    )
    code, summary = bench.run("run", str(playbook))
    assert code == 0, summary
    assert summary["findings"][0]["verdict"] == "crashed"
    assert "No supported CUDA architectures" in summary["findings"][0]["cause"]
    assert bench.run("run", str(playbook))[1]["findings"] == []
    table = bench.lab.site / "flashinfer" / "jit" / "architectures.py"
    table.write_text(table.read_text().replace("[9, 10]", "[9, 10, 12]").replace("(9, 10)", "(9, 10, 12)"))
    metadata = next(bench.lab.site.glob("flashinfer_python-*.dist-info/METADATA"))
    metadata.write_text(metadata.read_text().replace("Version: 0.6", "Version: 0.9"))
    code, summary = bench.run("run", str(playbook))
    assert code == 0, summary
    assert summary["findings"][0]["verdict"] == "improved"
