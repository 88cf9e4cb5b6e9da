"""The client against a scripted far end: frames, pipelines, events, limits and losses."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.model import Route
from orchestrator.errors import Bug, PatchConflict, Unreachable
from orchestrator.hosts import connect
from orchestrator.hosts.bundle import Bundle
from orchestrator.hosts.client import Connection
from orchestrator.hosts.deadline import Deadline
from orchestrator.hosts.local import LocalWire

NONCE = "cd" * 32

# A far end that does what a request says: good for everything that a real agent never does.
FAR_END = r"""
import json, os, struct, sys, time
def send(frame):
    body = json.dumps(frame).encode()
    os.write(1, struct.pack(">I", len(body)) + body)
def read(n):
    data = b""
    while len(data) < n:
        part = os.read(0, n - len(data))
        if not part: sys.exit(0)
        data += part
    return data
os.write(1, b"\n\0ORC1 " + sys.argv[1].encode() + b" have\n")
held = []
while True:
    frame = json.loads(read(struct.unpack(">I", read(4))[0]))
    number, do, w = frame["id"], frame["do"], frame["with"]
    if do == "echo": send({"id": number, "ok": w})
    elif do == "hold": held.append(number)
    elif do == "release":
        for other in reversed(held): send({"id": other, "ok": {"late": other}})
        send({"id": number, "ok": {}})
    elif do == "fail":
        send({"id": number, "error": {"kind": "conflict", "what": "no", "facts": {"n": "1"}, "hint": "h"}})
    elif do == "events":
        for i in range(w["n"]): send({"id": None, "event": "log", "data": {"i": i}})
        send({"id": number, "ok": {}})
    elif do == "big": send({"id": number, "ok": {"text": "x" * w["n"]}})
    elif do == "garbage": os.write(1, w["text"].encode("latin-1"))
    elif do == "die":
        sys.stderr.write("last words\n"); sys.stderr.flush(); os._exit(9)
    elif do == "stop_reading": time.sleep(600)
