from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent import ending, holders, processes
from orchestrator.agent.processes import Grip, parse_stat
from tests.agent.client import AgentClient, is_running, wait_until

BOOT = processes.boot_id()
STAT = "{pid} ({comm}) S 1 7 7 0 -1 4194304 1 0 0 0 12 30 0 0 20 0 3 0 456 1000 25 0"


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes that print a line when they are set up; kills and reaps them at the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str, **more: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(list(argv), stdout=subprocess.PIPE, **more)
        started.append(process)
        assert process.stdout
        process.stdout.readline()
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(10)
        assert process.stdout
        process.stdout.close()


def identity(pid: int) -> dict[str, Any]:
    found = processes.identity_of(pid, BOOT)
    assert found is not None
    return dict(found._asdict())


def end(*identities: dict[str, Any], term_s: float = 2.0, kill_s: float = 5.0) -> dict[str, Any]:
    return ending.end_processes(identities, term_s, kill_s, BOOT)


# ---------------------------------------------------------------- identities


@given(st.text(st.characters(blacklist_characters="\0\n"), min_size=1, max_size=15))
def test_any_command_name_is_parsed(comm: str) -> None:
    """Names with spaces, brackets and digits do not shift the fields."""
    stat = parse_stat(STAT.format(pid=42, comm=comm))
    assert (stat.pid, stat.comm, stat.state, stat.sid, stat.cpu_ticks, stat.start_ticks) == (42, comm, "S", 7, 42, 456)


def test_our_own_stat_agrees_with_what_the_system_says() -> None:
    stat = processes.read_stat(os.getpid())
    assert stat is not None
    assert (stat.pid, stat.ppid, stat.sid) == (os.getpid(), os.getppid(), os.getsid(0))
    assert 0 <= processes.boottime_s() - stat.start_ticks / processes.TICKS_PER_S < 3600


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another"}])
def test_a_grip_is_taken_of_that_very_process_only(change: dict[str, Any]) -> None:
    mine = processes.identity_of(os.getpid(), BOOT)
    assert mine is not None
    assert Grip.take(mine._replace(**change), BOOT) is None
    grip = Grip.take(mine, BOOT)
    assert grip is not None and not grip.has_ended()
    grip.close()


def test_a_grip_reaches_its_process_without_pidfds_too(spawn: Callable[..., Any]) -> None:
    process = spawn("sh", "-c", "echo; exec sleep 60")
    found = processes.identity_of(process.pid, BOOT)
    assert found is not None
    grip = Grip(found, None)
    assert grip.send(signal.SIGKILL)
    wait_until(grip.has_ended, "it ended")
    process.wait(10)
    assert not grip.send(signal.SIGKILL)


# ---------------------------------------------------------------- ending


def test_exactly_the_named_processes_end_and_a_decoy_with_their_name_lives(
    spawn: Callable[..., Any], tmp_path: Path
) -> None:
    """S04: a test runner whose path holds the engine's name is no engine."""
    decoy_path = tmp_path / "sglang" / "test" / "run_suite.py"
    decoy_path.parent.mkdir(parents=True)
    decoy_path.write_text("print(flush=True)\nimport time\ntime.sleep(60)\n")
    decoy = spawn(sys.executable, str(decoy_path))
    server = spawn("sh", "-c", 'echo; exec sleep "$0"', "60")
    reply = end(identity(server.pid))
    assert reply == {"ended": [server.pid], "survivors": []}
    assert is_running(decoy.pid)


def test_a_process_that_ignores_the_polite_signal_is_killed(spawn: Callable[..., Any]) -> None:
    process = spawn("sh", "-c", "trap '' TERM; echo; while :; do sleep 0.1; done")
    started = time.monotonic()
    assert end(identity(process.pid), term_s=0.3)["ended"] == [process.pid]
    assert time.monotonic() - started < 2
    assert process.wait(10) == -signal.SIGKILL


def test_a_pid_that_belongs_to_another_process_is_left_alone_and_named(spawn: Callable[..., Any]) -> None:
    process = spawn("sh", "-c", "echo; exec sleep 60")
    reply = end({**identity(process.pid), "start_ticks": 1})
    assert reply["ended"] == [] and reply["survivors"][0]["pid"] == process.pid
    assert "identity differs" in reply["survivors"][0]["why"]
    assert is_running(process.pid)


def test_an_ancestor_is_never_ended() -> None:
    reply = end(identity(os.getppid()), term_s=0.1, kill_s=0.1)
    assert reply["ended"] == [] and "ancestor" in reply["survivors"][0]["why"]


def test_a_process_that_is_gone_counts_as_ended(spawn: Callable[..., Any]) -> None:
    process = spawn("sh", "-c", "echo; exec sleep 60")
    gone = identity(process.pid)
    process.kill()
    process.wait(10)
    assert end(gone) == {"ended": [process.pid], "survivors": []}


