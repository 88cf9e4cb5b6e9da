"""Standing still is told from working silently, and looked into before anything is ended."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.agent.progress import MemoryWatch
from tests.agent.client import AgentClient, is_running, wait_until
from tests.agent.conftest import launch_dummy, launch_python
from tests.agent.test_server import ready_spec

SLEEPER = "import time\nprint('Load weight begin', flush=True)\ntime.sleep(600)"


def test_a_hang_comes_with_the_stack_of_each_process_and_ends_none(
    agent: AgentClient, tmp_path: Path, port: int
) -> None:
    """py-spy of the server's own PATH is asked while everything still lives."""
    tool = tmp_path / "bin" / "py-spy"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "Thread $3 (idle): all_reduce (distributed.py:77)"\n')
    tool.chmod(0o755)
    path = f"{tool.parent}:{os.environ['PATH']}"
    launched = launch_python(agent, tmp_path, SLEEPER, env={"PATH": path})
    reply = agent.call("await_ready", launch_id="l1", spec=ready_spec(port, stall_s=0.8))
    assert reply["state"] == "hung" and reply["facts"]["last_line"] == "Load weight begin"
    (process,) = reply["facts"]["processes"]
    assert reply["facts"]["py_spy"] == str(tool)
    assert f"Thread {launched['pid']} (idle): all_reduce" in process["stack"]
    assert process["pid"] == launched["pid"] and sum(process["threads"].values()) == 1
    assert is_running(launched["pid"])
    agent.call("stop", launch_id="l1", grace_s=0)


def test_without_py_spy_the_kernel_says_where_a_process_waits(agent: AgentClient, tmp_path: Path) -> None:
    """`stacks` at any time: no stack, but the state and the place."""
    launch_python(agent, tmp_path, SLEEPER, env={"PATH": "/nowhere"})
    agent.wait_line("Load weight begin")
    seen = agent.call("stacks", launch_id="l1")
    (process,) = seen["processes"]
    assert seen["py_spy"] is None or process["stack"] is not None
    assert process["state"] == "S" and set(process) >= {"waits_in", "threads", "title"}
    agent.call("stop", launch_id="l1", grace_s=0)


def test_gpu_memory_that_grows_is_progress(agent: AgentClient, tmp_path: Path, port: int) -> None:
    """A process that sleeps in the driver while memory fills up is loading; the wait goes on to its limit."""
    launch_python(agent, tmp_path, SLEEPER)
    argv = ["sh", "-c", "date +%s%N"]
    spec = ready_spec(port, stall_s=2.0, limit_s=4.5, memory_argv=argv)
    assert agent.call("await_ready", launch_id="l1", spec=spec)["state"] == "timeout"
    still = ready_spec(port, stall_s=1.0, limit_s=30.0, memory_argv=["echo", "5"])
    assert agent.call("await_ready", launch_id="l1", spec=still)["state"] == "hung"
    agent.call("stop", launch_id="l1", grace_s=0)


def test_memory_counts_once_for_each_change_and_never_for_a_tool_that_fails() -> None:
    """The first answer is no change, an equal one is none, an error is none."""
    answers = [(0, "5"), (0, "5"), (1, "9"), (0, "7"), (0, "7")]
    given: list[int] = []

    def run(_: list[Mapping[str, Any]]) -> dict[str, Any]:
        code, text = answers[len(given)]
        given.append(code)
        return {"m": {"rc": code, "stdout": text}}

    watch = MemoryWatch(["tool"], 0.0, run)
    changes = []
    for number in range(len(answers)):
        wait_until(lambda: changes.append(watch.ask()) or len(given) > number, "it was asked")  # noqa: B023
    time.sleep(0.05)
    changes.append(watch.ask())
    assert changes.count(True) == 1


def test_a_stream_without_a_token_is_a_hang_whatever_the_processor_does(
    agent: AgentClient, tmp_path: Path, port: int
) -> None:
    """During the measurement tokens are the progress: ranks that wait for one another spin."""
    launch_dummy(agent, tmp_path, {"port": port, "gap_s": 30.0, "weight_version": "l1"})
    assert agent.call("await_ready", launch_id="l1", spec=ready_spec(port))["state"] == "ready"
    spec = {
        "port": port, "path": "/generate", "api": "sglang", "prompt": "x", "output_tokens": 8, "repetitions": 3,
        "concurrency": 1, "warmup": 0, "timeout_s": 60.0, "stall_s": 1.0,
    }  # fmt: skip
    started = time.monotonic()
    reply = agent.call("decode", launch_id="l1", spec=spec)
    assert time.monotonic() - started < 4
    assert reply["hung"]["stalled_s"] >= 1.0 and reply["hung"]["processes"]
    assert [s["ok"] for s in reply["samples"]] == [False]
    agent.call("stop", launch_id="l1", grace_s=0)
