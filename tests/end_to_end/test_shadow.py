"""`tree: shadow`: the found tree is never written, and everything else is as in place."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Bench
from tests.end_to_end.test_lab_run import MARKER, processes_of, start_run, wait_for


@pytest.fixture
def shadow(bench: Bench, tmp_path: Path) -> Bench:
    """A lab whose target is a shadow, with copies in a directory of the test's own."""
    inventory = bench.inventory()
    inventory["targets"]["kimi-lab"] |= {"tree": "shadow", "shadow_dir": str(tmp_path / "copies")}
    bench.write_inventory(inventory)
    return bench


def copies(tmp_path: Path) -> list[Path]:
    """Packages below the directory of copies; empty when all were taken away."""
    return [p for p in (tmp_path / "copies").glob("shadow-*/*") if p.is_dir()]


def times(bench: Bench) -> dict[str, Any]:
    """The found tree and the folder around it, with what any write would change: inode and change time."""
    site = bench.lab.source.parent
    return {str(p): (p.lstat().st_ino, p.lstat().st_ctime_ns) for p in [site, *sorted(bench.lab.source.rglob("*"))]}


def test_the_found_tree_is_not_written_and_the_copy_goes(shadow: Bench, tmp_path: Path) -> None:
    """Measured like any other; not an inode or change time of the found tree moves, and no copy is left."""
    before, contents = times(shadow), shadow.tree()
    code, summary = shadow.run("run", str(shadow.write_playbook([MARKER])))
    assert code == 0, summary
    assert summary["findings"][0]["verdict"] in ("no_effect", "inconclusive", "improved", "regressed")
    assert summary["host_state"] == "clean"
    assert times(shadow) == before
    assert shadow.tree() == contents
    assert copies(tmp_path) == []
    assert processes_of(shadow) == []
    assert shadow.run("host", "verify", "lab", "--hosts", str(shadow.lab.hosts_file))[0] == 0
    assert shadow.run("ledger", "check")[0] == 0


def test_the_server_runs_from_the_copy(shadow: Bench, tmp_path: Path) -> None:
    """While the treatment serves, the copy holds the change and the found file does not; the check saw the import."""
    process = start_run(shadow, shadow.write_playbook([MARKER], workload={"prompt_tokens": 8, "output_tokens": 64}))
    wait_for(process, "treatment 1")
    wait_for(process, "ready ok")
    copy = copies(tmp_path)[0]
    assert b"import json" in (copy / "launch_server.py").read_bytes()
    assert (copy / "launch_server.py").stat().st_nlink == 1
    assert b"import json" not in (shadow.lab.source / "launch_server.py").read_bytes()
    process.communicate(timeout=60)
    assert process.returncode == 0
    experiments = shadow.run("experiment", "list")[1]["experiments"]
    shown = str(shadow.run("experiment", "show", str(experiments[-1]["id"]))[1])
    assert f"{copy}/__init__.py" in shown
    assert copies(tmp_path) == []


def test_an_edit_that_breaks_the_server_breaks_it_in_the_copy(shadow: Bench) -> None:
    """The crash is the copy's: what is measured is the change, not the found tree."""
    edit = {**MARKER["changes"][0]["patch"]["edits"][0], "replace": "import sys\nimport no_such_module_of_ours"}
    playbook = shadow.write_playbook([{"id": "b", "changes": [{"patch": {"edits": [edit]}}]}])
    code, summary = shadow.run("run", str(playbook))
    assert code == 0, summary
    assert summary["findings"][0]["verdict"] == "crashed"
    assert "no_such_module_of_ours" in summary["findings"][0]["cause"]


@pytest.mark.parametrize("phase", ["baseline 1", "server is at weights", "gate ok"])
def test_a_killed_run_leaves_a_copy_that_recovery_takes_away(shadow: Bench, tmp_path: Path, phase: str) -> None:
    """SIGKILL of the controller: verify says what is left, recover removes copy and processes, the tree was safe."""
    before = times(shadow)
    process = start_run(shadow, shadow.write_playbook([MARKER]))
    if phase != "baseline 1":
        wait_for(process, "treatment 1")
    wait_for(process, phase)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    hosts = str(shadow.lab.hosts_file)
    assert copies(tmp_path) != []
    assert shadow.run("host", "verify", "lab", "--hosts", hosts)[0] == 7
    code, recovery = shadow.run("host", "recover", "lab", "--hosts", hosts)
    assert code == 0, recovery
    assert copies(tmp_path) == []
    assert processes_of(shadow) == []
    assert times(shadow) == before
    assert shadow.run("run", str(shadow.lab.root / "bench.yaml"))[0] == 0


