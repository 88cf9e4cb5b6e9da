from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent import guardlink, guardsocket, processes
from tests.agent.client import AgentClient, AgentReply, is_running, wait_until
from tests.agent.conftest import launch, launch_python, open_tree

Connect = Callable[..., AgentClient]
LEASE_S = 1.2


def change(path: Path, content: bytes) -> dict[str, Any]:
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    encoded = base64.b64encode(content).decode()
    return {"path": str(path), "kind": "replace", "before_sha256": before, "content_b64": encoded, "mode": None}


def begin(client: AgentClient, root: Path, tmp_path: Path, *, lease_s: float = LEASE_S) -> dict[str, Any]:
    """Tree open, a.py changed, a server that says `up` and sleeps."""
    open_tree(client, root, lease_s=30)
    client.call("snapshot")
    client.call("apply", txn="t1", files=[change(root / "a.py", b"x = 2\n")])
    reply = launch_python(client, tmp_path, "import time\nprint('up', flush=True)\ntime.sleep(600)")
    client.wait_line("up")
    client.call("beat", lease_s=lease_s)
    return reply


def identity(path: Path) -> tuple[Any, ...]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_mode, path.read_bytes()


def guard_pid(client: AgentClient, root: Path) -> int:
    """Of the guard that answers now."""
    assert client.process.pid
    pid = _living_guard(root)
    assert pid is not None
    return pid


@pytest.mark.parametrize("silence", ["killed", "stopped", "silent"])
def test_when_the_lease_ends_everything_is_undone(connect: Connect, root: Path, tmp_path: Path, silence: str) -> None:
    """Whether the agent is dead, hung with the lock in its hand, or only unasked: server gone, the very inode back."""
    found = identity(root / "a.py")
    client = connect()
    reply = begin(client, root, tmp_path)
    beaten = time.monotonic()
    assert identity(root / "a.py") != found
    if silence == "killed":
        client.process.kill()
    if silence == "stopped":
        client.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: identity(root / "a.py") == found, "the file is back")
    assert LEASE_S - 0.1 < time.monotonic() - beaten < LEASE_S + 1
    assert not is_running(reply["pid"]) and not Path(reply["tmp"]).exists()
    wait_until(lambda: client.process.poll() is not None, "the agent is ended")

    later = connect()
    opened = wait_until(lambda: _try_open(later, root, "another"), "the tree is free")
    assert opened["open"] is None and opened["launch"] is None and opened["guard"] == {"pid": None, "alive": False}
    outcome = opened["outcome"]
    assert outcome["kind"] == "GUARD_REVERTED" and outcome["clean"] and outcome["survivors"] == []
    assert any("l1" in did for did in outcome["did"]) and any("t1" in did for did in outcome["did"])
    assert later.call("verify")["clean"]
    later.call("acknowledge")
    later.call("close")
    again = open_tree(connect(), root, token="another")
    assert again["outcome"] is None


def _try_open(client: AgentClient, root: Path, token: str) -> dict[str, Any] | None:
    try:
        return open_tree(client, root, token=token, lease_s=2)
    except AgentReply as reply:
        assert reply.kind == "busy", reply
        return None


def test_a_beat_keeps_the_lease(connect: Connect, root: Path, tmp_path: Path) -> None:
    client = connect()
    reply = begin(client, root, tmp_path, lease_s=0.6)
    deadline = time.monotonic() + 2
    wait_until(lambda: client.call("beat") and time.monotonic() > deadline, "three leases have passed")
    assert is_running(reply["pid"])
    assert client.call("recover")["state"] == "clean"
    client.call("close")


def test_a_dead_agent_changes_nothing_and_another_goes_on(connect: Connect, root: Path, tmp_path: Path) -> None:
    """Same token: server, file and log as they were, the log from its first line."""
    client = connect()
    reply = begin(client, root, tmp_path, lease_s=30)
    guard = guard_pid(client, root)
    client.process.kill()
    client.process.wait(10)
    assert is_running(reply["pid"]) and is_running(guard)

    later = connect()
    opened = open_tree(later, root)
    assert opened["guard"] == {"pid": guard, "alive": True}
    assert opened["launch"]["pid"] == reply["pid"] and opened["launch"]["alive"]
    assert opened["open"]["txn"] == "t1"
    later.wait_line("up")
    assert later.named("log")[0]["first_lineno"] == 1
    assert later.call("inspect", launch_id="l1")["alive"]
    with pytest.raises(AgentReply) as caught:
        later.call("apply", txn="t2", files=[])
    assert caught.value.kind == "dirty"
    stopped = later.call("stop", launch_id="l1", grace_s=2)
    assert stopped["signal"] == signal.SIGTERM and stopped["ended"] == [reply["pid"]]
    later.call("revert", txn="t1", reason="end of test")
    assert later.call("verify")["clean"]
    launch(later, tmp_path, "sleep", "600", launch_id="l2")  # what was inherited is settled
    later.call("stop", launch_id="l2", grace_s=1)
    later.call("close")
    wait_until(lambda: not is_running(guard), "the guard left")


