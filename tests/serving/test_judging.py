"""Treatment check, correctness gate and metrics judge from values alone."""

from __future__ import annotations

import hashlib
import json
import math
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.serving import metrics
from orchestrator.serving.engine import LaunchPlan
from orchestrator.serving.gate import Answers, agreement, judge_answers
from orchestrator.serving.treatment import Expectation, interpreter_probe, judge_treatment


def probe(**seen: object) -> dict[str, object]:
    return {"rc": 0, "stdout": "noise from a .pth file\n" + json.dumps({"origins": {}, "environ": {}, **seen})}


def failed(expectation: Expectation, **given: object) -> list[str]:
    facts = {"probe": None, "environ": None, "resolved": None, "log": [], **given}
    return [c.what for c in judge_treatment(expectation, **facts) if c.holds is False]  # type: ignore[arg-type]


def test_a_package_from_elsewhere_is_not_the_patched_one() -> None:
    """A checkout in the working directory that shadows the patched tree is found out."""
    wanted = Expectation(package_origin={"sglang": "/venv/sglang/__init__.py"})
    assert failed(wanted, probe=probe(origins={"sglang": "/home/x/sglang/__init__.py"})) == ["import sglang"]
    assert failed(wanted, probe=probe(origins={"sglang": None})) == ["import sglang"]
    assert failed(wanted, probe=probe(origins={"sglang": "/venv/sglang/__init__.py"})) == []


def test_what_could_not_be_seen_is_neither_live_nor_dead() -> None:
    """An unreadable environment or a flag the server does not report decides nothing."""
    wanted = Expectation(environ={"A": "1"}, flags={"ep-size": 8})
    checks = judge_treatment(wanted, probe=None, environ=None, resolved={}, log=[])
    assert [c.holds for c in checks] == [None]


def test_a_flag_the_resolver_overrode_is_not_effective() -> None:
    """What was asked for and what the server resolved are compared by value, not by type."""
    wanted = Expectation(flags={"ep-size": 8, "disable-x": None, "mode": "a"})
    resolved = {"ep_size": 1, "disable_x": False, "mode": "a"}
    assert failed(wanted, resolved=resolved) == ["flag --ep-size"]


def test_variables_of_sitecustomize_are_asked_of_the_interpreter() -> None:
    """Set and unset variables are compared where Python sees them."""
    wanted = Expectation(python_environ={"NCCL_NTHREADS": "64", "GONE": None})
    assert failed(wanted, probe=probe(environ={"NCCL_NTHREADS": "512"})) == ["sitecustomize NCCL_NTHREADS"]
    assert failed(wanted, probe=probe(environ={"NCCL_NTHREADS": "64"})) == []


def test_a_marker_that_was_never_logged_was_never_reached() -> None:
    """Applied and imported is not exercised."""
    wanted = Expectation(marker="is live in this process")
    assert failed(wanted, log=["[TP0] log-marker.patch is live in this process"]) == []
    assert failed(wanted, log=["ready"]) == ["marker"]


def answers(*texts: str) -> Answers:
    both = {str(i): t for i, t in enumerate(texts)}
    return Answers(both, both)


def test_other_text_is_wrong_and_late_drift_is_not() -> None:
    """Answers that part at once fail the gate; answers that part near their end pass it."""
    baseline = answers("the quick brown fox", "12345678")
    assert not judge_answers([baseline], answers("zzz", "9")).passed
    assert judge_answers([baseline], answers("the quick brown fix", "12345678")).passed
    assert agreement({"a": ""}, {"a": ""}) == 1.0


def sample(tokens: int, seconds: float, **more: object) -> dict[str, object]:
    base = {"repetition": 0, "stream": 0, "ok": True, "output_tokens": tokens + 1, "prompt_tokens": 10, "ttft_s": 0.1}
    return {**base, "decode_tokens": tokens, "decode_s": seconds, **more}


def test_throughput_is_a_ratio_of_sums() -> None:
    """10 tokens in 1 s and 90 tokens in 3 s are 25 tokens a second, not the mean of 10 and 30."""
    samples = [sample(10, 1.0), sample(90, 3.0, repetition=1)]
    assert metrics.launch_value(samples, "output_tps") == pytest.approx(25.0)


def test_streams_of_one_repetition_add_up() -> None:
    """Four streams at once are measured against the time of the slowest, not of all of them in a row."""
    samples = [sample(50, 2.0, stream=i) for i in range(4)]
    assert metrics.launch_value(samples, "output_tps") == pytest.approx(100.0)


def test_spread_within_a_launch_is_relative_to_its_mean() -> None:
    """8 and 12 tokens a second spread by 28 %; a single sample shows no spread."""
    samples = [sample(8, 1.0), sample(12, 1.0, repetition=1)]
    assert metrics.within_cv(samples, "output_tps") == pytest.approx(0.2828, abs=1e-3)
    assert metrics.within_cv(samples[:1], "output_tps") == 0.0
    assert metrics.doubt_cv(samples, "output_tps") == pytest.approx(0.2828 / math.sqrt(2), abs=1e-3)
    assert metrics.doubt_cv(samples[:1], "output_tps") == 0.0


