"""Bundles that fail on the simulated host: told apart by real launches, also by a run that was killed at it."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.end_to_end.conftest import Bench, processes_of
from tests.end_to_end.test_lab_run import start_run, wait_for

BROKEN = {"file": "sglang/launch_server.py", "find": "import sys", "replace": "import sys\nimport no_such_module"}
BUNDLE: dict[str, Any] = {
    "id": "both",
    "bundle": "launched together",
    "family": "a",
    "changes": [{"patch": {"edits": [BROKEN]}}, {"env": {"LAB_NOTE": "x"}}],
}


@pytest.mark.parametrize("killed_at", [None, "both (plain), treatment 1\x00launch ok", "isolating both"])
def test_a_bundle_that_fails_is_taken_apart_also_by_a_run_that_was_killed(bench: Bench, killed_at: str | None) -> None:
    """The broken import is named, the innocent variable is measured alone in the same run, every question is an
    experiment with a proof, and no launch that came to an end is done again."""
    before = bench.tree()
    playbook = bench.write_playbook([BUNDLE])
    if killed_at is not None:
        process = start_run(bench, playbook)
        for phase in killed_at.split("\x00"):
            wait_for(process, phase)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    code, summary = bench.run("run", str(playbook), *(["--resume"] if killed_at else []))
    assert code == 0, summary
    assert summary["returned"] == ["both.alone-2"]
    assert any("at fault: launch_server.py edit 1 (proved" in note for note in summary["notes"])
    findings = bench.run("finding", "list")[1]["findings"]
    assert sorted((f["hypothesis_id"], f["verdict"]) for f in findings if f["hypothesis_id"] == "both") == [
        ("both", "crashed")
    ]
    assert {f["hypothesis_id"] for f in findings} == {"both", "both.alone-2"}
    rows = {row["id"]: row for row in bench.run("todo", "list")[1]["todo"]}
    assert rows["both.alone-2"]["origin"] == "isolation"
    assert bench.tree() == before
    assert processes_of(bench.lab.root) == []
    assert bench.run("ledger", "check") == (0, {"problems": []})
