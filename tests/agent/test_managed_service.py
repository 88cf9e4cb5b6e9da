"""Services of docker, podman and systemd, driven for real by commands that keep state as those do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.services import Plan, containers, systemd
from tests.agent.client import AgentClient, AgentReply, wait_until
from tests.agent.conftest import DUMMY, open_tree
from tests.agent.test_guard import LEASE_S
from tests.services.live import is_marked, words_of

STANDIN = Path(__file__).parents[1] / "services" / "standin.py"
Connect = Callable[..., AgentClient]


@dataclass(frozen=True)
class Manager:
    """A tool on the PATH with one thing in its care."""

    folder: Path
    tool: str
    name: str
    port: int

    def set(self, **facts: Any) -> None:
        held = json.loads((self.folder / "state.json").read_text()) if (self.folder / "state.json").exists() else {}
        held[self.name] = {**held.get(self.name, {}), **facts}
        (self.folder / "state.json").write_text(json.dumps(held))

    def get(self, fact: str) -> Any:
        return json.loads((self.folder / "state.json").read_text())[self.name].get(fact)


@pytest.fixture(params=["docker", "podman", "systemctl"])
def manager(
    request: pytest.FixtureRequest, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Manager]:
    folder, tool = tmp_path / "bin", str(request.param)
    folder.mkdir()
    (folder / tool).write_text(f'#!/bin/sh\nexec {sys.executable} {folder}/{tool}.d/{tool} "$@"\n')
    (folder / tool).chmod(0o755)
    (folder / f"{tool}.d").mkdir()
    shutil.copy(STANDIN, folder / f"{tool}.d" / tool)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    made = Manager(folder / f"{tool}.d", tool, "llm.service" if tool == "systemctl" else "llm", port)
    (made.folder / tool).chmod(0o755)
    mark = f"kept-{os.getpid()}-{port}"
    env = {"PATH": os.environ["PATH"], "LIVE_MARK": mark, "HF_TOKEN": "hf_secret"}
    argv = [sys.executable, str(DUMMY), json.dumps({"port": port})]
    facts = {"LoadState": "loaded", "SubState": "running", "CanStop": "yes"}
    made.set(id="3f4e" * 16, status="exited", policy="always", argv=argv, env=env, unit=facts)
    start(made)
    yield made
    made.set(status="exited")  # nothing keeps it up any more
    for pid in _left(mark, made):
        _kill(pid)
    wait_until(lambda: not _left(mark, made), "nothing of it is left")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _left(mark: str, made: Manager) -> list[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if is_marked(pid, mark) or str(made.folder) in " ".join(words_of(pid))]


def _control(made: Manager, what: str) -> None:
    subprocess.run([sys.executable, str(made.folder / made.tool), what, made.name], check=True)


def start(made: Manager) -> None:
    _control(made, "start")


def plan(client: AgentClient, made: Manager) -> dict[str, Any]:
    if made.tool == "systemctl":
        replies = client.call("run", commands=systemd.look_commands(made.name, user=False))
        told = systemd.decide(replies["show"], made.name, user=False, uid=0)
    else:
        known = [one for one in containers.look_commands(made.name) if one["name"].startswith(made.tool)]
        told = containers.decide(client.call("run", commands=known), made.name, grace_s=2.0)
    assert isinstance(told, Plan), told
    return {"stop": told.stop, "start": told.start, "check": told.check, "expect": told.expect}


def hold(client: AgentClient, made: Manager) -> dict[str, Any]:
    commands = plan(client, made)
    reply: dict[str, Any] = client.call("service_stop", port=made.port, kind="x", grace_s=2.0, commands=commands)
    return reply


def serves(client: AgentClient, made: Manager) -> bool:
    return bool(client.call("service_look", port=made.port)["serving"])


def test_it_is_stopped_by_its_manager_stays_stopped_and_comes_back(
    connect: Connect, root: Path, manager: Manager
) -> None:
    """Its restart policy is respected and the same afterwards; command line and environment are those of before."""
    client = connect()
    open_tree(client, root)
    wait_until(lambda: serves(client, manager), "it serves")
    assert hold(client, manager)["state"] == "stopped" and not serves(client, manager)
    client.call("service_start")
    waited = client.call("service_await", limit_s=20.0, health="/health")
    assert waited["state"] == "same", waited
    assert manager.get("policy") == "always"
    client.call("snapshot")
    assert client.call("verify")["service"]["state"] == "same"
    client.call("close")


def test_when_the_lease_ends_its_manager_starts_it_again(connect: Connect, root: Path, manager: Manager) -> None:
    client = connect()
    open_tree(client, root)
    wait_until(lambda: serves(client, manager), "it serves")
    hold(client, manager)
    client.call("beat", lease_s=LEASE_S)
    client.process.kill()
    later = connect()
    wait_until(lambda: serves(later, manager), "it serves again")
    wait_until(lambda: manager.get("policy") == "always", "its policy is put back")


def test_a_manager_that_fails_to_stop_it_is_said_and_it_runs_on(connect: Connect, root: Path, manager: Manager) -> None:
    """What the command said is the reason, and what had been changed until then is put back."""
    client = connect()
    open_tree(client, root)
    wait_until(lambda: serves(client, manager), "it serves")
    commands = plan(client, manager)
    commands["stop"] = [*commands["stop"][:-1], ["sh", "-c", "echo cannot do that; exit 5"]]
    with pytest.raises(AgentReply, match="cannot do that"):
        client.call("service_stop", port=manager.port, kind="x", grace_s=2.0, commands=commands)
    assert serves(client, manager) and manager.get("policy") == "always"
    client.call("close")
