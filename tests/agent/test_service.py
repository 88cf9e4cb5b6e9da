"""What served before the agent came: stopped through its supervisor, and given back, whatever happens in between."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.client import AgentClient, AgentReply, is_running, wait_until
from tests.agent.conftest import DUMMY, launch_python, open_tree
from tests.agent.test_guard import LEASE_S, _living_guard, _try_open, change
from tests.services.live import Live, serving, words_of

Connect = Callable[..., AgentClient]


@pytest.fixture
def live(connect: Connect, tmp_path: Path, port: int) -> Iterator[Live]:
    with serving(tmp_path / "live", [sys.executable, str(DUMMY), json.dumps({"port": port})], port) as found:
        yield found


def stop(client: AgentClient, live: Live, **more: Any) -> dict[str, Any]:
    given = {"port": live.port, "kind": "process", "grace_s": 2.0, **more}
    reply: dict[str, Any] = client.call("service_stop", **given)
    return reply


def journal_of(root: Path) -> list[str]:
    from orchestrator.agent.fs import Fs
    from orchestrator.agent.journal import Journal

    (home,) = root.parent.glob(".orchestrator-*")
    journal = Journal(Fs(), str(home / "journal"), os.open(home / "journal", os.O_RDONLY))
    try:
        return [record.kind for record in journal.records()]
    finally:
        journal.close()


def test_a_service_is_stopped_supervisor_first_and_comes_back_the_same(
    agent: AgentClient, live: Live, root: Path
) -> None:
    """The script does not start it again while we hold it; afterwards command line, environment, directory are those of
    before, under a script of its own that is nobody's child of ours, and the proof says so."""
    before, (script,) = live.picture(), live.supervisors()
    reply = stop(agent, live)
    assert reply["state"] == "stopped" and not live.processes() and not is_running(script)
    assert agent.call("verify")["service"]["state"] == "stopped"
    with pytest.raises(AgentReply, match="not given back"):
        agent.call("close")
    guard = _living_guard(root)
    assert agent.call("service_start")["did"] == [f"gave back what served on port {live.port}"]
    waited = agent.call("service_await", limit_s=20.0, health="/health")
    assert waited["state"] == "same", waited
    assert live.picture() == before
    (again,) = live.supervisors()
    above, at = [], again
    while at > 1:
        at = int(Path(f"/proc/{at}/stat").read_text().rpartition(")")[2].split()[1])
        above.append(at)
    assert guard not in above and agent.process.pid not in above
    assert agent.call("verify")["service"]["state"] == "same"
    agent.call("close")
    wait_until(lambda: guard is None or not is_running(guard), "the guard left")
    assert live.answers()
    kinds = [kind for kind in journal_of(root) if kind.startswith("SERVICE_")]
    assert kinds == ["SERVICE_INTENT", "SERVICE_STOPPED", "SERVICE_START_INTENT", "SERVICE_STARTED"]


def test_the_environment_is_in_one_file_for_its_owner_only(agent: AgentClient, live: Live, root: Path) -> None:
    """The secret's value is in no reply and not in the journal; the file that holds it has mode 0600."""
    replies = [stop(agent, live), agent.call("verify"), agent.call("survey", root=str(root))]
    replies += [agent.call("service_start"), agent.call("service_await", limit_s=20.0, health="/health")]
    replies.append(agent.call("service_look", port=live.port))
    assert live.secret not in json.dumps(replies) and "HF_TOKEN" in json.dumps(replies[-1])
    (home,) = root.parent.glob(".orchestrator-*")
    holding = [path for path in home.rglob("*") if path.is_file() and live.secret.encode() in path.read_bytes()]
    assert [path.name for path in holding] == ["service.json"]
    assert holding[0].stat().st_mode & 0o777 == 0o600


def test_where_nobody_serves_nothing_is_started(agent: AgentClient, port: int, root: Path) -> None:
    reply = agent.call("service_stop", port=port, kind="process", grace_s=1.0)
    assert reply["state"] == "absent"
    assert agent.call("service_start")["did"] == []
    assert not [kind for kind in journal_of(root) if kind.startswith("SERVICE_")]


