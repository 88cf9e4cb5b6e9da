from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.logtail import MAX_LINE, Lines
from tests.agent.client import AgentClient, AgentReply, is_running, wait_until
from tests.agent.conftest import DUMMY, launch, launch_dummy, launch_python

# ---------------------------------------------------------------- launching


def test_a_launch_returns_while_the_server_runs_on(agent: AgentClient, tmp_path: Path) -> None:
    """S27: no descriptor of ours is held open by it."""
    started = time.monotonic()
    reply = launch(agent, tmp_path, "sleep", "600")
    assert time.monotonic() - started < 5
    fds = {os.readlink(f"/proc/{reply['pid']}/fd/{n}") for n in os.listdir(f"/proc/{reply['pid']}/fd")}
    assert fds == {"/dev/null", reply["log"]}
    assert os.getsid(reply["pid"]) == reply["pid"]
    assert agent.call("stop", launch_id="l1", grace_s=1)["ended"] == [reply["pid"]]


def test_the_environment_is_the_given_one_and_ours_and_nothing_else(agent: AgentClient, tmp_path: Path) -> None:
    odd = {"JSON": '{"a": "b c"}', "QUOTES": 'it\'s "$HOME" \\ \n', "EMPTY": ""}
    given_ = {**odd, "PYTHONDONTWRITEBYTECODE": "1"}
    launched = launch(agent, tmp_path, "sleep", "600", env=given_, pycache=True)
    seen = agent.call("inspect", launch_id="l1")
    assert seen["alive"] and seen["cmdline"] == ["sleep", "600"] and seen["cwd"] == "/"
    environ = seen["environ"]
    assert {n: environ[n] for n in odd} == odd
    assert environ["ORC_RUN_ID"] == "l1" and environ["TMPDIR"] == launched["tmp"]
    assert environ["PYTHONPYCACHEPREFIX"].endswith("/pycache") and "PYTHONDONTWRITEBYTECODE" not in environ
    assert set(environ) == {*odd, "PATH", "HOME", "ORC_RUN_ID", "TMPDIR", "PYTHONPYCACHEPREFIX"}
    assert len(launched["tmp"]) < 20 and os.stat(launched["tmp"]).st_mode & 0o777 == 0o700
    agent.call("stop", launch_id="l1", grace_s=1)


def test_arguments_arrive_as_they_were_sent(agent: AgentClient, tmp_path: Path) -> None:
    """S33: no shell reads them again."""
    argv = ["sleep", "600"]
    words = ["a b", "it's", '"', "$HOME", "back\\slash", "new\nline", '{"k": [1, "v"]}', ""]
    source = "import time\ntime.sleep(600)"
    launch(agent, tmp_path, sys.executable, "-c", source, *words, *argv)
    assert agent.call("inspect", launch_id="l1")["cmdline"] == [sys.executable, "-c", source, *words, *argv]
    agent.call("stop", launch_id="l1", grace_s=1)


@pytest.mark.parametrize(
    ("argv", "cwd", "call"), [(["/no/such/server"], "/", "exec"), (["sleep", "1"], "/no/such/directory", "chdir")]
)
def test_a_server_that_cannot_start_leaves_nothing_open(
    agent: AgentClient, tmp_path: Path, argv: list[str], cwd: str, call: str
) -> None:
    with pytest.raises(AgentReply) as caught:
        launch(agent, tmp_path, *argv, cwd=cwd)
    assert caught.value.kind == "refused" and caught.value.facts["call"] == call and caught.value.facts["errno"] == "2"
    launch(agent, tmp_path, "sleep", "600", launch_id="l2")
    agent.call("stop", launch_id="l2", grace_s=1)
    assert agent.call("close") == {}


@pytest.mark.parametrize("launch_id", ["../up", "", "a/b", ".", "x" * 101])
def test_a_launch_id_that_is_no_name_is_refused(agent: AgentClient, tmp_path: Path, launch_id: str) -> None:
    with pytest.raises(AgentReply, match="cannot name a directory"):
        launch(agent, tmp_path, "sleep", "1", launch_id=launch_id)