def test_the_guard_takes_the_copy_away_when_the_lease_ends(shadow: Bench, tmp_path: Path) -> None:
    """Nobody comes back: within the lease and a moment the copy and the server are gone."""
    playbook = shadow.write_playbook([MARKER], lease="3s")
    process = start_run(shadow, playbook)
    wait_for(process, "treatment 1")
    wait_for(process, "ready ok")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    from tests.agent.client import wait_until

    wait_until(lambda: copies(tmp_path) == [], "the copy is gone", 15.0)
    wait_until(lambda: processes_of(shadow) == [], "the server is gone", 15.0)


def test_a_resumed_run_goes_on_in_the_same_copy(shadow: Bench, tmp_path: Path) -> None:
    playbook = shadow.write_playbook([MARKER], workload={"prompt_tokens": 8, "output_tokens": 64})
    process = start_run(shadow, playbook)
    wait_for(process, "treatment 1")
    wait_for(process, "ready ok")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    code, summary = shadow.run("run", str(playbook), "--resume")
    assert code == 0, summary
    assert summary["launches"] == 0
    assert copies(tmp_path) == []


def test_a_change_of_the_found_tree_by_others_is_shown(shadow: Bench) -> None:
    """Somebody edits the found tree during the run: not ours, told in the summary, no reason for quarantine."""
    target = shadow.lab.source / "launch_server.py"
    process = start_run(shadow, shadow.write_playbook([MARKER]))
    wait_for(process, "treatment 1")
    target.write_bytes(target.read_bytes() + b"# theirs\n")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert f"changed {target}" in out


def test_a_sitecustomize_change_runs_beside_the_found_file(shadow: Bench) -> None:
    """The interpreter's own file stays as it is; the variable is live in the server all the same."""
    before = shadow.lab.sitecustomize.read_bytes() if shadow.lab.sitecustomize.exists() else None
    row = {"id": "s", "changes": [{"sitecustomize": {"env": {"OMP_NUM_THREADS": "3"}}}]}
    code, summary = shadow.run("run", str(shadow.write_playbook([row])))
    assert code == 0, summary
    assert summary["findings"][0]["verdict"] != "not_effective"
    after = shadow.lab.sitecustomize.read_bytes() if shadow.lab.sitecustomize.exists() else None
    assert after == before


def test_a_shadow_is_judged_apart_from_the_tree_in_place(bench: Bench, tmp_path: Path) -> None:
    """A run in place was there before: verify of the shadow does not take its manifest for its own."""
    assert bench.run("run", str(bench.write_playbook([MARKER])))[0] == 0
    inventory = bench.inventory()
    inventory["targets"]["kimi-lab"] |= {"tree": "shadow", "shadow_dir": str(tmp_path / "copies")}
    bench.write_inventory(inventory)
    code, shown = bench.run("host", "verify", "lab", "--hosts", str(bench.lab.hosts_file))
    assert code == 0, shown
    assert bench.run("host", "forget", "lab", "--hosts", str(bench.lab.hosts_file))[0] == 0


def test_forget_removes_all_that_a_shadow_kept(shadow: Bench, tmp_path: Path) -> None:
    assert shadow.run("run", str(shadow.write_playbook([MARKER])))[0] == 0
    assert shadow.run("host", "forget", "lab", "--hosts", str(shadow.lab.hosts_file))[0] == 0
    assert list((tmp_path / "copies").iterdir()) == []


def test_a_place_that_holds_no_copy_is_refused_with_the_way_out(bench: Bench) -> None:
    """Exit code 5 with the hint, nothing launched."""
    inventory = bench.inventory()
    inventory["targets"]["kimi-lab"] |= {"tree": "shadow", "shadow_dir": "/proc/nowhere"}
    bench.write_inventory(inventory)
    code, shown = bench.run("run", str(bench.write_playbook([MARKER])))
    assert code == 5, shown
    assert "shadow_dir" in shown["error"]["problems"][0]["hint"]
    assert bench.run("experiment", "list")[1]["experiments"] == []
