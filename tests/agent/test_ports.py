"""A port as a server would find it, and the container a process is in."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest

from orchestrator.agent.containers import container_of, name_in
from orchestrator.agent.programs import program_of
from tests.agent.client import AgentClient


def look(client: AgentClient, port: int) -> dict[str, object]:
    found: dict[str, object] = client.call("processes", devices=[], port=port, run_ids=[])["port"]
    return found


def test_a_free_port_can_be_bound_and_a_held_one_names_its_listener(
    connect: Callable[..., AgentClient], port: int
) -> None:
    """Nothing, then a listener with address and pid."""
    client = connect()
    free = {"port": port, "listeners": [], "states": {}, "refused_plain": None, "refused_reuse": None}
    assert look(client, port) == free
    with socket.create_server(("127.0.0.1", port)):
        held = look(client, port)
        assert held["listeners"] == [{"address": "127.0.0.1", "pids": [os.getpid()]}]
        assert held["refused_plain"] == held["refused_reuse"] == "EADDRINUSE"


def test_time_wait_is_told_from_a_listener(connect: Callable[..., AgentClient]) -> None:
    """S12: nobody listens, a plain bind fails, and one with SO_REUSEADDR does not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            served, _ = listener.accept()
            served.close()  # who closes first keeps the TIME_WAIT
            assert client.recv(1) == b""
    found = look(connect(), port)
    assert found["listeners"] == [] and found["states"] == {"TIME_WAIT": 1}
    assert found["refused_plain"] == "EADDRINUSE" and found["refused_reuse"] is None


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"0::/system.slice/docker-{'0123456789abcdef' * 4}.scope", "docker 0123456789ab"),
        ("12:pids:/docker/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "docker 0123456789ab"),
        ("0::/machine.slice/libpod-0123456789abcdef0123.scope/container", "podman 0123456789ab"),
        ("0::/lxc/129/ns/init.scope", "lxc 129"),
        ("0::/lxc.payload.web/system.slice/x.service", "lxc web"),
        ("0::/user.slice/user-1000.slice/session-3.scope", None),
        ("0::/", None),
    ],
)  # fmt: skip
def test_containers_are_named_by_their_control_group(line: str, name: str | None) -> None:
    """The kinds in use; a login session is none."""
    assert name_in(line) == name


def test_a_process_beside_us_is_in_no_other_container() -> None:
    """Ourselves, and a pid that is nobody's."""
    assert container_of(os.getpid()) is None
    assert container_of(4_194_300) is None
    assert program_of(4_194_300) is None