def test_a_second_launch_waits_for_the_first_to_be_stopped(agent: AgentClient, tmp_path: Path) -> None:
    launch(agent, tmp_path, "sleep", "600")
    with pytest.raises(AgentReply, match="still open"):
        launch(agent, tmp_path, "sleep", "600", launch_id="l2")
    with pytest.raises(AgentReply) as caught:
        agent.call("close")
    assert caught.value.kind == "dirty"
    agent.call("stop", launch_id="l1", grace_s=1)


def test_a_site_of_ours_goes_first_on_the_path(agent: AgentClient, tmp_path: Path) -> None:
    import base64

    content = {"sitecustomize.py": base64.b64encode(b"print('site of ours', flush=True)\n").decode()}
    source = "import sys\nprint(sys.path[1], flush=True)\nimport time\ntime.sleep(600)"
    reply = launch_python(agent, tmp_path, source, env={"PYTHONPATH": "/second"}, site_b64=content)
    agent.wait_line("site of ours")
    agent.wait_line(reply["site"])
    agent.call("stop", launch_id="l1", grace_s=1)


# ---------------------------------------------------------------- log and exit


def test_a_burst_of_twenty_thousand_lines_loses_none(agent: AgentClient, tmp_path: Path) -> None:
    source = "import sys\nfor n in range(20000): sys.stdout.write(f'line {n} ' + 'x' * 60 + '\\n')\nsys.exit(3)"
    reply = launch_python(agent, tmp_path, source)
    event = agent.wait_event("exit")
    assert event["exit_code"] == 3 and event["signal"] is None
    lines = agent.lines()
    assert lines == [f"line {n} " + "x" * 60 for n in range(20000)]
    number, content = 1, Path(reply["log"]).read_bytes()
    for data in agent.named("log"):
        assert data["first_lineno"] == number
        assert content[data["offset"] :].startswith(data["lines"][0].encode())
        number += len(data["lines"])
    agent.call("stop", launch_id="l1", grace_s=1)


def test_the_exit_is_told_at_once_and_after_the_last_words(agent: AgentClient, tmp_path: Path) -> None:
    """≤ 0.2 s; the line without an end comes before it."""
    source = "import os,sys,time\nsys.stdin.read()\ntime.sleep(0.5)\nsys.stdout.write(f'{time.time()} last words')\n"
    launch_python(agent, tmp_path, source + "sys.stdout.flush()\nos.kill(os.getpid(), 9)")
    event = agent.wait_event("exit")
    now = time.time()
    names = [name for name, _ in agent.events]
    assert names.index("exit") > max(n for n, name in enumerate(names) if name == "log")
    assert agent.lines()[-1].endswith("last words")
    assert now - float(agent.lines()[-1].split()[0]) < 0.2
    assert (event["exit_code"], event["signal"]) == (-9, 9) and 0.4 < event["after_s"] < 5
    assert agent.call("stop", launch_id="l1", grace_s=1)["signal"] == 9


def test_lines_come_while_the_server_runs(agent: AgentClient, tmp_path: Path) -> None:
    source = "import sys,time\nprint('one', flush=True)\nsys.stdout.write('45%\\r46%\\r')\nsys.stdout.flush()\n"
    launch_python(agent, tmp_path, source + "time.sleep(600)")
    agent.wait_line("46%")
    assert agent.lines() == ["one", "45%", "46%"]
    agent.call("stop", launch_id="l1", grace_s=1)


