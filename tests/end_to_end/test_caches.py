"""Compile caches on whole runs: own where a kernel source changes, told by plan and ledger, gone afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Bench

KERNEL = {"id": "kernel", "changes": [{"file": {"path": "sglang/srt/layers/csrc/reduce.cuh", "content": "// faster"}}]}


def facts(bench: Bench) -> dict[str, Any]:
    row = bench.run("experiment", "list")[1]["experiments"][-1]
    shown = bench.run("experiment", "show", str(row["id"]))[1]
    experiment = shown.get("experiment", shown)
    return dict(experiment["arms"][-1]["launches"][-1]["facts"])


@pytest.mark.parametrize(("policy", "own"), [("auto", True), ("shared", False), ("own", True)])
def test_a_kernel_source_runs_with_caches_of_its_own(bench: Bench, policy: str, own: bool) -> None:
    """The ledger has names and reason; nothing of them is left, and verify finds the host clean."""
    code, summary = bench.run("run", str(bench.write_playbook([KERNEL], caches=policy)))
    assert code == 0, summary
    told = facts(bench)["own_caches"]
    assert ("TRITON_CACHE_DIR" in told["names"]) is own
    assert told["why"]
    assert not [p for p in Path("/tmp").glob("orc-*/caches") if str(bench.lab.root) in str(p.resolve())]
    code, shown = bench.run("host", "verify", "lab", "--hosts", str(bench.lab.hosts_file))
    assert code == 0, shown


def test_plan_says_which_caches_and_why(bench: Bench) -> None:
    _, drawn = bench.run("plan", str(bench.write_playbook([KERNEL])))
    assert any("reduce.cuh is a source of compiled kernels" in remark for remark in drawn["trials"][0]["remarks"])
