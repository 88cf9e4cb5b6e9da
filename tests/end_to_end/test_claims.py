"""GPUs and port on whole runs: another tree on the same cards waits its turn, another lab does not notice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from orchestrator.lab import create
from tests.end_to_end.conftest import Bench
from tests.end_to_end.test_lab_run import MARKER, start_run, wait_for


def locks() -> set[str]:
    return {str(p) for folder in ("/run/lock", "/tmp") for p in Path(folder).glob("orchestrator-file-*")}


def test_another_tree_on_the_same_cards_is_told_who_has_them(bench: Bench, tmp_path: Path) -> None:
    """Exit code 6 with the card, holder, since and until; nothing is launched or changed, and the first goes on."""
    twin = tmp_path / "twin" / "sglang"
    shutil.copytree(bench.lab.source, twin)
    process = start_run(bench, bench.write_playbook([MARKER], workload={"prompt_tokens": 8, "output_tokens": 300}))
    wait_for(process, "launch ok")
    inventory = bench.inventory()
    inventory["targets"]["kimi-lab"]["source"] = str(twin)
    hosts = tmp_path / "twin.json"
    hosts.write_text(json.dumps(inventory))
    other = Bench(bench.lab, tmp_path / "other-state", bench.capsys)
    code, shown = other.run("run", str(bench.lab.root / "bench.yaml"), "--hosts", str(hosts))
    assert code == 6, shown
    facts = shown["error"]["problems"][0]["facts"]
    assert facts["resource"].startswith("device:")
    assert {"holder", "since", "until"} <= facts.keys()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert other.run("experiment", "list")[1]["experiments"] == []


def test_two_labs_do_not_disturb_each_other(bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both run at the same time on one machine, and leave no lock behind."""
    other = Bench(create(tmp_path / "second"), tmp_path / "second-state", capsys)
    process = start_run(bench, bench.write_playbook([MARKER]))
    wait_for(process, "launch ok")
    code, shown = other.run("run", str(other.write_playbook([MARKER])))
    assert code == 0, shown
    process.communicate(timeout=60)
    assert process.returncode == 0
    for lab in (bench.lab, other.lab):
        inodes = {f"{p.stat().st_ino:x}" for p in (lab.root / "dev").iterdir()}
        assert not [name for name in locks() if name.rpartition("-")[2] in inodes]
