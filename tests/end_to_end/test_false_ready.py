"""The classic mistake, on the real engine: an old server holds the port, and answers for the new one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent import leftovers, processes
from orchestrator.cli.main import run_command
from orchestrator.core.model import Target
from orchestrator.serving.configuration import Configuration
from orchestrator.serving.engine import plan_launch
from tests.agent.client import AgentClient
from tests.end_to_end.rig import Rig, find_rig, free_port

START_S = 240.0


@contextmanager
def old_server(rig: Rig, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A real SGLang of somebody else, healthy on the port."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [rig.root / "launch", "--port", str(port)], stdout=out, stderr=out, start_new_session=True
        )
    try:
        wait_until_healthy(process, port, log)
        yield process
    finally:
        family = processes.descendants(processes.read_table(), [process.pid]) | {process.pid}
        shared = leftovers.shared_memory(family)  # this version leaves semaphores behind, whoever ends it
        process.terminate()
        try:
            process.wait(30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
            for path in Path(leftovers.SHM).iterdir():
                if path.stat().st_ino in shared:
                    path.unlink()


def wait_until_healthy(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline, pause = time.monotonic() + START_S, threading.Event()
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as reply:
                if reply.status == 200:
                    return
        except (OSError, urllib.error.URLError):
            pause.wait(0.5)
    raise AssertionError(f"no old server within {START_S} s:\n{log.read_text()[-2000:]}")


@pytest.mark.sglang
@pytest.mark.timeout(600)
def test_an_old_sglang_on_the_port_is_never_taken_for_the_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a launch the run is refused with the old server's pid, age and command. Launched all the same, the new one
    is told from the old at the first look, though the port answers 200; the old one lives on."""
    rig, port = find_rig(), free_port()
    with old_server(rig, port, tmp_path / "old.log") as old:
        spec: dict[str, Any] = {**rig.target(port), "args": {**rig.target(port)["args"], "tp-size": 1}}  # type: ignore[dict-item]
        playbook = tmp_path / "p.yaml"
        rows = [{"id": "x", "claim": "c", "changes": [{"env": {"OMP_NUM_THREADS": "2"}}]}]
        hosts = {"rig": {"route": "local", "target": spec}}
        playbook.write_text(json.dumps({"campaign": "c", "hosts": hosts, "hypotheses": rows}))
        assert run_command(["run", str(playbook), "--state", str(tmp_path / "state"), "--json"]) == 5
        shown = json.loads(capsys.readouterr().out)
        facts = shown["error"]["problems"][0]["facts"]
        assert "sglang.launch_server" in facts[f"pid {old.pid}"] and f"port {port}" in facts[f"pid {old.pid}"]
        assert run_command(["host", "forget", "rig", "--state", str(tmp_path / "state"), "--json"]) == 0
        _launch_beside(rig, Target.model_validate(spec), tmp_path, old)
        assert old.poll() is None
    assert list(rig.site.glob(".orchestrator*")) == []


def _launch_beside(rig: Rig, target: Target, tmp_path: Path, old: subprocess.Popen[bytes]) -> None:
    client = AgentClient(tmp_path)
    try:
        holder = {"token": "t", "name": "tester", "pid": os.getpid()}
        client.call("open", root=str(rig.source), guarded=[], holder=holder, lease_s=120.0)
        configuration = Configuration(target.args, target.env)
        plan = plan_launch(target, configuration, dict(os.environ), "exp-new", cwd=str(tmp_path))
        request = {"argv": list(plan.argv), "env": dict(plan.env), "cwd": plan.cwd, "pycache": True, "grace_s": 1.0}
        client.call("launch", launch_id="exp-new", **request)
        state = client.call("await_ready", launch_id="exp-new", spec=dict(plan.ready))
        assert state["state"] == "stranger" and state["facts"]["pid"] == old.pid, state
        assert "sglang.launch_server" in " ".join(state["facts"]["cmdline"])
        assert client.call("stop", launch_id="exp-new", grace_s=0.0)["survivors"] == []
        client.call("close")
        client.call("forget", tree=str(rig.source))
    finally:
        client.close()