def test_a_zombie_is_reported_with_its_parent_and_not_signalled(spawn: Callable[..., Any]) -> None:
    """S09: it holds nothing and only its parent can collect it."""
    source = "import os,time\npid=os.fork()\nif pid==0: os._exit(0)\nprint(pid, flush=True)\ntime.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE)
    try:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        wait_until(lambda: (s := processes.read_stat(pid)) is not None and s.is_defunct, "the child is defunct")
        reply = end(identity(pid), kill_s=0.2)
        (survivor,) = reply["survivors"]
        assert survivor["state"] == "Z" and str(parent.pid) in survivor["why"]
        assert holders.scan(holders.find_wanted(["/dev/null"]), set(), [pid]).devices == {}
    finally:
        parent.kill()
        parent.wait(10)
        parent.stdout.close()


def test_a_dead_leader_whose_threads_live_is_not_taken_for_ended(spawn: Callable[..., Any]) -> None:
    """Its state is Z, and it still holds everything it had."""
    source = (
        "import ctypes,os,threading,time\nthreading.Thread(target=time.sleep,args=(60,)).start()\n"
        "print(flush=True)\nctypes.CDLL(None).syscall(60 if os.uname().machine=='x86_64' else 93,0)"
    )
    process = spawn(sys.executable, "-c", source)

    def stat() -> processes.Stat:
        found = processes.read_stat(process.pid)
        assert found is not None
        return found

    wait_until(lambda: stat().state == "Z", "the leader is dead")
    assert not stat().is_defunct
    assert end(identity(process.pid), term_s=0.1)["ended"] == [process.pid]


# ---------------------------------------------------------------- who is ours


def make_ours(main: int, *, guard: int | None = None, launch_id: str = "l1", tmp: str = "/tmp/orc-ours") -> ending.Ours:
    found = processes.identity_of(main, BOOT)
    assert found is not None
    launched = ending.Launched(launch_id, found.pid, found.start_ticks, BOOT, found.start_ticks - 100, tmp)
    return ending.Ours(launched, processes.identity_of(guard, BOOT) if guard else None, set(), {os.getpid()})


def pids_of(ours: ending.Ours) -> set[int]:
    return {one.pid for one in ending.find_ours(ours, processes.read_table())}


def test_a_member_of_the_session_is_ours_after_its_parent_died(spawn: Callable[..., Any]) -> None:
    process = spawn("sh", "-c", "sleep 61 & echo $!; exec sleep 60", start_new_session=True)
    child = next(iter(processes.descendants(processes.read_table(), [process.pid])))
    ours = make_ours(process.pid)
    process.kill()
    process.wait(10)
    assert pids_of(ours) == {child}
    assert [s.pid for s in ending.end_launch(ours, grace_s=0).left] == []
    assert not is_running(child)


def test_a_session_whose_number_went_to_somebody_else_is_not_ours(spawn: Callable[..., Any]) -> None:
    stranger = spawn("sh", "-c", "sleep 61 & echo; exec sleep 60", start_new_session=True)
    ours = make_ours(stranger.pid)
    older = ours.launched._replace(start_ticks=ours.launched.start_ticks - 50)
    assert pids_of(ours._replace(launched=older)) == set()
    ending.end_launch(ours, grace_s=0)


def test_a_carrier_of_the_run_id_is_ours_wherever_it_went(spawn: Callable[..., Any]) -> None:
    main = spawn("sh", "-c", "echo; exec sleep 60", start_new_session=True)
    environ = {**os.environ, "ORC_RUN_ID": "l1", "TMPDIR": "/tmp/orc-ours"}
    carrier = spawn("sh", "-c", "echo; exec sleep 60", env=environ, start_new_session=True)
    foreign = spawn("sh", "-c", "echo; exec sleep 60", env={**environ, "TMPDIR": "/tmp/orc-another"})
    ours = make_ours(main.pid)
    assert pids_of(ours) == {main.pid, carrier.pid}
    assert is_running(foreign.pid)


def test_a_launch_that_never_got_its_pid_noted_is_found_by_run_id_and_guard(spawn: Callable[..., Any]) -> None:
    """The agent died between the two records; this test process stands for the guard."""
    environ = {**os.environ, "ORC_RUN_ID": "l1", "TMPDIR": "/tmp/orc-ours"}
    main = spawn("sh", "-c", "echo; exec sleep 60", env=environ, start_new_session=True)
    ours = make_ours(main.pid)
    nameless = ours._replace(launched=ours.launched._replace(pid=0, start_ticks=0))
    assert pids_of(nameless) == {main.pid}
    unmarked = spawn("sh", "-c", "echo; exec sleep 60", env={})
    below = nameless._replace(guard=processes.identity_of(os.getpid(), BOOT), seen=set())
    assert {main.pid, unmarked.pid} <= pids_of(below)


