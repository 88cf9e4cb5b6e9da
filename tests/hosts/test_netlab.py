"""A far host: round trips of a connection, and a cable that is cut."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import netlab, sshd

RTT_MS = 50.0

# Runs in the near namespace. Imports first: they are this machine's time, not the network's.
MEASURE = """
import sys, time, paramiko, tenacity
from orchestrator.core.model import Route
from orchestrator.hosts import connect, ssh
route = Route.model_validate_json(sys.argv[1])
began = time.monotonic()
with connect(route, name="far") as connection:
    ready = time.monotonic()
    connection.call("read", {"paths": []}); first = time.monotonic()
    connection.call("read", {"paths": []}); second = time.monotonic()
print(*(round((t - began) * 1000) for t in (ready, first, second)))
"""
CUT = """
import sys, time
from orchestrator.core.model import Route
from orchestrator.errors import Unreachable
from orchestrator.hosts import connect
connection = connect(Route.model_validate_json(sys.argv[1]), name="far")
connection.hello
pending = connection.submit("run", {"commands": [{"name": "n", "argv": ["sleep", "600"], "timeout_s": 600}]})
print("ready", flush=True)
sys.stdin.readline()
began = time.monotonic()
try: pending.result(60)
except Unreachable as error: print(error.what, "|", round(time.monotonic() - began, 1), "|", connection.alive)
"""


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[netlab.Cable, sshd.Sshd]]:
    if reason := netlab.why_not() or sshd.why_not():
        pytest.skip(reason)
    with netlab.cable(RTT_MS / 2) as lab:
        server = sshd.start_sshd(tmp_path_factory.mktemp("far"), address=netlab.FAR_ADDRESS, prefix=lab.at(lab.far))
        yield lab, server
        server.stop()


def test_connecting_and_two_requests_take_no_more_than_12_round_trips(far: tuple[netlab.Cable, sshd.Sshd]) -> None:
    """Login, channel, agent and two requests one after the other. Two distances, so that computing does not count."""
    lab, server = far
    argv = [*lab.at(lab.near), sys.executable, "-c", MEASURE, server.route().model_dump_json()]

    def measure(rtt_ms: float) -> tuple[int, int, int]:
        lab.say(str(rtt_ms / 2))
        runs = [subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split() for _ in range(4)]
        ready, first, second = (int(ms) for ms in min(runs, key=lambda run: int(run[-1])))
        return ready, first - ready, second - first

    further_ms = 120.0
    measure(10.0)  # leaves the agent on the host
    near, distant = measure(RTT_MS), measure(RTT_MS + further_ms)
    lab.say(str(RTT_MS / 2))
    connecting, first, second = ((b - a) / further_ms for a, b in zip(near, distant, strict=True))
    assert connecting + first + second <= 12, (near, distant)
    assert first <= 1.5 and second <= 1.5, (near, distant)


def test_a_cut_cable_is_noticed(far: tuple[netlab.Cable, sshd.Sshd], tmp_path: Path) -> None:
    """No FIN, no RST: keepalives that nobody confirms end the connection, and what waits is told."""
    lab, server = far
    route = server.route(keepalive=1.0).model_dump_json()
    argv = [*lab.at(lab.near), sys.executable, "-c", CUT, route]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout and process.stdout.readline() == "ready\n"
    lab.say("drop")
    try:
        out, _ = process.communicate("go\n", timeout=40)
    finally:
        lab.say(str(RTT_MS / 2))
    what, seconds, alive = (part.strip() for part in out.split("|"))
    assert what == "the connection to far is lost" and alive == "False"
    assert float(seconds) < 15
