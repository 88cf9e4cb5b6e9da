"""Every row of the table in docs/recovery.md for a service: killed after that step, the next one gives it back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.agent import detach, processes
from orchestrator.agent import found as founds
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.service import give_back, report
from orchestrator.agent.tree import Tree
from tests.agent.client import wait_until
from tests.agent.conftest import DUMMY
from tests.agent.scene import replace
from tests.services.live import Live, serving

DRIVER = Path(__file__).with_name("service_driver.py")
TOP = Path(__file__).resolve().parents[2]
STEPS = [
    "saved", "SERVICE_INTENT", "supervisor", "ended", "SERVICE_STOPPED", "SERVICE_START_INTENT", "started",
    "SERVICE_STARTED",
]  # fmt: skip


@pytest.fixture
def live(root: Path, tmp_path: Path, port: int) -> Iterator[Live]:
    argv = [sys.executable, str(DUMMY), json.dumps({"port": port})]
    with serving(tmp_path / "live", argv, port) as found:
        yield found


def drive(root: Path, port: int, step: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TOP)}
    words = [sys.executable, str(DRIVER), str(root), str(port), step]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("step", STEPS)
def test_killed_after_any_step_the_next_one_brings_the_service_back(root: Path, live: Live, step: str) -> None:
    """The same server under one script, whatever was done so far; a second recovery finds nothing to do."""
    before = live.picture()
    killed = drive(root, live.port, step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    recovered = drive(root, live.port, "back")
    assert recovered.returncode == 0, recovered.stderr
    live.wait()
    assert live.picture() == before and len(live.supervisors()) == 1
    assert drive(root, live.port, "back").stdout == ""
    assert len(live.supervisors()) == 1


def test_undisturbed_it_stops_and_comes_back(root: Path, live: Live) -> None:
    before = live.picture()
    done = drive(root, live.port, "end")
    assert done.returncode == 0 and "gave back" in done.stdout, done.stderr
    live.wait()
    assert live.picture() == before


def take(root: Path, boot: str) -> Tree:
    holder = {"token": "driver", "name": "t", "pid": os.getpid()}
    return Tree.open(Fs(), str(root), [], holder, 30.0, kill_agent=lambda _: True, boot_id=boot)


def test_after_a_reboot_it_is_started_once(root: Path, live: Live) -> None:
    """Identities of another boot mean nobody: nothing is signalled; what came up by itself is only recorded."""
    assert drive(root, live.port, "SERVICE_STOPPED").returncode == -signal.SIGKILL
    env = {"PATH": os.environ["PATH"], "HOME": str(live.folder), "LIVE_MARK": live.mark, "HF_TOKEN": live.secret}
    by_cron = subprocess.Popen(["sh", "serve.sh"], cwd=live.folder, env=env, start_new_session=True)
    live.wait()
    tree = take(root, "another-boot")
    try:
        with detach.Starter(tree.state_dir):
            pass
        described = founds.load(tree.state_dir)
        assert described is not None
        started: list[int] = []

        def start() -> int:
            started.append(founds.find_top(described) or 0)
            return started[-1]

        give_back(tree, "another-boot", start)
        assert started == [by_cron.pid] and tree.open_service() is None
        told = report(tree, None)
        assert told is not None and told["state"] == "same"
        tree.close()
    finally:
        tree.leave()
    live.end()
    by_cron.wait()


def test_while_a_change_is_open_it_stays_stopped(root: Path, live: Live) -> None:
    """It would run from files that are not those it was started from; a lost description is said, not guessed."""
    assert drive(root, live.port, "SERVICE_STOPPED").returncode == -signal.SIGKILL
    tree = take(root, processes.boot_id())
    try:
        tree.apply("t1", [replace(str(root / "a.py"), b"x = 1\n", b"x = 2\n")])
        with pytest.raises(AgentError, match="stays stopped"):
            give_back(tree, processes.boot_id(), lambda: 0)
        tree.revert("t1", "end of test")
        os.rename(f"{tree.state_dir}/service.json", f"{tree.state_dir}/elsewhere")
        with pytest.raises(AgentError, match="description of what served is gone"):
            give_back(tree, processes.boot_id(), lambda: 0)
        os.rename(f"{tree.state_dir}/elsewhere", f"{tree.state_dir}/service.json")
    finally:
        tree.leave()
    assert drive(root, live.port, "back").returncode == 0


def test_who_comes_after_a_killed_starter_waits_for_its_child(tmp_path: Path) -> None:
    """A child that has not executed its program yet holds the lock; then it is found, and not started again."""
    folder = tmp_path / "state"
    folder.mkdir()
    code = (
        "import os, sys, time\n"
        "from orchestrator.agent.detach import Starter\n"
        f"with Starter({str(folder)!r}) as fd:\n"
        "    if os.fork() == 0:\n"
        "        print('forked', flush=True); sys.stdin.read(1); os.execv('/bin/true', ['true'])\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    env = {"PYTHONPATH": str(TOP)}
    words = [sys.executable, "-c", code]
    starter = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert starter.stdout is not None and starter.stdin is not None
    starter.stdout.readline()
    starter.wait()
    second = subprocess.Popen(
        [sys.executable, "-c", f"from orchestrator.agent.detach import Starter\nwith Starter({str(folder)!r}): pass"],
        env=env,
    )
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.5)
    starter.stdin.write(b"x")
    starter.stdin.close()
    assert second.wait(10) == 0
    starter.stdout.close()
    wait_until(lambda: starter.poll() is not None, "it is gone")
