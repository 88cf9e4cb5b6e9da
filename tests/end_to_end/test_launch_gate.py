"""Nothing is launched on memory that is not free, and an end with code 0 is a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.controller import reap
from tests.end_to_end.conftest import Bench
from tests.end_to_end.test_lab_run import EDIT, MARKER


def wrap_gpu_tool(bench: Bench, script: str) -> Path:
    """`script` sees the arguments, and `$REAL` answers them; returns a folder for its notes."""
    tool = bench.lab.root / "bin" / "nvidia-smi"
    real = tool.rename(tool.with_name("real-smi"))
    notes = bench.lab.root / "notes"
    notes.mkdir()
    tool.write_text(f"#!/bin/sh\nREAL={real}; NOTES={notes}\n{script}\n")
    tool.chmod(0o755)
    return notes


HELD = "echo x >> $NOTES/asked; n=$(wc -l < $NOTES/asked)\n"


def test_memory_that_comes_back_late_is_waited_for(bench: Bench) -> None:
    """S07: the container has exited and the driver still reclaims; the launch waits for the measured level."""
    assert bench.run("host", "reap", "lab", "--hosts", str(bench.lab.hosts_file))[0] == 0
    notes = wrap_gpu_tool(
        bench,
        f'case "$*" in *index,memory.used*) {HELD}'
        'if [ "$n" -le 4 ]; then for i in 0 1 2 3 4 5 6 7; do echo "$i, 81000"; done; exit 0; fi;; esac\n'
        'exec $REAL "$@"',
    )
    code, summary = bench.run("run", str(bench.write_playbook([MARKER])))
    assert code == 0, summary
    assert len((notes / "asked").read_text().splitlines()) > 4
    assert summary["findings"][0]["verdict"] in ("no_effect", "inconclusive")


def test_memory_that_nobody_gives_back_refuses_the_launch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 5 before anything is launched, with the card, its level, and that nobody can be seen to hold it; the
    ledger keeps why."""
    monkeypatch.setattr(reap, "MEMORY_DEADLINE_S", 1.0)
    assert bench.run("host", "reap", "lab", "--hosts", str(bench.lab.hosts_file))[0] == 0
    wrap_gpu_tool(bench, 'case "$*" in *index,memory.used*) echo "2, 81000"; exit 0;; esac\nexec $REAL "$@"')
    code, shown = bench.run("run", str(bench.write_playbook([MARKER])))
    assert code == 5, shown
    facts = shown["error"]["problems"][0]["facts"]
    assert facts["GPU 2"] == "81000 MiB above its idle level of 0 MiB"
    assert "nobody that can be seen" in facts["holders"]
    _, trail = bench.run("ledger", "trail")
    (why,) = [event["details"] for event in trail if event["what"] == "run_failed"]
    assert (why["kind"], why["facts"]["GPU 2"]) == ("refused", facts["GPU 2"])


def test_a_server_that_exits_with_code_0_has_crashed(bench: Bench) -> None:
    """S11: log and health decide, not the code."""
    edit = {**EDIT, "replace": "import sys\nsys.exit(0)"}
    row = {"id": "zero", "changes": [{"patch": {"edits": [edit]}}]}
    code, summary = bench.run("run", str(bench.write_playbook([row])))
    assert code == 0
    finding = summary["findings"][0]
    assert finding["verdict"] == "crashed"
    assert "exit code 0" in "; ".join(finding["evidence"])


def test_a_full_gpu_of_somebody_else_does_not_pass_for_the_treatment(bench: Bench) -> None:
    """A cache that shrank by more than 5 % without a declared reason makes the launch invalid, with both numbers."""
    grow = {
        "file": "sglang/srt/managers/scheduler.py",
        "find": 'pipe.send({"ready": rank, "max_total_num_tokens": runner.max_total_num_tokens})',
        "replace": 'pipe.send({"ready": rank, "max_total_num_tokens": runner.max_total_num_tokens // 10})',
    }
    row = {"id": "smaller", "changes": [{"patch": {"edits": [grow]}}]}
    code, summary = bench.run("run", str(bench.write_playbook([row])))
    assert code == 0
    finding = summary["findings"][0]
    assert finding["verdict"] == "invalid", finding
    assert "-90%" in finding["cause"] and "the baseline's" in finding["cause"]


def test_a_variable_is_seen_in_every_rank(bench: Bench) -> None:
    """S24: a variable set at the launch is looked up in each of them, and not only in the main process."""
    row = {"id": "env", "changes": [{"env": {"NCCL_NTHREADS": "64"}}]}
    code, summary = bench.run("run", str(bench.write_playbook([row])))
    assert code == 0
    shown = bench.run("experiment", "show", str(summary["findings"][0]["experiment_id"]))[1]
    checks = {c["what"]: c["holds"] for c in shown["arms"][0]["launches"][0]["facts"]["checks"]}
    assert checks["environment NCCL_NTHREADS in 9 ranks"] is True
