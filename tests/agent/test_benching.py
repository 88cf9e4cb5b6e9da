"""Benchmark commands that run beside a server, and what is seen while a server is measured."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.agent.client import AgentClient, is_running, wait_until
from tests.agent.conftest import launch_dummy
from tests.agent.test_decode import spec

_PRINTS = """
import json, os, sys, urllib.request
body = json.dumps({"text": "a", "sampling_params": {"max_new_tokens": 4}, "stream": True}).encode()
urllib.request.urlopen(urllib.request.Request(sys.argv[2], data=body, method="POST")).read()
with open(os.path.join(sys.argv[1], "result.jsonl"), "w") as file:
    file.write(json.dumps({"key": os.environ.get("OPENAI_API_KEY"), "run": os.environ["ORC_RUN_ID"]}))
print("client done")
"""
_LINGERS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open(sys.argv[1], "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.replace(sys.argv[1], sys.argv[1] + ".there")
time.sleep(600)
"""


def request(tmp_path: Path, port: int, source: str, *words: str, **more: Any) -> dict[str, Any]:
    script = tmp_path / "bench.py"
    script.write_text(source)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    given = {"launch_id": "l1", "name": "bench", "argv": [sys.executable, str(script), *words], "env": env, "cwd": "/"}
    return {**given, "port": port, "timeout_s": 30.0, "files": ["*.jsonl"], **more}


def lingering(agent: AgentClient, tmp_path: Path, port: int, **more: Any) -> tuple[int, list[int]]:
    """A benchmark under way, with a child in a session of its own: the request's number, and the pids."""
    note = tmp_path / "pids"
    number = agent.send("bench", **request(tmp_path, port, _LINGERS, str(note), **more))
    there = Path(f"{note}.there")
    wait_until(there.exists, "the benchmark did not start")
    return number, [int(pid) for pid in there.read_text().split()]


def are_gone(pids: list[int]) -> bool:
    return not any(is_running(pid) for pid in pids)


def serve(agent: AgentClient, tmp_path: Path, port: int, **dummy: Any) -> int:
    env = {"KEY": dummy["api_key"]} if "api_key" in dummy else {}
    reply = launch_dummy(agent, tmp_path, {"port": port, **dummy}, env=env)
    agent.wait_line("serving")
    return int(reply["pid"])


def test_a_command_runs_beside_the_server_and_its_files_come_back(
    agent: AgentClient, tmp_path: Path, port: int
) -> None:
    """Its output, its file, the key of the server in its environment and nowhere else, and what the server logged."""
    serve(agent, tmp_path, port, api_key="sesame-7", access_log=True)
    asked = request(tmp_path, port, _PRINTS, "{out}", f"http://127.0.0.1:{port}/generate", api_key_env="KEY")
    reply = agent.call("bench", **asked)
    assert (reply["exit_code"], reply["timed_out"], reply["stopped"]) == (0, False, None)
    assert reply["stdout"] == "client done\n"
    written = json.loads(zlib.decompress(base64.b64decode(reply["files"]["result.jsonl"]["zlib_b64"])))
    assert written == {"key": "sesame-7", "run": "l1"}
    assert reply["observed"]["requests_logged"] == 1
    agent.call("stop", launch_id="l1", grace_s=0)


def test_the_end_of_the_server_ends_the_command_at_once(agent: AgentClient, tmp_path: Path, port: int) -> None:
    """With the child that has left its session, and not after the command's own limit."""
    server = serve(agent, tmp_path, port)
    number, pids = lingering(agent, tmp_path, port)
    started = time.monotonic()
    os.kill(server, 9)
    reply = agent.receive(number)
    assert time.monotonic() - started < 2
    assert "signal 9" in reply["stopped"] and are_gone(pids)
    agent.call("stop", launch_id="l1", grace_s=0)


def test_stopping_the_launch_ends_the_command(agent: AgentClient, tmp_path: Path, port: int) -> None:
    """An interrupt asks for no more than the stop of the launch, and the command is part of it."""
    serve(agent, tmp_path, port)
    number, pids = lingering(agent, tmp_path, port)
    stopped = agent.call("stop", launch_id="l1", grace_s=0)
    assert not stopped["survivors"] and are_gone(pids)
    agent.receive(number)


def test_a_command_over_its_limit_is_ended_and_said_so(agent: AgentClient, tmp_path: Path, port: int) -> None:
    serve(agent, tmp_path, port)
    number, pids = lingering(agent, tmp_path, port, timeout_s=0.5)
    assert agent.receive(number)["timed_out"] and are_gone(pids)
    agent.call("stop", launch_id="l1", grace_s=0)