def test_another_agent_of_the_holder_ends_the_one_that_hangs(connect: Connect, root: Path, tmp_path: Path) -> None:
    client = connect()
    begin(client, root, tmp_path, lease_s=30)
    client.process.send_signal(signal.SIGSTOP)
    later = connect()
    assert open_tree(later, root)["launch"]["alive"]
    assert client.process.wait(10) == -signal.SIGKILL
    reply = later.call("recover")
    assert reply["state"] == "clean" and reply["verify"]["clean"] and reply["survivors"] == []
    later.call("close")


def test_somebody_else_is_told_who_holds_the_tree(connect: Connect, root: Path, tmp_path: Path) -> None:
    client = connect()
    begin(client, root, tmp_path, lease_s=30)
    with pytest.raises(AgentReply) as caught:
        open_tree(connect(), root, token="another")
    assert caught.value.kind == "busy" and caught.value.facts["holder"] == "tester ours"
    assert caught.value.facts["host_pid"] == str(client.process.pid)
    client.call("recover")
    client.call("close")


def test_an_end_that_nobody_saw_is_told_to_whoever_connects(connect: Connect, root: Path, tmp_path: Path) -> None:
    client = connect()
    reply = begin(client, root, tmp_path, lease_s=30)
    client.kill()
    os.kill(reply["pid"], signal.SIGUSR1)
    wait_until(lambda: not is_running(reply["pid"]), "the server ended")
    later = connect()
    opened = open_tree(later, root)
    assert not opened["launch"]["alive"]
    assert later.wait_event("exit")["signal"] == signal.SIGUSR1
    assert later.call("recover")["state"] == "clean"
    later.call("close")


def test_without_a_guard_recovery_works_from_the_journal(connect: Connect, root: Path, tmp_path: Path) -> None:
    """The guard is killed: it is told, and session and run id still tell who is ours, a daemon included."""
    client = connect()
    open_tree(client, root)
    client.call("snapshot")
    client.call("apply", txn="t1", files=[change(root / "a.py", b"x = 2\n")])
    launch(client, tmp_path, "bash", "-c", "(setsid sleep 601 &); sleep 602 & echo up; wait")
    client.wait_line("up")
    family = wait_until(lambda: _sleepers(client), "both sleepers run")
    os.kill(guard_pid(client, root), signal.SIGKILL)
    client.wait_event("guard_lost")
    reply = client.call("recover")
    assert reply["state"] == "clean" and reply["verify"]["clean"], reply
    assert not any(is_running(pid) for pid in family)
    client.call("apply", txn="t2", files=[change(root / "a.py", b"x = 3\n")])  # with a new guard
    assert is_running(guard_pid(client, root))
    client.call("revert", txn="t2", reason="end of test")
    client.call("close")


def test_a_killed_guard_is_replaced_and_the_lease_goes_on_to_count(
    connect: Connect, root: Path, tmp_path: Path
) -> None:
    found = identity(root / "a.py")
    client = connect()
    reply = begin(client, root, tmp_path, lease_s=30)
    first = guard_pid(client, root)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: _living_guard(root) not in (None, first), "another guard answers")
    client.call("beat", lease_s=LEASE_S)
    client.process.kill()
    wait_until(lambda: identity(root / "a.py") == found, "the file is back")
    wait_until(lambda: not is_running(reply["pid"]), "the server is gone")


def _living_guard(root: Path) -> int | None:
    (state_dir,) = root.parent.glob(".orchestrator-*")
    sock = guardsocket.dial(str(state_dir), 5.0)
    if sock is None:
        return None
    with sock:
        return guardsocket.peer_pid(sock)


def test_a_tree_that_is_deleted_takes_its_server_with_it(connect: Connect, root: Path, tmp_path: Path) -> None:
    """There is no journal left to work from; nothing of ours goes on for ever all the same."""
    client = connect()
    reply = begin(client, root, tmp_path, lease_s=30)
    guard = guard_pid(client, root)
    client.process.kill()
    client.process.wait(10)
    shutil.rmtree(root.parent)
    wait_until(lambda: not is_running(reply["pid"]) and not is_running(guard), "server and guard are gone")
    assert not Path(reply["tmp"]).exists()


