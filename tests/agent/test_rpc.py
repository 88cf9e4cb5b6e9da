from __future__ import annotations

import base64
import hashlib
import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.rpc import FrameError, Wire
from orchestrator.agent.rpc import pack as pack_frame
from tests.agent.client import AgentClient, AgentReply, is_running, pack, wait_until

Connect = Callable[..., AgentClient]


def test_a_frame_that_arrives_byte_by_byte_is_one_request(connect: Connect) -> None:
    client = connect()
    for byte in pack({"id": 999, "do": "hello", "with": {}}):
        client.send_raw(bytes([byte]))
    assert client.receive(999)["protocol"] == 1


def test_pipelined_requests_are_each_answered_once(connect: Connect) -> None:
    client = connect()
    numbers = [client.send("read", paths=[f"/proc/self/no-{n}"]) for n in range(200)]
    for n, number in enumerate(numbers):
        assert client.receive(number) == {f"/proc/self/no-{n}": {"kind": "absent"}}


def test_a_slow_command_does_not_hold_up_what_comes_after_it(connect: Connect) -> None:
    client = connect()
    slow = client.send("run", commands=[{"name": "s", "argv": ["sleep", "30"], "timeout_s": 1.0}])
    started = time.monotonic()
    client.call("hello")
    assert time.monotonic() - started < 0.9
    assert client.receive(slow)["s"]["timed_out"] is True


def test_a_read_sent_right_behind_an_apply_sees_what_it_applied(agent: AgentClient, root: Path) -> None:
    path = root / "a.py"
    change = {
        "path": str(path),
        "kind": "replace",
        "before_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "content_b64": base64.b64encode(b"x = 2\n").decode(),
        "mode": None,
    }
    applied = agent.send("apply", txn="t1", files=[change])
    seen = agent.send("read", paths=[str(path)])
    agent.receive(applied)
    assert base64.b64decode(agent.receive(seen)[str(path)]["content_b64"]) == b"x = 2\n"
    agent.call("revert", txn="t1", reason="end of test")


@pytest.mark.parametrize(
    ("do", "given_", "kind"),
    [
        ("no_such_request", {}, "usage"),
        ("read", {}, "usage"),
        ("snapshot", {}, "refused"),
        ("http", {"method": "GET", "url": "http://127.0.0.1:1/", "timeout_s": 1}, "unreachable"),
    ],
)
def test_what_cannot_be_done_is_answered_with_its_kind(
    connect: Connect, do: str, given_: dict[str, object], kind: str
) -> None:
    client = connect()
    with pytest.raises(AgentReply) as caught:
        client.call(do, **given_)
    assert caught.value.kind == kind


def test_names_that_are_no_text_come_back_as_they_went(connect: Connect, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff\xfe.txt"
    with open(odd, "wb") as file:
        file.write(b"content")
    client = connect()
    (name,) = client.call("glob", patterns=[str(tmp_path / "*.txt")])[str(tmp_path / "*.txt")]
    assert os.fsencode(name) == odd
    found = client.call("read", paths=[name])[name]
    assert base64.b64decode(found["content_b64"]) == b"content"


def test_end_of_input_ends_the_agent_cleanly(connect: Connect) -> None:
    client = connect()
    client.call("hello")
    assert client.close() == 0


def test_commands_under_way_end_with_the_agent(connect: Connect, tmp_path: Path) -> None:
    """S26: a client that is gone leaves nothing running for hours."""
    client = connect()
    argv = ["sh", "-c", f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 600"]
    client.send("run", commands=[{"name": "s", "argv": argv, "timeout_s": 600}])
    wait_until((tmp_path / "pid").exists, "the command runs")
    assert client.close() == 0
    wait_until(lambda: not is_running(int((tmp_path / "pid").read_text())), "the command is gone")


def test_input_that_ends_inside_a_frame_ends_the_agent_with_a_reason(connect: Connect) -> None:
    client = connect()
    client.send_raw(struct.pack(">I", 100) + b"{")
    assert client.close() == 1
    assert b"inside a frame" in client.stderr


def test_a_frame_that_is_too_long_is_not_read(connect: Connect) -> None:
    client = connect()
    client.send_raw(struct.pack(">I", (16 << 20) + 1))
    assert client.process.wait(10) == 1
    client.close()
    assert b"16777216 at most" in client.stderr


def test_a_command_gets_neither_the_agents_input_nor_its_output(connect: Connect) -> None:
    client = connect()
    argv = ["sh", "-c", "cat; echo out; readlink /proc/self/fd/0"]
    reply = client.call("run", commands=[{"name": "c", "argv": argv, "timeout_s": 5}])
    assert reply["c"]["stdout"].split() == ["out", "/dev/null"]


@given(st.lists(st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=20)), max_size=6), st.data())
def test_frames_survive_any_cutting_of_the_stream(messages: list[dict[str, object]], data: st.DataObject) -> None:
    """Wire gives back exactly the messages, wherever the writer's blocks end."""
    raw = b"".join(pack_frame(m) for m in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    read_fd, write_fd = os.pipe()

    def write() -> None:
        for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
            if raw[start:end]:
                os.write(write_fd, raw[start:end])
        os.close(write_fd)

    writer = threading.Thread(target=write)
    writer.start()
    wire = Wire(read_fd, read_fd)
    assert [wire.receive() for _ in messages] == messages
    assert wire.receive() is None
    writer.join()
    os.close(read_fd)


def test_wire_refuses_what_is_no_json_object() -> None:
    read_fd, write_fd = os.pipe()
    os.write(write_fd, struct.pack(">I", 2) + b"[]")
    with pytest.raises(FrameError):
        Wire(read_fd, write_fd).receive()
    os.close(read_fd)
    os.close(write_fd)
