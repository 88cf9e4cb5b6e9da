"""The heartbeat of a run, against a real agent that is stopped and continued."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.controller.session import MISSED_BEATS, Heartbeat
from orchestrator.core.model import Route
from orchestrator.errors import Unreachable
from orchestrator.hosts import Connection, connect

EVERY_S = 0.3


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    """An agent of this machine that holds a tree."""
    (tmp_path / "tree").mkdir()
    with connect(Route(), name="here") as made:
        holder = {"token": "a" * 64, "name": "test", "pid": os.getpid()}
        made.call("open", {"root": str(tmp_path / "tree"), "guarded": [], "holder": holder, "lease_s": 60})
        yield made


def _until(holds: Callable[[], bool], limit_s: float = 20.0) -> None:
    for _ in range(int(limit_s / 0.01)):
        if holds():
            return
        select.select([], [], [], 0.01)
    raise AssertionError("it did not come to that")


def test_what_waits_for_a_stopped_agent_fails_soon(connection: Connection) -> None:
    """A request without an answer ends when the beats are missed, long before its own limit."""
    said: list[str] = []
    agent = int(connection.hello["pid"])
    heartbeat = Heartbeat(connection, EVERY_S, said.append)
    os.kill(agent, signal.SIGSTOP)
    try:
        waiting = connection.submit("verify", {})
        heartbeat.start()
        with pytest.raises(Unreachable):
            waiting.result(20.0)
    finally:
        heartbeat.stop()
        _continue(agent)
    assert "does not answer" in said[0]


def test_an_agent_that_was_only_slow_is_asked_again(connection: Connection) -> None:
    """After a missed beat the lease is extended as before."""
    said: list[str] = []
    agent = int(connection.hello["pid"])
    heartbeat = Heartbeat(connection, EVERY_S, said.append)
    os.kill(agent, signal.SIGSTOP)
    heartbeat.start()
    try:
        before = connection.traffic.requests
        _until(lambda: connection.traffic.requests >= before + MISSED_BEATS - 1)
        os.kill(agent, signal.SIGCONT)
        heard, asked = connection.traffic.bytes_received, connection.traffic.requests
        _until(lambda: connection.traffic.bytes_received > heard and connection.traffic.requests >= asked + 3)
    finally:
        heartbeat.stop()
        _continue(agent)
    assert connection.alive
    assert said == []


def _continue(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return  # hanging up ended it
