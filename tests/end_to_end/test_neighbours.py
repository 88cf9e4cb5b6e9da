"""Somebody else runs from the tree: named by plan, doctor and run, and only a person's word or a copy goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.end_to_end.conftest import Bench
from tests.end_to_end.test_lab_run import MARKER


@pytest.fixture
def neighbour(bench: Bench) -> Iterator[subprocess.Popen[str]]:
    """A colleague's process of the same interpreter."""
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    python = str(bench.inventory()["targets"]["kimi-lab"]["python"])
    process = subprocess.Popen([python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.communicate("")


def test_a_change_in_place_needs_agreement_and_names_the_neighbour(
    bench: Bench, neighbour: subprocess.Popen[str]
) -> None:
    """Exit code 5 with its pid and the way out, nothing changed; --yes goes on and leaves it alone."""
    playbook = str(bench.write_playbook([MARKER]))
    before = bench.tree()
    code, shown = bench.run("run", playbook)
    assert code == 5, shown
    problem = shown["error"]["problems"][0]
    assert f"pid {neighbour.pid}" in problem["facts"]
    assert "tree: shadow" in problem["hint"]
    assert bench.tree() == before
    code, shown = bench.run("run", playbook, "--yes")
    assert code == 0, shown
    assert neighbour.poll() is None


def test_plan_and_doctor_suggest_a_copy(bench: Bench, neighbour: subprocess.Popen[str]) -> None:
    _, drawn = bench.run("plan", str(bench.write_playbook([MARKER])))
    assert any(f"pid {neighbour.pid}" in s and "tree: shadow" in s for s in drawn["advice"])
    _, shown = bench.run("host", "doctor", "lab", "--hosts", str(bench.lab.hosts_file))
    step = next(s for s in shown["steps"] if s["name"] == "sharing")
    assert step["state"] == "warn"
    assert str(neighbour.pid) in json.dumps(step)


def test_a_copy_or_a_change_without_files_asks_nobody(bench: Bench, neighbour: subprocess.Popen[str]) -> None:
    """A flag changes no tree; a shadow changes a tree of its own."""
    row = {"id": "flag", "changes": [{"args": {"cuda-graph-max-bs": 8}}]}
    code, shown = bench.run("run", str(bench.write_playbook([row])))
    assert code == 0, shown
    inventory = bench.inventory()
    inventory["targets"]["kimi-lab"] |= {"tree": "shadow", "shadow_dir": str(bench.lab.root / "copies")}
    bench.write_inventory(inventory)
    code, shown = bench.run("run", str(bench.write_playbook([MARKER])))
    assert code == 0, shown
    assert neighbour.poll() is None


def test_without_neighbours_nothing_is_asked_or_advised(bench: Bench) -> None:
    playbook = str(bench.write_playbook([MARKER]))
    assert bench.run("plan", playbook)[1]["advice"] == []
    assert bench.run("run", playbook)[0] == 0
