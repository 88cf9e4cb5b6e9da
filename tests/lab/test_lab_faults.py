"""Each failure on request, told by file or variable."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from orchestrator.lab import Lab
from orchestrator.lab.hardware.faults import KINDS, parse_entry, parse_text, read_faults
from tests.lab.lab_server import change_setting, holder_pids, launched


def test_crash_at_load(lab: Lab) -> None:
    """The chosen rank fails while loading, and the server with it."""
    lab.faults_file.write_text(json.dumps([{"kind": "crash_at_load", "rank": 3}]))
    with launched(lab) as server:
        assert server.await_exit() == -signal.SIGKILL
    assert "TP3] Scheduler hit an exception" in server.log
    assert "uncorrectable ECC error" in server.log
    assert "fired up" not in server.log


def test_crash_mid_benchmark(lab: Lab) -> None:
    """The server becomes ready, and dies in the middle of a stream: the stream breaks off unfinished."""
    with launched(lab, env={"LAB_FAULT": "crash_mid_benchmark:20"}) as server:
        server.await_ready()
        stream = server.stream(tokens=40)
        assert server.await_exit() == -signal.SIGKILL
    assert stream.meta["finish_reason"] is None
    assert stream.meta["completion_tokens"] < 20
    assert "an illegal memory access was encountered" in server.log
    assert "SIGQUIT received." in server.log


@pytest.mark.parametrize(("phase", "last"), [("load", "Load weight begin"), ("capture", "Memory pool end")])
def test_hang_while_starting(lab: Lab, phase: str, last: str) -> None:
    """The last phase shows where it hangs; nothing listens, and SIGTERM ends it."""
    with launched(lab, env={"LAB_FAULT": f"hang:{phase}"}) as server:
        server.await_log(f"TP0] {last}")
        with pytest.raises(ConnectionRefusedError):
            server.get("/health")
        assert server.terminate() == -signal.SIGTERM
    assert "fired up" not in server.log


def test_hang_while_serving(lab: Lab) -> None:
    """After enough tokens no more come, and /health gives up with 503."""
    change_setting(lab, "constants", "health_timeout_s", 0.2)
    lab.faults_file.write_text(json.dumps([{"kind": "hang", "phase": "serve", "after": 11}]))
    with launched(lab) as server:
        server.await_ready()
        assert server.get("/health")[0] == 200
        server.generate("a b c", 6)
        assert server.get("/health")[0] == 503


def test_early_healthy(lab: Lab) -> None:
    """/health says 200 while a generation is still refused; later both work."""
    with launched(lab, env={"LAB_FAULT": "early_healthy:1"}) as server:
        server.await_log("Uvicorn running")
        assert server.get("/health")[0] == 200
        assert server.post("/generate", {"text": "a b"})[0] == 503
        server.await_ready()
        assert server.get("/health")[0] == 200
        assert len(server.generate("a b", 3)["output_ids"]) == 3


def test_orphan(lab: Lab) -> None:
    """A process in a session of its own holds a GPU after the server is gone, and the next start has no room."""
    with launched(lab, env={"LAB_FAULT": "orphan"}) as server:
        server.await_ready()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait()
        (orphan,) = holder_pids(lab)
        assert os.getsid(orphan) != server.pid
        with launched(lab) as second:
            assert second.process.wait() == -signal.SIGKILL
            second.await_log("Not enough memory. Please try to increase --mem-fraction-static.")
        os.kill(orphan, signal.SIGKILL) if orphan in holder_pids(lab) else None
    assert holder_pids(lab) == set()


def test_ignore_sigterm(lab: Lab) -> None:
    """SIGTERM is noted and nothing follows; the server still answers."""
    with launched(lab, env={"LAB_FAULT": "ignore_sigterm"}) as server:
        server.await_ready()
        server.process.send_signal(signal.SIGTERM)
        server.await_log("SIGTERM received, and ignored.")
        assert server.get("/health")[0] == 200
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(0)


def test_a_fault_can_name_its_launches(lab: Lab) -> None:
    """`launches: [2]` hits the second launch of the lab and no other."""
    lab.faults_file.write_text(json.dumps([{"kind": "crash_at_load", "launches": [2]}]))
    outcomes = []
    for _ in range(3):
        with launched(lab) as server:
            status = server.process.poll()
            try:
                server.await_ready()
            except AssertionError:
                status = server.await_exit()
            outcomes.append(status)
    assert outcomes == [None, -signal.SIGKILL, None]


def test_a_misspelt_fault_stops_the_launch(lab: Lab) -> None:
    """A fault that nobody knows is an error, not silence."""
    with launched(lab, env={"LAB_FAULT": "crash"}) as server:
        assert server.await_exit() == 1
    assert "fault 'crash' is none of crash_at_load" in server.log


def test_text_and_entries_say_the_same() -> None:
    """LAB_FAULT is short for an entry of faults.json."""
    assert parse_text("hang:capture") == parse_entry({"kind": "hang", "phase": "capture"})
    assert parse_text("crash_mid_benchmark:30") == parse_entry({"kind": "crash_mid_benchmark", "after": 30})
    assert parse_text("early_healthy:2") == parse_entry({"kind": "early_healthy", "seconds": 2})
    assert [parse_text(kind).kind for kind in KINDS] == list(KINDS)


@pytest.mark.parametrize("entry", [{"kind": "hang", "phase": "tea"}, {"kind": "orphan", "years": 3}])
def test_an_entry_nobody_knows_is_refused(entry: dict[str, object]) -> None:
    """Unknown phases and keys are named."""
    with pytest.raises(ValueError, match=r"tea|years"):
        parse_entry(entry)


def test_absent_faults_are_none(lab: Lab) -> None:
    """A new lab has no faults."""
    assert read_faults(lab.faults_file, {}, 1).entries == ()
