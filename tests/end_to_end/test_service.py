"""A run on a host that serves when we come: the same server answers again at the end, whatever happened in between."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.client import wait_until
from tests.end_to_end.conftest import Bench, processes_of
from tests.end_to_end.test_lab_run import MARKER, start_run, wait_for
from tests.services.live import Live, serving

START_S = 10.0
"""More than a lab server ever takes to start on a busy machine of two cores."""


def lab_command(bench: Bench) -> list[str]:
    target = bench.inventory()["targets"]["kimi-lab"]
    words = [str(target["python"]), "-m", "sglang.launch_server", "--model-path", str(target["model"])]
    words += ["--port", str(target["port"]), "--tp-size", str(target["args"]["tp-size"])]
    return [*words, "--cuda-graph-max-bs", "64", "--disable-custom-all-reduce"]


@pytest.fixture
def live(bench: Bench, tmp_path: Path) -> Iterator[Live]:
    inventory = bench.inventory()
    inventory["targets"]["kimi-lab"]["service"] = {"process": {}}
    bench.write_inventory(inventory)
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, inventory["targets"]["kimi-lab"]["gpus"]))}
    with serving(tmp_path / "live", lab_command(bench), bench.lab.port, gpus) as found:
        yield found


def playbook(bench: Bench, **more: Any) -> Path:
    return bench.write_playbook([MARKER], **more)


def ours(bench: Bench, live: Live) -> list[str]:
    """Processes on the lab that are not the service's."""
    theirs = {" ".join(Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")) for pid in live.processes()}
    return [line for line in processes_of(bench.lab.root) if line not in theirs]


def test_a_run_ends_with_the_service_it_began_with(bench: Bench, live: Live) -> None:
    """The hypothesis is judged, the tree is as found, and the same command line, environment and directory serve."""
    before, tree = live.picture(), bench.tree()
    code, summary = bench.run("run", str(playbook(bench)))
    assert code == 0, summary
    assert summary["findings"][0]["verdict"] in ("no_effect", "inconclusive")
    assert live.answers() and live.picture() == before and bench.tree() == tree
    assert ours(bench, live) == []
    code, proof = bench.run("host", "verify", "lab", "--hosts", str(bench.lab.hosts_file))
    assert code == 0, proof
    assert {"name": "service", "state": "clean"} in [{k: t[k] for k in ("name", "state")} for t in proof["things"]]
    kept = b"".join(path.read_bytes() for path in bench.state.rglob("*") if path.is_file())
    assert live.secret.encode() not in kept and live.secret not in json.dumps([summary, proof])


def test_a_run_that_is_refused_gives_the_service_back(bench: Bench, live: Live) -> None:
    """A patch that does not fit is found when the service is stopped already; it serves again when the run is over."""
    before = live.picture()
    edit = {"file": "sglang/launch_server.py", "find": "no such text", "replace": "x", "count": 1}
    code, _ = bench.run("run", str(bench.write_playbook([{"id": "m", "changes": [{"patch": {"edits": [edit]}}]}])))
    assert code == 4
    assert live.answers() and live.picture() == before


@pytest.mark.parametrize("phase", ["service stopped", "apply ok", "server is at weights", "gate ok", "revert ok"])
def test_after_a_killed_controller_recover_gives_the_service_back(bench: Bench, live: Live, phase: str) -> None:
    before, tree = live.picture(), bench.tree()
    process = start_run(bench, playbook(bench))
    if phase not in ("service stopped",):
        wait_for(process, "treatment 1")
    wait_for(process, phase)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    code, recovery = bench.run("host", "recover", "lab", "--hosts", str(bench.lab.hosts_file))
    assert code == 0, recovery
    assert live.answers() and live.picture() == before and bench.tree() == tree
    assert ours(bench, live) == []


def test_a_run_after_a_killed_one_keeps_the_service_stopped_and_gives_it_back(bench: Bench, live: Live) -> None:
    before = live.picture()
    process = start_run(bench, playbook(bench))
    wait_for(process, "treatment 1")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    code, summary = bench.run("run", str(bench.lab.root / "bench.yaml"))
    assert code == 0, summary
    assert live.answers() and live.picture() == before


@pytest.mark.parametrize("phase", ["service stopped", "server is at weights"])
def test_after_a_silence_longer_than_the_lease_the_guard_gives_it_back(bench: Bench, live: Live, phase: str) -> None:
    """Lease, the server's own start, and two seconds: then the same server answers, and the tree is as found."""
    before, tree = live.picture(), bench.tree()
    process = start_run(bench, playbook(bench, lease="3s"))
    if phase != "service stopped":
        wait_for(process, "treatment 1")
    wait_for(process, phase)
    os.killpg(process.pid, signal.SIGKILL)
    cut = time.monotonic()
    process.communicate()
    live.wait(3.0 + START_S + 2.0)
    assert time.monotonic() - cut < 3.0 + START_S + 2.0
    assert live.picture() == before
    wait_until(lambda: bench.tree() == tree, "the tree is as found")
    wait_until(lambda: not ours(bench, live), "nothing of ours is left")


def test_nothing_is_started_where_nobody_served(bench: Bench, live: Live) -> None:
    live.end()
    code, summary = bench.run("run", str(playbook(bench)))
    assert code == 0, summary
    assert not live.processes()
