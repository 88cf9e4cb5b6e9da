"""A tree, agents on it, and a proof that each test leaves no process of its own behind."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.client import AgentClient, AgentReply, is_running, wait_until

DUMMY = Path(__file__).with_name("dummy_server.py")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The tree of the test: two files."""
    folder = tmp_path / "work" / "tree"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text("x = 1\n")
    (folder / "b.py").write_text("y = 1\n")
    return folder


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., AgentClient]]:
    """Starts agents; at the end of the test whatever is open is recovered, and every process of ours must be gone."""
    clients: list[AgentClient] = []

    def start() -> AgentClient:
        clients.append(AgentClient(tmp_path))
        return clients[-1]

    yield start
    for client in clients:
        client.kill()
    _clean_up(tmp_path)
    wait_until(lambda: not _ours(tmp_path), f"processes of the test are left: {_ours(tmp_path)}")


def _clean_up(tmp_path: Path) -> None:
    """A tree that a failed test left open."""
    tree = tmp_path / "work" / "tree"
    if not any(tmp_path.glob("work/.orchestrator-*")) or not tree.is_dir():
        return
    client = AgentClient(tmp_path)
    try:
        open_tree(client, tree)
        client.call("recover")
        client.call("close")
    except AgentReply as reply:
        assert reply.kind == "busy", reply  # a test that ends with a foreign holder; its lease is short
    finally:
        client.close()


def _ours(tmp_path: Path) -> list[int]:
    """Processes whose HOME or state is below the directory of the test."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and is_running(int(entry.name)):
            try:
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"HOME={tmp_path}\0".encode() in environ:
                found.append(int(entry.name))
    return found


def open_tree(client: AgentClient, root: Path, *, token: str = "ours", lease_s: float = 30.0) -> dict[str, Any]:
    holder = {"token": token, "name": f"tester {token}", "pid": os.getpid()}
    reply: dict[str, Any] = client.call("open", root=str(root), guarded=[], holder=holder, lease_s=lease_s)
    return reply


@pytest.fixture
def agent(connect: Callable[..., AgentClient], root: Path) -> AgentClient:
    """An agent with the tree open and its manifest taken."""
    client = connect()
    open_tree(client, root)
    client.call("snapshot")
    return client


@pytest.fixture
def port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def launch(client: AgentClient, tmp_path: Path, *argv: str, launch_id: str = "l1", **more: Any) -> dict[str, Any]:
    """Launch a command with a small environment; HOME marks its processes for the check at the end."""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **more.pop("env", {})}
    given = {"launch_id": launch_id, "argv": list(argv), "env": env, "cwd": "/", "pycache": False, "grace_s": 1.0}
    reply: dict[str, Any] = client.call("launch", **{**given, **more})
    return reply


def launch_python(client: AgentClient, tmp_path: Path, source: str, **more: Any) -> dict[str, Any]:
    script = tmp_path / f"{more.get('launch_id', 'l1')}.py"
    script.write_text(source)
    return launch(client, tmp_path, sys.executable, "-u", str(script), **more)


def launch_dummy(client: AgentClient, tmp_path: Path, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    import json

    return launch(client, tmp_path, sys.executable, "-u", str(DUMMY), json.dumps(spec), **more)
