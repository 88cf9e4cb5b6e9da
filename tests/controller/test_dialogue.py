"""No question outlives the server it depends on: a real agent, a real process, a controller's wait."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.controller.clock import SystemClock
from orchestrator.controller.dialogue import ArmFailed, Dialogue, sentence_of
from orchestrator.controller.interrupts import Interrupts
from orchestrator.controller.watch import ServerWatch
from orchestrator.core.model import Route
from orchestrator.core.records import LaunchOutcome
from orchestrator.errors import Unreachable
from orchestrator.hosts import Connection, connect

LINGERING = """
import os, socket, sys, time
if os.fork() == 0:
    os.execv('/bin/sleep', ['sglang::scheduler_TP1', '600'])
listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))
print('up', flush=True)
time.sleep(600)
"""


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[tuple[Connection, ServerWatch, Dialogue, int]]:
    """A server whose port accepts and never answers, with one rank; the connection, its watch, and the port."""
    import sys

    tree = tmp_path / "tree"
    tree.mkdir()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    connection = connect(Route(python=sys.executable), name="here")
    told: list[str] = []
    watch = ServerWatch("l1", lambda _: None, told.append)
    connection.on_event(watch)
    holder = {"token": "t", "name": "tester", "pid": os.getpid()}
    connection.call("open", {"root": str(tree), "guarded": [], "holder": holder, "lease_s": 60.0})
    argv = [sys.executable, "-u", "-c", LINGERING, str(port)]
    more = {"env": {"PATH": os.environ["PATH"]}, "cwd": "/", "pycache": False, "grace_s": 1.0}
    connection.call("launch", {"launch_id": "l1", "argv": argv, **more})
    session: Any = SimpleNamespace(
        name="here", connection=connection, clock=SystemClock(), interrupts=Interrupts(lambda _: None)
    )
    try:
        yield connection, watch, Dialogue(session, watch, {}), port
    finally:
        connection.call("stop", {"launch_id": "l1", "grace_s": 0.0})
        connection.call("close", {})
        connection.close()


def rank_of(connection: Connection) -> int:
    """Once the watch has noticed it."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = connection.call("inspect", {"launch_id": "l1"})["descendants"]
        ranks = [p["pid"] for p in found if p["cmdline"][0].startswith("sglang::")]
        if ranks:
            threading.Event().wait(0.7)  # the watch looks twice a second
            return int(ranks[0])
    raise AssertionError("no rank")


def test_a_server_that_lingers_after_its_rank_died_is_lost(
    launched: tuple[Connection, ServerWatch, Dialogue, int],
) -> None:
    """The port accepts for ever; the question ends within a second of the rank, and the loss is told at once."""
    connection, watch, dialogue, port = launched
    rank = rank_of(connection)
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        os.kill(rank, signal.SIGKILL)

    threading.Timer(0.3, kill).start()
    request = {"method": "GET", "url": f"http://127.0.0.1:{port}/server_info", "timeout_s": 60.0}
    with pytest.raises(ArmFailed) as caught:
        dialogue.ask("http", request, timeout_s=60.0)
    assert time.monotonic() - killed[0] < 1.2
    assert caught.value.outcome is LaunchOutcome.exited
    assert f"pid {rank}" in caught.value.reason and watch.exit is None
    with pytest.raises(ArmFailed):
        dialogue.carry_out(lambda: threading.Event().wait(30), timeout_s=30.0)


def test_silence_is_a_hang_with_its_stacks(launched: tuple[Connection, ServerWatch, Dialogue, int]) -> None:
    """A request that ran into its limit is looked into while everything still lives."""
    connection, _, dialogue, port = launched
    request = {"method": "GET", "url": f"http://127.0.0.1:{port}/x", "timeout_s": 0.5}
    with pytest.raises(Unreachable) as silent:
        dialogue.ask("http", request, timeout_s=30.0)
    with pytest.raises(ArmFailed) as caught:
        dialogue.fall_silent(silent.value, {"path": "/x"})
    assert caught.value.outcome is LaunchOutcome.hung and "/x" in caught.value.reason
    assert connection.call("stacks", {"launch_id": "l1"})["processes"]


def test_a_broken_connection_is_no_word_about_the_server(
    launched: tuple[Connection, ServerWatch, Dialogue, int],
) -> None:
    """The way to the host breaks under a question: that is said as it is, and not laid at the server's door."""
    connection, watch, _, _ = launched
    gone: Any = SimpleNamespace(
        name="here", connection=SimpleNamespace(alive=False), clock=SystemClock(), interrupts=Interrupts(lambda _: None)
    )
    lost = Unreachable("the connection to here is lost")
    with pytest.raises(Unreachable) as caught:
        Dialogue(gone, watch, {}).fall_silent(lost, {"at": "the gate's questions"})
    assert caught.value is lost
    assert connection.alive


@pytest.mark.parametrize(
    ("state", "facts", "sentence"),
    [
        (
            "stranger",
            {
                "address": "127.0.0.1",
                "port": 30000,
                "pid": 7,
                "cmdline": ["python", "-m", "x"],
                "age_s": 90.2,
                "user": "eve",
            },
            "port 30000 belongs to pid 7 of eve, for 90 s: python -m x",
        ),
        (
            "stranger",
            {"address": "0.0.0.0", "port": 30000, "pid": None, "why": "its owner is not visible to us"},
            "port 30000 belongs to somebody: its owner is not visible to us",
        ),
        (
            "exited",
            {"exit_code": -9, "signal": 9, "after_s": 10.04, "last_line": "Load weight begin"},
            "signal 9 after 10.0 s; last line: Load weight begin",
        ),
        ("exited", {"exit_code": 0, "signal": None, "after_s": 3.0, "last_line": ""}, "exit code 0 after 3.0 s"),
        (
            "hung",
            {
                "seen": "/health answers 503",
                "stalled_s": 20.05,
                "last_line": "x",
                "processes": [{"pid": 1}],
                "py_spy": None,
            },
            "no progress for 20 s, seen /health answers 503; last line: x",
        ),
        ("wrong_server", {"key": "weight_version", "found": "old"}, "key weight_version, found old"),
    ],
)
def test_each_end_of_a_start_is_said_in_words(state: str, facts: dict[str, Any], sentence: str) -> None:
    """What a person reads as the cause where the log shows none."""
    assert sentence_of(state, facts) == sentence