def test_an_agent_without_a_guard_lets_go_when_its_lease_ends(connect: Connect, root: Path) -> None:
    """A cut wire gives no end of input; the tree must not be held for ever."""
    client = connect()
    open_tree(client, root, lease_s=0.5)
    assert client.process.wait(10) == 75
    assert open_tree(connect(), root, token="another")["outcome"] is None


def test_what_was_found_open_is_undone_when_its_finder_falls_silent_too(
    connect: Connect, root: Path, tmp_path: Path
) -> None:
    found = identity(root / "a.py")
    client = connect()
    begin(client, root, tmp_path, lease_s=30)
    guard = guard_pid(client, root)
    client.process.kill()
    client.process.wait(10)
    os.kill(guard, signal.SIGKILL)
    later = connect()
    opened = open_tree(later, root, lease_s=0.5)
    assert opened["guard"]["alive"] is False and opened["launch"]["alive"]
    wait_until(lambda: identity(root / "a.py") == found, "the file is back")
    assert later.process.wait(10) == -signal.SIGKILL


def _sleepers(client: AgentClient) -> list[int] | None:
    found = client.call("inspect", launch_id="l1")["descendants"]
    pids = [p["pid"] for p in found if p["cmdline"][0] == "sleep"]
    return pids if len(pids) == 2 else None


def test_agent_and_guard_both_dead_are_recovered_by_the_next(connect: Connect, root: Path, tmp_path: Path) -> None:
    found = identity(root / "a.py")
    client = connect()
    reply = begin(client, root, tmp_path, lease_s=30)
    guard = guard_pid(client, root)
    client.process.kill()
    client.process.wait(10)
    os.kill(guard, signal.SIGKILL)
    later = connect()
    opened = open_tree(later, root)
    assert opened["guard"] == {"pid": None, "alive": False} and opened["launch"]["alive"]
    done = later.call("recover")
    assert done["state"] == "clean" and done["verify"]["clean"]
    assert identity(root / "a.py") == found and not is_running(reply["pid"])
    assert later.named("exit")[0]["exit_code"] is None  # nobody was there to see it
    later.call("close")