def test_nothing_measured_is_none_and_never_zero() -> None:
    """A failed launch has no value."""
    assert metrics.launch_value([{"ok": False, "repetition": 0}], "output_tps") is None


def test_failures_and_early_ends_make_a_measurement_invalid() -> None:
    """An in-band error and an answer of too few tokens are both named."""
    found = metrics.problems(
        [sample(3, 1.0), {"ok": False, "repetition": 1, "error": "in-band error: boom"}], output_tokens=64
    )
    assert len(found) == 2
    assert "boom" in found[0]
    assert "4 of 64" in found[1]


def test_unequal_work_blocks_a_verdict() -> None:
    """Two arms whose prompts differ by more than one per cent are not compared."""
    a, b = [sample(50, 1.0)], [sample(50, 1.0, prompt_tokens=20)]
    assert metrics.totals_differ(a, a) is None
    assert "unequal work" in str(metrics.totals_differ(a, b))


def module(**changes: object) -> dict[str, object]:
    return {"origin": "/t/sglang/x.py", "sha256": "a" * 64, "is_fresh": True, **changes}


def test_a_patched_module_must_be_the_one_that_is_imported() -> None:
    """From its own file, with the patched bytes, and not from bytecode of other bytes (S14)."""
    wanted = Expectation(modules={"sglang.x": ("/t/sglang/x.py", "a" * 64)})
    assert failed(wanted, probe=probe(modules={"sglang.x": module()})) == []
    for other in ({"origin": "/home/me/sglang/x.py"}, {"sha256": "b" * 64}, {"is_fresh": False}):
        assert failed(wanted, probe=probe(modules={"sglang.x": module(**other)})) == ["module sglang.x"]
    assert failed(wanted, probe=probe(modules={"sglang.x": None})) == ["module sglang.x"]
    assert [c.holds for c in judge_treatment(wanted, probe=None, environ=None, resolved=None, log=[])] == [None]


def test_variables_are_compared_in_the_ranks_where_they_can_be_seen() -> None:
    """A value that the engine overwrote for its ranks is not effective; an unreadable rank decides nothing; what
    sitecustomize sets need not show in a forked rank."""
    wanted = Expectation(environ={"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, python_environ={"NCCL_ALGO": "Ring"})
    good = {
        "pid": 1,
        "title": "sglang::scheduler_TP0",
        "environ": {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_ALGO": None},
    }
    bad = {
        **good,
        "title": "sglang::scheduler_TP1",
        "environ": {"CUDA_DEVICE_MAX_CONNECTIONS": "8", "NCCL_ALGO": "Ring"},
    }
    environ = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    assert failed(wanted, environ=environ, ranks=[good]) == []
    assert failed(wanted, environ=environ, ranks=[good, bad]) == [
        "environment CUDA_DEVICE_MAX_CONNECTIONS in sglang::scheduler_TP1"
    ]
    assert failed(wanted, environ=environ, ranks=[{**good, "environ": None}]) == []


def test_what_server_and_nccl_say_of_variables_counts() -> None:
    """`/server_info` and NCCL_DEBUG=INFO lines; without them nothing is held against anybody."""
    wanted = Expectation(environ={"NCCL_ALGO": "Tree", "SGLANG_X": "1"})
    environ = {"NCCL_ALGO": "Tree", "SGLANG_X": "1"}
    log = ["host:1:2 [0] NCCL INFO NCCL_ALGO set by environment to Ring."]
    assert failed(wanted, environ=environ, log=log, told={"SGLANG_X": 1}) == ["NCCL's NCCL_ALGO"]
    assert failed(wanted, environ=environ, told={"SGLANG_X": False}) == ["/server_info SGLANG_X"]


def test_the_probe_finds_modules_and_stale_bytecode_without_importing(tmp_path: Path) -> None:
    """S14: an edit of the same length within the same second, with the old bytecode in place, is seen before any
    number is; S20: a module is found from the working directory of the server, wherever that leads."""
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    source = package / "gate.py"
    source.write_text("def gate(a):\n    return a == 1\n")
    os.utime(source, ns=(10**18, 10**18))
    py_compile.compile(str(source))
    plan = LaunchPlan("l", (sys.executable,), {"PYTHONPATH": str(tmp_path)}, str(tmp_path), {}, 1.0)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    wanted = Expectation(modules={"sglang.gate": (str(source), digest), "sglang": (str(package / "__init__.py"), "x")})

    def ask(wanted: Expectation) -> dict[str, bool | None]:
        command = interpreter_probe(wanted, plan)
        done = subprocess.run(command["argv"], env=command["env"], cwd=command["cwd"], capture_output=True, text=True)
        reply = {"rc": done.returncode, "stdout": done.stdout}
        return {c.what: c.holds for c in judge_treatment(wanted, probe=reply, environ=None, resolved=None, log=[])}

    assert ask(wanted) == {"module sglang.gate": True, "module sglang": False}
    source.write_text("def gate(a):\n    return a != 1\n")
    os.utime(source, ns=(10**18, 10**18))
    flipped = hashlib.sha256(source.read_bytes()).hexdigest()
    assert ask(Expectation(modules={"sglang.gate": (str(source), flipped)})) == {"module sglang.gate": False}