_END = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(
    st.lists(st.tuples(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b"")), _END)),
    st.data(),
)
def test_lines_are_the_same_however_the_log_is_cut(parts: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    """Each text once, in order, with the offset it has in the file."""
    raw = b"".join(text + end for text, end in parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    lines = Lines()
    taken: list[str] = []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        got, first, offset = lines.feed(raw[start:end])
        if got:
            assert first == len(taken) + 1
            head = raw[offset:].replace(b"\r", b"\n").split(b"\n")[0]
            assert head.decode("utf-8", "replace") == got[0]
        taken += got
    expected = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
    assert taken == [text.decode("utf-8", "replace") for text in expected]


def test_a_line_without_end_is_cut_and_says_so() -> None:
    lines = Lines()
    for _ in range(4):
        assert lines.feed(b"y" * MAX_LINE)[0] == []
    ((line,), first, offset) = lines.feed(b"\nz\n")[0][:1], 1, 0
    assert line == "y" * MAX_LINE + f" … [{3 * MAX_LINE} bytes cut]" and (first, offset) == (1, 0)
    assert lines.offset == 4 * MAX_LINE + 3


def test_a_rank_that_ends_first_is_told_at_once(agent: AgentClient, tmp_path: Path) -> None:
    title = "sglang::scheduler_TP1"
    source = f"import os,time\nif os.fork()==0: os.execv('/bin/sleep', [{title!r}, '600'])\ntime.sleep(600)"
    launch_python(agent, tmp_path, source)

    def rank() -> int | None:
        found = agent.call("inspect", launch_id="l1")["descendants"]
        return next((p["pid"] for p in found if p["cmdline"][0] == title), None)

    pid = wait_until(rank, "the rank has its title")
    pause = threading.Event()
    pause.wait(0.7)  # the watch looks for new ranks twice a second
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    event = agent.wait_event("rank_exit")
    assert time.monotonic() - killed < 0.2
    assert event == {"launch_id": "l1", "pid": pid, "title": f"{title} 600"}
    agent.call("stop", launch_id="l1", grace_s=1)
    assert len(agent.named("rank_exit")) == 1


# ---------------------------------------------------------------- stopping

RANKS = """
import os, sys, time
def rank(title, daemonize):
    if os.fork():
        return
    if daemonize:
        os.setsid()
        if os.fork():
            os._exit(0)
    os.execve('/bin/sleep', [title, '600'], {'HOME': os.environ['HOME']})  # no run id: titles wipe the environment
rank('VLLM::EngineCore', True)
rank('VLLM::Worker_TP0', True)
print('up', flush=True)
time.sleep(600)
"""


def titled(prefix: str, tmp_path: Path) -> list[int]:
    """Pids with that title that carry the HOME of this test."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                title, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            if title.startswith(prefix.encode()) and f"HOME={tmp_path}".encode() in environ:
                found.append(int(entry.name))
    return sorted(found)


def test_daemonized_workers_of_a_killed_parent_are_found_and_ended(agent: AgentClient, tmp_path: Path) -> None:
    """S01: other sessions, no run id, re-parented; exactly these two, and a decoy with the same title lives."""
    decoy = subprocess.Popen(["VLLM::Worker_TP9", "600"], executable="/bin/sleep", env={})
    try:
        reply = launch_python(agent, tmp_path, RANKS)
        wait_until(lambda: len(titled("VLLM::", tmp_path)) == 2, "both ranks run")
        workers = titled("VLLM::", tmp_path)
        os.kill(reply["pid"], signal.SIGKILL)
        agent.wait_event("exit")
        assert all(is_running(pid) for pid in workers)
        stopped = agent.call("stop", launch_id="l1", grace_s=0.5)
        assert set(workers) <= set(stopped["ended"]) and stopped["survivors"] == []
        assert set(stopped["ended"]) - {reply["pid"]} == set(workers)
        assert not any(is_running(pid) for pid in workers)
        assert decoy.poll() is None
    finally:
        decoy.kill()
        decoy.wait(10)


def test_groups_sessions_and_double_forks_all_end(agent: AgentClient, tmp_path: Path) -> None:
    """S05: `timeout` makes a group, `setsid` a session, a double fork an orphan."""
    script = "timeout 600 sleep 601 & setsid sleep 602 & (setsid sh -c 'sleep 603 & sleep 604 &' &) ; echo up; wait"
    launch(agent, tmp_path, "bash", "-c", script)
    agent.wait_line("up")

    def sleepers() -> list[str]:
        found = agent.call("inspect", launch_id="l1")["descendants"]
        return sorted(p["cmdline"][-1] for p in found if p["cmdline"][0] == "sleep")

    wait_until(lambda: sleepers() == ["601", "602", "603", "604"], "all four sleep")
    reply = agent.call("stop", launch_id="l1", grace_s=0.5)
    assert len(reply["ended"]) >= 6 and reply["survivors"] == []


def test_a_server_that_ignores_the_polite_signal_is_killed_after_its_grace(agent: AgentClient, tmp_path: Path) -> None:
    launch_python(
        agent, tmp_path, "import signal,time\nsignal.signal(15, signal.SIG_IGN)\nprint('up')\ntime.sleep(600)"
    )
    agent.wait_line("up")
    started = time.monotonic()
    reply = agent.call("stop", launch_id="l1", grace_s=0.4)
    assert 0.4 <= time.monotonic() - started < 2
    assert (reply["exit_code"], reply["signal"]) == (-9, 9)


def test_a_server_that_ends_politely_is_not_killed(agent: AgentClient, tmp_path: Path) -> None:
    source = "import signal,sys,time\nsignal.signal(15, lambda *_: sys.exit(0))\nprint('up')\ntime.sleep(600)"
    launch_python(agent, tmp_path, source)
    agent.wait_line("up")
    started = time.monotonic()
    reply = agent.call("stop", launch_id="l1", grace_s=20)
    assert time.monotonic() - started < 2
    assert (reply["exit_code"], reply["signal"]) == (0, None)
    assert agent.named("exit")[0]["exit_code"] == 0


def test_processes_that_go_on_forking_are_caught_up_with(agent: AgentClient, tmp_path: Path) -> None:
    source = """
import os, time
print('up', flush=True)
for generation in range(400):
    if os.fork():
        time.sleep(0.2)
        os._exit(0)
    os.setsid()
    time.sleep(0.01)
time.sleep(600)
"""
    launch_python(agent, tmp_path, source)
    agent.wait_line("up")
    reply = agent.call("stop", launch_id="l1", grace_s=0)
    assert reply["survivors"] == []
    agent.call("close")


def test_what_a_server_left_behind_is_ended_by_stop_though_it_ended_by_itself(
    agent: AgentClient, tmp_path: Path
) -> None:
    """S02."""
    launch(agent, tmp_path, "bash", "-c", "setsid sleep 601 & echo $!; exit 5")
    agent.wait_event("exit")
    child = int(agent.lines()[0])
    assert is_running(child)
    reply = agent.call("stop", launch_id="l1", grace_s=0.3)
    assert child in reply["ended"] and reply["exit_code"] == 5
    assert not is_running(child)


SHARER = """
import multiprocessing, multiprocessing.shared_memory, os, tempfile, time
if __name__ == '__main__':
    made = multiprocessing.get_context('spawn').Semaphore()
    block = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
    tempfile.mkstemp()
    print(made._semlock.name, block.name, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("end", ["stopped", "crashed"])
def test_leftovers_that_are_ours_go_and_others_stay(agent: AgentClient, tmp_path: Path, end: str) -> None:
    """The temporary directory, and shared memory that our processes were seen to map; not what merely looks alike."""
    foreign = Path(f"/dev/shm/psm_f{os.getpid():x}{time.monotonic_ns() % 10**6}")
    try:
        reply = launch_python(agent, tmp_path, SHARER)
        foreign.touch(0o600)
        names = wait_until(lambda: agent.lines() and agent.lines()[0].split(), "it shares")
        shared = {f"/dev/shm/sem.{names[0].lstrip('/')}", f"/dev/shm/{names[1]}"}
        assert all(os.path.exists(path) for path in shared) and os.listdir(reply["tmp"])
        if end == "crashed":
            threading.Event().wait(1.2)  # it is looked for twice a second
            (tracker,) = agent.call("inspect", launch_id="l1")["descendants"]
            for process in (tracker, reply):  # the tracker first, which would tidy up
                os.kill(process["pid"], signal.SIGKILL)
            agent.wait_event("exit")
        left = agent.call("stop", launch_id="l1", grace_s=0)["leftovers"]
        assert reply["tmp"] in left["removed"] and set(left["removed"]) <= {reply["tmp"], *shared}
        assert end == "stopped" or shared <= set(left["removed"])
        assert str(foreign) in left["kept"] and foreign.exists()
        assert not any(os.path.exists(path) for path in (*shared, reply["tmp"]))
    finally:
        foreign.unlink(missing_ok=True)


# ---------------------------------------------------------------- readiness


def ready_spec(port: int, **more: Any) -> dict[str, Any]:
    generate = {"path": "/generate", "body": {"text": "2+2="}, "text_key": "meta_info.completion_tokens"}
    expect = [{"path": "/model_info", "json": {"weight_version": "l1", "list.0.id": "a"}}]
    spec = {"port": port, "health": "/health", "limit_s": 20.0, "stall_s": 10.0, "poll_s": 0.05}
    return {**spec, "expect": expect, "generate": generate, **more}


def test_ready_needs_owner_health_identity_and_a_generation(agent: AgentClient, tmp_path: Path, port: int) -> None:
    reply = launch_dummy(agent, tmp_path, {"port": port, "health_after": 2, "weight_version": "l1"})
    state = agent.call("await_ready", launch_id="l1", spec=ready_spec(port))
    assert state["state"] == "ready", state
    assert state["facts"]["pid"] == reply["pid"] and state["facts"]["generated"] == 4
    assert agent.call("inspect", launch_id="l1")["listens"] == [port]
    agent.call("stop", launch_id="l1", grace_s=1)


@pytest.mark.parametrize(
    ("dummy", "spec", "state", "fact"),
    [
        ({"weight_version": "old"}, {}, "wrong_server", ("found", "old")),
        ({"api_key": "secret"}, {}, "auth_required", ("status", 401)),
        ({"weight_version": "l1", "generate": "error500"}, {}, "generation_failed", ("status", 500)),
        ({"weight_version": "l1", "generate": "empty"}, {"text": 1}, "generation_failed", ("status", 200)),
        ({"weight_version": "l1", "generate": "exit"}, {}, "exited", ("exit_code", 7)),
        ({"health": 503}, {"limit_s": 1.0}, "timeout", ("seen", "/health answers 503")),
        (
            {"weight_version": "l1", "generate": "hang"},
            {"stall_s": 1.0},
            "hung",
            ("seen", "/generate has not answered"),
        ),
        ({"start_s": 600}, {"stall_s": 1.0}, "hung", ("seen", "nothing listens on the port")),
    ],
)
def test_every_other_end_has_a_state_of_its_own(
    agent: AgentClient,
    tmp_path: Path,
    port: int,
    dummy: dict[str, Any],
    spec: dict[str, Any],
    state: str,
    fact: tuple[str, Any],
) -> None:
    launch_dummy(agent, tmp_path, {"port": port, **dummy})
    wanted = ready_spec(port, **spec)
    if wanted.pop("text", None):
        wanted["generate"]["text_key"] = "text"
    reply = agent.call("await_ready", launch_id="l1", spec=wanted)
    assert reply["state"] == state, reply
    assert reply["facts"][fact[0]] == fact[1], reply
    agent.call("stop", launch_id="l1", grace_s=0.2)


def test_a_key_is_read_from_the_servers_own_environment(agent: AgentClient, tmp_path: Path, port: int) -> None:
    spec = {"port": port, "weight_version": "l1", "api_key": "secret"}
    launch_dummy(agent, tmp_path, spec, env={"SERVER_KEY": "secret"})
    reply = agent.call("await_ready", launch_id="l1", spec=ready_spec(port, api_key_env="SERVER_KEY"))
    assert reply["state"] == "ready", reply
    agent.call("stop", launch_id="l1", grace_s=1)


def test_somebody_else_on_the_port_is_named_and_never_taken_for_ours(
    agent: AgentClient, tmp_path: Path, port: int
) -> None:
    """S13: an old server answers, healthily, while ours loads."""
    import json

    old = subprocess.Popen(
        [sys.executable, "-u", str(DUMMY), json.dumps({"port": port, "weight_version": "l1"})], stdout=subprocess.PIPE
    )
    try:
        assert old.stdout
        old.stdout.readline()
        launch_python(agent, tmp_path, "import time\ntime.sleep(600)")
        reply = agent.call("await_ready", launch_id="l1", spec=ready_spec(port))
        assert reply["state"] == "stranger" and reply["facts"]["pid"] == old.pid
        assert reply["facts"]["cmdline"][2] == str(DUMMY) and reply["facts"]["age_s"] >= 0
        agent.call("stop", launch_id="l1", grace_s=0)
        assert old.poll() is None
    finally:
        old.kill()
        old.wait(10)
        old.stdout.close()


def test_the_wait_ends_with_the_server(agent: AgentClient, tmp_path: Path, port: int) -> None:
    """No silent time-out: the reply comes within 0.2 s of the end."""
    launch_python(agent, tmp_path, "import time\nprint('loading', flush=True)\ntime.sleep(600)")
    waiting = agent.send("await_ready", launch_id="l1", spec=ready_spec(port))
    agent.wait_line("loading")
    killed = time.monotonic()
    os.kill(agent.call("inspect", launch_id="l1")["pid"], signal.SIGKILL)
    reply = agent.receive(waiting)
    assert time.monotonic() - killed < 0.25
    assert reply["state"] == "exited" and reply["facts"]["signal"] == 9 and reply["facts"]["last_line"] == "loading"
    agent.call("stop", launch_id="l1", grace_s=0)


def test_the_wait_ends_with_a_server_whose_health_check_hangs(agent: AgentClient, tmp_path: Path, port: int) -> None:
    source = (
        f"import socket,time\ns=socket.create_server(('127.0.0.1',{port}))\nprint('up',flush=True)\nc,_=s.accept()\n"
    )
    launch_python(agent, tmp_path, source + "print('asked', flush=True)\ntime.sleep(600)")
    waiting = agent.send("await_ready", launch_id="l1", spec=ready_spec(port))
    agent.wait_line("asked")
    killed = time.monotonic()
    os.kill(agent.call("inspect", launch_id="l1")["pid"], signal.SIGKILL)
    assert agent.receive(waiting)["state"] == "exited"
    assert time.monotonic() - killed < 0.5
    agent.call("stop", launch_id="l1", grace_s=0)


def test_work_without_a_word_in_the_log_is_no_hang(agent: AgentClient, tmp_path: Path, port: int) -> None:
    """S35: loading, compiling and capturing say nothing for minutes."""
    launch_python(agent, tmp_path, "while True: sum(range(10000))")
    reply = agent.call("await_ready", launch_id="l1", spec=ready_spec(port, stall_s=0.8, limit_s=2.5))
    assert reply["state"] == "timeout", reply
    agent.call("stop", launch_id="l1", grace_s=0)


def test_stop_is_carried_out_while_the_wait_goes_on(agent: AgentClient, tmp_path: Path, port: int) -> None:
    launch_python(agent, tmp_path, "import time\ntime.sleep(600)")
    waiting = agent.send("await_ready", launch_id="l1", spec=ready_spec(port))
    agent.call("stop", launch_id="l1", grace_s=0.5)
    assert agent.receive(waiting)["state"] == "exited"


def test_http_tells_apart_how_an_answer_is_missing(connect: Callable[..., AgentClient], port: int) -> None:
    client = connect()

    def reason(url: str) -> str:
        with pytest.raises(AgentReply) as caught:
            client.call("http", method="GET", url=url, timeout_s=0.5)
        assert caught.value.kind == "unreachable"
        return caught.value.facts["reason"]

    assert reason(f"http://127.0.0.1:{port}/") == "refused"
    cases = ((None, "timeout"), (b"", "reset"), (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "incomplete"))
    for answer, wanted in cases:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=_answer_once, args=(listener, answer))
            thread.start()
            assert reason(f"http://127.0.0.1:{listener.getsockname()[1]}/") == wanted
            thread.join()


def _answer_once(listener: socket.socket, answer: bytes | None) -> None:
    """None: nothing until the client has given up."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        if answer is None:
            connection.recv(1)
        else:
            connection.sendall(answer)
