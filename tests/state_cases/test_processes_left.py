"""Cases of processes and their ends that have no test elsewhere; see docs/state-cases.md."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.client import AgentClient, is_running
from tests.agent.conftest import agent, connect, launch, launch_python, port, root

__all__ = ["agent", "connect", "port", "root"]

STUBBORN = """
import os, signal, sys, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.execv('/bin/sleep', ['VLLM::Worker_TP0', '600'])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print('up', flush=True)
time.sleep(600)
"""


def test_a_worker_that_hangs_in_its_exit_is_ended_after_its_server_left_politely(
    agent: AgentClient, tmp_path: Path
) -> None:
    """S03: the main process exits 0 on TERM, its worker does not; it is known from before the signal and killed, and
    stop returns only when nobody is left (S06)."""
    launch_python(agent, tmp_path, STUBBORN)
    agent.wait_line("up")
    before = {p["pid"] for p in agent.call("inspect", launch_id="l1")["descendants"]}
    reply = agent.call("stop", launch_id="l1", grace_s=10)
    assert before and before <= set(reply["ended"]) and reply["survivors"] == []
    assert reply["exit_code"] == 0 and reply["seconds"] < 6
    assert not any(is_running(pid) for pid in before)


def test_ending_returns_when_all_are_gone_and_not_before(connect: Callable[..., AgentClient]) -> None:
    """S06: a process that needs half a second for its exit is waited for."""
    slowly = "signal.signal(15, lambda *_: (time.sleep(0.5), sys.exit(0)))"
    source = f"import signal,sys,time\n{slowly}\nprint('up', flush=True)\n"
    with subprocess.Popen([sys.executable, "-c", source + "time.sleep(600)"], stdout=subprocess.PIPE) as slow:
        assert slow.stdout is not None
        slow.stdout.readline()
        client = connect()
        boot = client.call("hello")["boot_id"]
        seen = client.call("processes", devices=[], run_ids=[], pids=[slow.pid])["processes"]
        start = next(p["start_ticks"] for p in seen if p["pid"] == slow.pid)
        identity = {"pid": slow.pid, "start_ticks": start, "boot_id": boot}
        # Its parent is this test, which reaps it while the agent waits.
        began = time.monotonic()
        waiting = client.send("end_processes", identities=[identity], term_s=10, kill_s=5)
        slow.wait(10)
        assert client.receive(waiting)["ended"] == [slow.pid]
        assert time.monotonic() - began >= 0.5


def test_a_signal_for_a_process_reaches_no_shell_that_names_it(connect: Callable[..., AgentClient]) -> None:
    """S25: the command that carries the very words of its victim survives with its own exit code; a pattern would have
    hit it, and the session with it."""
    words = "sglang::scheduler_TP0"
    with subprocess.Popen([words, "600"], executable="/bin/sleep") as victim:
        client = connect()
        boot = client.call("hello")["boot_id"]
        script = f"sleep 1; exit 3 # {words} 600"
        command = {"name": "c", "argv": ["sh", "-c", script], "timeout_s": 20}
        carrier = client.send("run", commands=[command])
        seen = client.call("processes", devices=[], run_ids=[], pids=[victim.pid])["processes"]
        start = next(p["start_ticks"] for p in seen if p["pid"] == victim.pid)
        identity = {"pid": victim.pid, "start_ticks": start, "boot_id": boot}
        waiting = client.send("end_processes", identities=[identity], term_s=5, kill_s=5)
        assert victim.wait(10) == -signal.SIGTERM
        assert client.receive(waiting)["ended"] == [victim.pid]
        assert client.receive(carrier)["c"]["rc"] == 3


def test_an_exit_code_of_zero_is_told_as_an_end_like_any_other(agent: AgentClient, tmp_path: Path, port: int) -> None:
    """S11: a server that was to serve and exits 0 has ended; readiness says so with the code."""
    from tests.agent.test_server import ready_spec

    launch_python(agent, tmp_path, "import time\ntime.sleep(0.5)")
    state = agent.call("await_ready", launch_id="l1", spec=ready_spec(port))
    assert state["state"] == "exited" and state["facts"]["exit_code"] == 0
    agent.call("stop", launch_id="l1", grace_s=0)


def test_a_launch_has_caches_of_its_own_where_it_asks_for_them(agent: AgentClient, tmp_path: Path) -> None:
    """S16, S17: the directories lie in the launch's temporary directory, and go with it."""
    reply = launch(agent, tmp_path, "sleep", "600", own_caches=["TRITON_CACHE_DIR"])
    environ = agent.call("inspect", launch_id="l1")["environ"]
    assert environ["TRITON_CACHE_DIR"] == os.path.join(reply["tmp"], "caches", "triton_cache_dir")
    os.makedirs(environ["TRITON_CACHE_DIR"])
    assert reply["tmp"] in agent.call("stop", launch_id="l1", grace_s=1)["leftovers"]["removed"]
    assert not os.path.exists(reply["tmp"])


@pytest.mark.parametrize("words", ["pkill", "killall", "pgrep", "fuser -k"])
def test_nothing_of_ours_ends_processes_by_a_pattern(words: str) -> None:
    """S04, S25: no such command stands anywhere in what travels to a host or decides for one."""
    import orchestrator

    folder = Path(orchestrator.__file__).parent
    rooms = [folder / "agent", folder / "controller", folder / "hosts", folder / "serving", folder / "core"]
    sources = [path for room in rooms for path in room.glob("*.py")]
    assert sources and not [path for path in sources if words in path.read_text()]