# ---------------------------------------------------------------- who holds what


def held(patterns: list[str], pid: int) -> set[str]:
    return holders.scan(holders.find_wanted(patterns), set()).devices.get(pid, set())


def test_an_open_file_is_found_under_any_name_by_device_and_inode(tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    os.link(device, tmp_path / "elsewhere")
    with open(tmp_path / "elsewhere"):
        assert held([str(tmp_path / "nvidia[0-9]*")], os.getpid()) == {str(device)}
    assert held([str(device)], os.getpid()) == set()


def test_a_mapping_without_a_descriptor_holds_the_file(tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    device.write_bytes(b"\0" * 4096)
    source = (
        "import ctypes,os,sys\nlibc=ctypes.CDLL(None,use_errno=True)\nlibc.mmap.restype=ctypes.c_void_p\n"
        "fd=os.open(sys.argv[1],os.O_RDWR)\n"
        "libc.mmap(None,ctypes.c_size_t(4096),3,1,fd,ctypes.c_long(0))\nos.close(fd)\nprint(flush=True)\n"
        "import time\ntime.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", source, str(device)], stdout=subprocess.PIPE)
    try:
        assert child.stdout
        child.stdout.readline()
        assert held([str(device)], child.pid) == {str(device)}
    finally:
        child.kill()
        child.wait(10)
        child.stdout.close()


def test_a_device_is_found_by_number_through_another_node(tmp_path: Path) -> None:
    """A container has device nodes of its own."""
    node = tmp_path / "my-null"
    try:
        os.mknod(node, 0o600 | 0o020000, os.makedev(1, 3))
        opened = os.open(node, os.O_RDONLY)
    except PermissionError:
        pytest.skip("needs the right to make and open device nodes")
    try:
        assert held(["/dev/null"], os.getpid()) == {"/dev/null"}
    finally:
        os.close(opened)


# ---------------------------------------------------------------- through the agent


def test_processes_names_holders_owners_carriers_and_their_ancestors(
    connect: Callable[..., AgentClient], tmp_path: Path, spawn: Callable[..., Any]
) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    environ = {**os.environ, "ORC_RUN_ID": "run-77"}
    source = f"import socket,time\nf=open({str(device)!r})\ns=socket.create_server(('127.0.0.1',0))\n"
    source += "print(s.getsockname()[1], flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, env=environ)
    try:
        assert process.stdout
        port = int(process.stdout.readline())
        client = connect()
        for question in (
            {"devices": [f"{tmp_path}/nvidia*"], "run_ids": []},
            {"devices": [], "port": port, "run_ids": []},
            {"devices": [], "run_ids": ["run-77"]},
        ):
            seen = {p["pid"]: p for p in client.call("processes", **question)["processes"]}
            assert {process.pid, os.getpid()} <= set(seen), question
            assert seen[os.getpid()]["is_ancestor_of_agent"] and not seen[process.pid]["is_ancestor_of_agent"]
        found = seen[process.pid]
        assert found["run_id"] == "run-77" and found["environ_readable"] and found["fds_readable"]
        assert found["cmdline"][1] == "-c" and found["ppid"] == os.getpid() and 0 <= found["age_s"] < 60
        both = client.call("processes", devices=[str(device)], port=port, run_ids=[])["processes"]
        found = next(p for p in both if p["pid"] == process.pid)
        assert found["devices"] == [str(device)] and found["listens"] == [port]
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


def test_a_port_in_time_wait_has_no_owner_to_hunt_for(connect: Callable[..., AgentClient]) -> None:
    """S12: nobody listens, although a plain bind fails."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client_end = socket.create_connection(("127.0.0.1", port))
        server_end, _ = server.accept()
        server_end.close()  # the server closes first, so the port is left in TIME_WAIT
        client_end.close()
    with socket.socket() as plain, pytest.raises(OSError, match="in use"):
        plain.bind(("127.0.0.1", port))
    found = connect().call("processes", devices=[], port=port, run_ids=[])
    assert found["processes"] == []


def test_identities_survive_the_trip_to_the_agent_and_back(
    connect: Callable[..., AgentClient], spawn: Callable[..., Any]
) -> None:
    process = spawn("sh", "-c", "echo; exec sleep 60", env={**os.environ, "ORC_RUN_ID": "trip"})
    client = connect()
    boot = client.call("hello")["boot_id"]
    seen = client.call("processes", devices=[], run_ids=["trip"])["processes"]
    found = next(p for p in seen if p["pid"] == process.pid)
    wanted = [{"pid": found["pid"], "start_ticks": found["start_ticks"], "boot_id": boot}]
    assert client.call("end_processes", identities=wanted, term_s=2, kill_s=2)["ended"] == [process.pid]