"""


@pytest.fixture
def far() -> Iterator[Connection]:
    wire = LocalWire([sys.executable, "-c", FAR_END, NONCE])
    connection = Connection("gpu1", Route(), wire, NONCE, ("python3",))
    connection.start(Bundle(b"", ""), Deadline(10), time.monotonic())
    yield connection
    connection.close(grace_s=0.5)


def test_replies_find_their_requests_in_any_order(far: Connection) -> None:
    """Pipelined requests are told apart by id, and those sent while others wait share one round trip."""
    held = [far.submit("hold") for _ in range(5)]
    assert far.call("echo", {"a": [1, "ü"]}) == {"a": [1, "ü"]}
    assert not any(future.done() for future in held)
    far.call("release")
    assert [future.result(5)["late"] for future in held] == [1, 2, 3, 4, 5]
    assert (far.traffic.requests, far.traffic.round_trips) == (7, 1)


def test_paths_that_are_not_utf_8_survive(far: Connection) -> None:
    """Lone surrogates (surrogateescape) travel as JSON escapes in both directions."""
    assert far.call("echo", {"path": os.fsdecode(b"/x/\xff")}) == {"path": os.fsdecode(b"/x/\xff")}


def test_many_threads_share_a_connection(far: Connection) -> None:
    """Fifty concurrent calls from ten threads each get their own reply."""
    wrong: list[object] = []

    def work(n: int) -> None:
        wrong.extend((n, i) for i in range(5) if far.call("echo", {"n": [n, i]}) != {"n": [n, i]})

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not wrong and far.traffic.requests == 50


def test_large_frames_pass_both_ways(far: Connection) -> None:
    """Ten mebibytes arrive whole; a request above the frame limit is refused before it is sent."""
    size = 10 << 20
    assert len(far.call("big", {"n": size})["text"]) == size
    assert len(far.call("echo", {"t": "y" * size})["t"]) == size
    with pytest.raises(Bug, match="does not fit"):
        far.submit("echo", {"t": "y" * (16 << 20)})
    assert far.call("echo") == {}


def test_errors_come_as_their_class(far: Connection) -> None:
    """An error reply raises what the protocol names; the connection goes on."""
    with pytest.raises(PatchConflict, match="no") as caught:
        far.call("fail")
    assert caught.value.facts == {"host": "gpu1", "n": "1"} and caught.value.hint == "h"
    assert far.alive


def test_events_reach_listeners_in_order_until_they_unsubscribe(far: Connection) -> None:
    """Events come in order, before the reply that follows them; a listener that fails stops nobody."""
    seen: list[int] = []
    broken = far.on_event(lambda event, data: [][0])
    stop = far.on_event(lambda event, data: seen.append(data["i"]))
    far.call("events", {"n": 100})
    assert seen == list(range(100))
    stop()
    broken()
    far.call("events", {"n": 5})
    assert len(seen) == 100


def test_a_call_from_a_listener_is_a_bug_and_no_deadlock(far: Connection) -> None:
    """The reader thread may not wait for itself."""
    caught: Future[BaseException] = Future()

    def listener(event: str, data: Mapping[str, Any]) -> None:
        try:
            far.call("echo")
        except Bug as error:
            caught.set_result(error)

    far.on_event(listener)
    far.call("events", {"n": 1})
    assert "listener" in str(caught.result(5))


def test_no_reply_in_time(far: Connection) -> None:
    """A call gives up at its limit, and a late reply harms nobody."""
    with pytest.raises(Unreachable, match=r"did not answer `hold` within 0\.05 s"):
        far.call("hold", timeout_s=0.05)
    far.call("release")
    assert far.call("echo", {"a": 1}) == {"a": 1}


def test_a_request_that_cannot_be_written_does_not_block_the_caller(far: Connection) -> None:
    """With the far end not reading and all pipes full, `submit` returns and `call` keeps its limit."""
    far.submit("stop_reading")
    began = time.monotonic()
    for _ in range(5):
        far.submit("echo", {"t": "z" * 1_000_000})
    with pytest.raises(Unreachable, match="did not answer"):
        far.call("echo", timeout_s=0.2)
    assert time.monotonic() - began < 5


def test_a_dead_far_end_fails_everything_at_once(far: Connection) -> None:
    """All pending calls and every later one raise `Unreachable`, with exit code and last words."""
    pending = [far.submit("hold") for _ in range(3)]
    began = time.monotonic()
    far.submit("die")
    for future in pending:
        with pytest.raises(Unreachable, match="connection to gpu1 is lost") as caught:
            future.result(5)
        assert caught.value.facts["stderr"] == "last words" and caught.value.facts["exit_code"] == "9"
    assert time.monotonic() - began < 2
    assert not far.alive
    with pytest.raises(Unreachable):
        far.call("echo")


@pytest.mark.parametrize("text", ["\xff\xff\xff\xff", "\0\0\0\x02{]", "\0\0\0\x02{}", "\0\0\0\x011"])
def test_garbage_ends_the_connection_with_its_bytes(far: Connection, text: str) -> None:
    """A frame that is too long, no JSON or no reply is never skipped over."""
    with pytest.raises(Unreachable, match="not a frame") as caught:
        far.call("garbage", {"text": text}, timeout_s=10)
    assert "bytes" in caught.value.facts


def test_ctrl_c_interrupts_a_call(far: Connection) -> None:
    """KeyboardInterrupt leaves `call` at once in the main thread; the connection stays usable."""
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    began = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        far.call("hold", timeout_s=30)
    assert time.monotonic() - began < 5
    assert far.call("echo", {"a": 2}) == {"a": 2}


def test_close_ends_the_child_and_pending_calls(far: Connection) -> None:
    """`close` fails what waits, ends the process, and may be called again."""
    waiting = far.submit("hold")
    far.close()
    with pytest.raises(Unreachable, match="is closed"):
        waiting.result(5)
    far.close()
    assert not far.alive


def test_a_child_that_ignores_the_end_of_input_is_ended() -> None:
    """A local far end that does not leave is terminated, then killed."""
    stubborn = "import os,signal,sys,time;signal.signal(15,signal.SIG_IGN);" + FAR_END.replace(
        "sys.exit(0)", "time.sleep(9)"
    )
    wire = LocalWire([sys.executable, "-c", stubborn, NONCE])
    connection = Connection("gpu1", Route(), wire, NONCE, ("python3",))
    connection.start(Bundle(b"", ""), Deadline(10), time.monotonic())
    connection.close(grace_s=0.1)
    assert wire.exit_code(0.0) == -signal.SIGKILL


# ---------------------------------------------------------------- the real agent, on this machine


def test_a_local_route(agent_cache: Path) -> None:
    """The empty route starts the agent as a child; its cache holds what `forget` knows."""
    spare = Path(f"/tmp/orchestrator-{os.getuid()}")  # may hold the archive from a time when a cache was full
    with connect(Route(), name="here") as connection:
        used = Path(connection.hello["agent_dir"])
        assert used in (agent_cache, spare)
        assert connection.traffic.archive_sent == (used == agent_cache)
        if used == spare:
            return
        assert all(len(path.name) == 64 for path in used.iterdir())
        connection.call("forget")
        assert not agent_cache.exists()


def test_ctrl_c_at_the_terminal_does_not_reach_the_agent() -> None:
    """The agent is in a session of its own: a signal to our process group passes it by."""
    with connect(Route(), name="here") as connection:
        assert os.getsid(connection.hello["pid"]) != os.getsid(0)


@pytest.mark.parametrize(
    ("route", "cause"),
    [
        ({"python": "python9"}, "could not be started"),
        ({"hops": ["env", "nowhere"]}, "without a word|nowhere"),
        ({"hops": [["sh", "-c", "exit 3"]]}, "exit code 3"),
    ],
)
def test_local_failures(route: Mapping[str, Any], cause: str) -> None:
    """What cannot start here is told like what cannot start there."""
    with pytest.raises(Unreachable, match=cause):
        connect(Route.model_validate(route), name="here")


def test_importing_the_room_does_not_load_paramiko() -> None:
    """`orchestrator.hosts` is light: ssh is loaded when a route needs it."""
    import subprocess

    code = "import sys, orchestrator.hosts, orchestrator.hosts.facts; print('paramiko' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