def test_when_the_lease_ends_the_guard_reverts_and_gives_the_service_back(
    connect: Connect, live: Live, root: Path, tmp_path: Path
) -> None:
    """Our server gone, the file back, the same service answers; the outcome says so."""
    before, source = live.picture(), (root / "a.py").read_bytes()
    client = connect()
    open_tree(client, root)
    stop(client, live)
    client.call("snapshot")
    client.call("apply", txn="t1", files=[change(root / "a.py", b"x = 2\n")])
    ours = launch_python(client, tmp_path, "import time\nprint('up', flush=True)\ntime.sleep(600)")
    client.wait_line("up")
    client.call("beat", lease_s=LEASE_S)
    client.process.kill()
    live.wait()
    assert not is_running(ours["pid"]) and (root / "a.py").read_bytes() == source
    assert live.picture() == before
    later = connect()
    opened = wait_until(lambda: _try_open(later, root, "another"), "the tree is free")
    assert opened["service"] is None and opened["outcome"]["clean"]
    assert any("gave back what served" in did for did in opened["outcome"]["did"])
    later.call("close")


def test_a_controller_that_comes_back_may_keep_it_stopped(connect: Connect, live: Live, root: Path) -> None:
    """`recover` gives it back unless it is told to hold it; a second stop keeps the first description."""
    client = connect()
    open_tree(client, root)
    stop(client, live)
    client.kill()
    second = connect()
    assert open_tree(second, root)["service"] == {"kind": "process", "port": live.port, "stage": "stopped"}
    assert second.call("recover", hold_service=True)["did"] == []
    assert stop(second, live)["already"] is True and not live.processes()
    assert second.call("recover")["did"] == [f"gave back what served on port {live.port}"]
    live.wait()
    second.call("close")


def test_values_of_the_found_server_reach_a_launch_and_nobody_else(
    agent: AgentClient, live: Live, tmp_path: Path
) -> None:
    stop(agent, live)
    code = "import os, hashlib\nprint(hashlib.sha256(os.environ['HF_TOKEN'].encode()).hexdigest(), flush=True)"
    launch_python(agent, tmp_path, code, from_service=["HF_TOKEN"])
    agent.wait_line(hashlib.sha256(live.secret.encode()).hexdigest())
    agent.call("stop", launch_id="l1", grace_s=0.0)
    with pytest.raises(AgentReply, match="no such variable"):
        launch_python(agent, tmp_path, "pass", launch_id="l2", from_service=["NO_SUCH"])
    agent.call("service_start")


def test_a_service_that_came_back_by_itself_is_not_started_twice(agent: AgentClient, live: Live) -> None:
    """Somebody starts the same script by hand while it is stopped: it is found and only recorded."""
    stop(agent, live)
    env = {"PATH": os.environ["PATH"], "HOME": str(live.folder), "LIVE_MARK": live.mark, "HF_TOKEN": live.secret}
    by_hand = subprocess.Popen(["sh", "serve.sh"], cwd=live.folder, env=env, start_new_session=True)
    live.wait()
    agent.call("service_start")
    assert live.supervisors() == [by_hand.pid]
    live.end()
    by_hand.wait()


def test_what_starts_it_again_behind_our_back_is_not_fought(
    connect: Connect, root: Path, tmp_path: Path, port: int
) -> None:
    """A watcher that is no ancestor brings the server back at once: refused, and the service runs on."""
    code = (
        "import os, socket, time\n"
        f"up = lambda: socket.socket().connect_ex(('127.0.0.1', {port})) == 0\n"
        "while True:\n"
        "    if not up():\n"
        "        pid = os.fork()\n"
        "        if pid == 0:\n"
        "            if os.fork() == 0:\n"
        f"                os.setsid(); s = socket.create_server(('127.0.0.1', {port})); time.sleep(600)\n"
        "            os._exit(0)\n"
        "        os.waitpid(pid, 0)\n"
        "        while not up(): time.sleep(0.01)\n"
        "    time.sleep(0.01)\n"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    watcher = subprocess.Popen([sys.executable, "-c", code], env=env, start_new_session=True)
    client = connect()
    try:
        wait_until(lambda: client.call("service_look", port=port)["serving"], "it serves")
        open_tree(client, root)
        with pytest.raises(AgentReply, match="started it again at once"):
            client.call("service_stop", port=port, kind="process", grace_s=1.0)
    finally:
        watcher.kill()
        watcher.wait()
        for pid in _marked(f"HOME={tmp_path}"):
            if str(port) in " ".join(words_of(pid)):
                os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"{mark}\0".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
