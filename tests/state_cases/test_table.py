"""The table of cases holds, and the one case that is a diagnosis."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from orchestrator.core.diagnosis import diagnose

ROOT = Path(__file__).parents[2]
ROWS = [line for line in (ROOT / "docs" / "state-cases.md").read_text().splitlines() if line.startswith("| S")]


def test_every_case_names_living_tests() -> None:
    """S01 to S36, each once and in order; each test named exists under that name in that file."""
    assert [row.split("|")[1].strip() for row in ROWS] == [f"S{number:02d}" for number in range(1, 37)]
    for row in ROWS:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for path, test in named:
            tree = ast.parse((ROOT / path).read_text())
            assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (path, test)


ALL_REDUCE = """\
[2026-11-29 10:00:01 TP0] Load weight end. elapsed=80.1 s, type=KimiK25, avail mem=20.1 GB, mem usage=60.0 GB.
[2026-11-29 10:00:20 TP0] Capture cuda graph begin. This can take up to several minutes.
[2026-11-29 10:01:02 TP0] Capture cuda graph end. Time elapsed: 41.77 s. mem usage=2.11 GB.
Failed: Cuda error /sgl-workspace/sglang/sgl-kernel/csrc/allreduce/custom_all_reduce.cuh:455 'invalid argument'
[2026-11-29 10:01:04] Received sigquit from a child process. It usually means the child failed.
"""


def test_the_variable_that_breaks_custom_all_reduce_is_suspected() -> None:
    """S36: no Python traceback; the changed variable is named, and a change that has nothing to do with it is not."""
    names = {"env:1": ("PYTORCH_CUDA_ALLOC_CONF",), "args:2": ("--watchdog-timeout",)}
    found = diagnose(ALL_REDUCE, exit_code=-9, changed_names=names)
    assert found.outcome == "failed"
    assert "custom_all_reduce.cuh" in (found.cause_line or "")
    assert found.suspects == ("env:1",)