def test_the_guard_ends_the_command_when_the_lease_is_over(agent: AgentClient, tmp_path: Path, port: int) -> None:
    """An agent that is killed takes nobody with it; its guard ends server and command when nobody extends the lease."""
    serve(agent, tmp_path, port)
    _, pids = lingering(agent, tmp_path, port)
    agent.call("beat", lease_s=1.0)
    agent.process.kill()
    wait_until(lambda: are_gone(pids), "the guard left the benchmark")


def test_a_program_that_is_not_there_is_refused(agent: AgentClient, tmp_path: Path, port: int) -> None:
    """With the call and the path, and the launch goes on."""
    serve(agent, tmp_path, port)
    with pytest.raises(Exception, match="the benchmark could not be started: exec /no/such"):
        agent.call("bench", **{**request(tmp_path, port, ""), "argv": ["/no/such"]})
    assert agent.call("decode", launch_id="l1", spec=spec(port))["samples"][0]["ok"]
    agent.call("stop", launch_id="l1", grace_s=0)


def test_a_command_of_which_nothing_is_heard_hangs(agent: AgentClient, tmp_path: Path, port: int) -> None:
    """Neither its output nor the server's log grows for the stall time: ended, with the server's stacks."""
    serve(agent, tmp_path, port)
    number, pids = lingering(agent, tmp_path, port, stall_s=0.4)
    reply = agent.receive(number)
    assert reply["hung"]["stalled_s"] >= 0.4 and reply["hung"]["processes"] and are_gone(pids)
    agent.call("stop", launch_id="l1", grace_s=0)


def test_warm_up_goes_on_until_two_sweeps_agree(agent: AgentClient, tmp_path: Path, port: int) -> None:
    """The first two are slower by what is compiled in them; two that agree end it, and none of them is a sample."""
    serve(agent, tmp_path, port, warm_s=[0.6, 0.3], gap_s=0.01)
    reply = agent.call("decode", launch_id="l1", spec=spec(port, warmup=1, warmup_most=9))
    assert 4 <= len(reply["sweeps"]) <= 9
    assert reply["sweeps"][0] > 1.3 * reply["sweeps"][-1]
    assert [s["repetition"] for s in reply["samples"]] == [0, 1]
    agent.call("stop", launch_id="l1", grace_s=0)


def test_what_else_the_server_answered_is_counted(agent: AgentClient, tmp_path: Path, port: int) -> None:
    """Counters before and after, and the requests of the measured part alone in the access log."""
    serve(agent, tmp_path, port, access_log=True, metrics=True)
    reply = agent.call("decode", launch_id="l1", spec=spec(port, warmup=2, counters_path="/metrics"))
    observed = reply["observed"]
    assert observed["requests_logged"] == 2
    counted = [observed["counters"][when] for when in ("before", "after")]
    assert counted == ["dummy:streams_total 2", "dummy:streams_total 4"]
    assert 0 < reply["itl"]["p50_s"] <= reply["itl"]["p99_s"]
    agent.call("stop", launch_id="l1", grace_s=0)


def test_gpus_are_asked_with_the_question_that_their_driver_knows(
    agent: AgentClient, tmp_path: Path, port: int
) -> None:
    """A refused question is not asked again, and the next one is; each answer has its time."""
    serve(agent, tmp_path, port, gap_s=0.02)
    argvs = [["false"], ["echo", "0, 1965, 300.1"]]
    reply = agent.call("decode", launch_id="l1", spec=spec(port, gpu_argvs=argvs, gpu_every_s=0.1))
    seen = reply["observed"]["gpus"]
    assert len(seen) >= 2 and {one["stdout"] for one in seen} == {"0, 1965, 300.1\n"}
    assert 0.2 <= seen[0]["at_s"] < seen[1]["at_s"] <= reply["observed"]["seconds"]
    agent.call("stop", launch_id="l1", grace_s=0)


def test_streams_that_must_not_share_a_prefix_begin_differently(agent: AgentClient, tmp_path: Path, port: int) -> None:
    """A number before all but the first stream; the same numbers in every launch, so that arms do equal work."""
    from orchestrator.agent.decode import Probe

    asked = spec(port, vary="streams", concurrency=3, prompt="Tell me.")
    probe = Probe(asked, {})
    prompts = {(r, s): probe._prompt(r, s) for r in (-1, 0, 1) for s in range(3)}
    assert prompts[0, 0] == prompts[1, 0] == "Tell me."
    assert len({p.split()[0] for (_, s), p in prompts.items() if s}) == 6
    assert prompts == {key: Probe(asked, {})._prompt(*key) for key in prompts}