_FATHER = """
import subprocess, sys, time
subprocess.Popen(["sleep", "600"])
subprocess.Popen(["sleep", "600"], start_new_session=True, env={"PATH": "/usr/bin:/bin"})
print("up", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("first", ["agent", "main"])
def test_orphans_of_a_dead_server_end_when_no_agent_is_there(
    connect: Connect, root: Path, tmp_path: Path, first: str
) -> None:
    """Main process and agent killed, in either order: the guard ends what is left at once, and lets go of nothing else;
    whoever connects later is told of the end and puts the files back."""
    found = identity(root / "a.py")
    client = connect()
    open_tree(client, root, lease_s=60)
    client.call("snapshot")
    client.call("apply", txn="t1", files=[change(root / "a.py", b"x = 2\n")])
    reply = launch_python(client, tmp_path, _FATHER)
    client.wait_line("up")
    sleepers = wait_until(lambda: _sleepers(client), "both children run")
    guard = guard_pid(client, root)
    client.process.send_signal(signal.SIGSTOP)  # it can stop nothing any more
    if first == "agent":
        client.process.kill()
        client.process.wait(10)
    os.kill(reply["pid"], signal.SIGKILL)
    if first == "main":
        wait_until(lambda: not is_running(reply["pid"]), "the server has ended")
        assert all(is_running(pid) for pid in sleepers)  # an agent that is only slow still has its turn
        client.process.kill()
        client.process.wait(10)
    wait_until(lambda: not any(is_running(pid) for pid in sleepers), "the orphans have ended")
    assert is_running(guard) and identity(root / "a.py") != found

    later = connect()
    opened = open_tree(later, root)
    assert opened["guard"] == {"pid": guard, "alive": True} and not opened["launch"]["alive"]
    done = later.call("recover")
    assert done["state"] == "clean" and done["survivors"] == [] and identity(root / "a.py") == found
    assert later.named("exit")[0]["signal"] == signal.SIGKILL
    later.call("close")


def test_the_next_server_outlives_its_agent_though_the_one_before_was_killed(
    connect: Connect, root: Path, tmp_path: Path
) -> None:
    """An end that an agent has dealt with is over: nothing of a later launch is taken for its orphans."""
    client = connect()
    reply = begin(client, root, tmp_path, lease_s=60)
    os.kill(reply["pid"], signal.SIGKILL)
    client.call("stop", launch_id="l1", grace_s=0)
    later = launch(client, tmp_path, "sleep", "600", launch_id="l2")
    guard = guard_pid(client, root)
    client.process.kill()
    client.process.wait(10)
    again = connect()
    assert open_tree(again, root)["guard"] == {"pid": guard, "alive": True}  # it has seen the agent go before this one
    assert is_running(later["pid"])
    again.call("recover")
    again.call("close")


def test_a_guard_takes_neither_lock_nor_channel_nor_hint_to_leave(connect: Connect, root: Path, tmp_path: Path) -> None:
    client = connect()
    begin(client, root, tmp_path, lease_s=30)
    pid = guard_pid(client, root)
    links = wait_until(lambda: _links(pid), "its descriptors could be read")
    assert not any(link.endswith("/lock") for link in links)
    assert os.getsid(pid) != os.getsid(client.process.pid)
    agent_pipes = {os.readlink(f"/proc/{client.process.pid}/fd/{n}") for n in (2,)}
    assert not links & agent_pipes
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    client.process.kill()
    client.process.wait(10)
    (lock,) = root.parent.glob(".orchestrator-*/lock")
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert is_running(pid)


def _links(pid: int) -> set[str] | None:
    """None when one was closed while we looked."""
    try:
        return {os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")}
    except FileNotFoundError:
        return None


def test_a_third_party_edit_is_kept_and_the_guard_says_so(connect: Connect, root: Path, tmp_path: Path) -> None:
    client = connect()
    reply = begin(client, root, tmp_path)
    (root / "a.py").write_text("x = 'a colleague'\n")
    client.process.kill()
    wait_until(lambda: not is_running(reply["pid"]), "the server is ended all the same")
    later = connect()
    opened = wait_until(lambda: _try_open(later, root, "ours"), "the guard is done")
    assert opened["outcome"]["kind"] == "GUARD_REFUSED"
    assert opened["open"]["state"] == "held" and opened["launch"] is None
    assert (root / "a.py").read_text() == "x = 'a colleague'\n"
    (root / "a.py").write_text("x = 2\n")  # the colleague takes it back
    later.call("recover")
    later.call("close")


def test_a_guard_that_does_not_answer_is_ended_and_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import socket,time\ns=socket.socket(socket.AF_UNIX)\ns.bind('guard.sock')\ns.listen()\nprint(flush=True)\n"
    )
    silent = subprocess.Popen([sys.executable, "-c", source + "time.sleep(600)"], cwd=tmp_path, stdout=subprocess.PIPE)
    assert silent.stdout
    silent.stdout.readline()
    monkeypatch.setattr(guardlink, "REPLY_S", 0.3)
    lost: list[str] = []
    link = guardlink.GuardLink.dial(
        str(tmp_path), processes.boot_id(), lambda _: lost.append("exit"), lambda: lost.append("lost")
    )
    assert link is None and silent.wait(10) == -signal.SIGKILL and lost == []
    silent.stdout.close()
    assert guardlink.GuardLink.dial(str(tmp_path), processes.boot_id(), lambda _: None, lambda: None) is None


def test_a_stopped_guard_is_noticed_by_the_heartbeat(connect: Connect, root: Path, tmp_path: Path) -> None:
    client = connect()
    begin(client, root, tmp_path, lease_s=60)
    os.kill(guard_pid(client, root), signal.SIGSTOP)
    wait_until(lambda: client.call("beat") and client.named("guard_lost"), "it is told")
    assert client.call("recover")["state"] == "clean"
    client.call("apply", txn="t2", files=[change(root / "a.py", b"x = 3\n")])  # ends it, and starts another
    client.call("revert", txn="t2", reason="end of test")
    client.call("close")


def test_paths_longer_than_a_socket_name_work(connect: Connect, tmp_path: Path) -> None:
    root = tmp_path / "work" / ("d" * 60) / ("e" * 60) / "tree"
    root.mkdir(parents=True)
    (root / "a.py").write_text("x = 1\n")
    client = connect()
    begin(client, root, tmp_path, lease_s=30)
    assert client.call("recover")["state"] == "clean"
    client.call("close")


def test_nothing_open_means_no_guard_and_no_leftover_process(connect: Connect, root: Path) -> None:
    client = connect()
    assert open_tree(client, root)["guard"] == {"pid": None, "alive": False}
    client.call("apply", txn="t1", files=[change(root / "a.py", b"x = 2\n")])
    pid = guard_pid(client, root)
    client.call("revert", txn="t1", reason="end of test")
    client.call("close")
    wait_until(lambda: not is_running(pid), "the guard left")
    assert open_tree(client, root)["open"] is None
    client.call("close")
    assert client.call("forget", tree=str(root))["trees"] == []
    assert not list(root.parent.glob(".orchestrator-*"))
