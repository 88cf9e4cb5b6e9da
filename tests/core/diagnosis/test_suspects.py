"""Whose change it was, what status tells, and the form for machines."""

from __future__ import annotations

from pathlib import Path

from orchestrator.core.diagnosis import LiveWatch, diagnose

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"


def _read(name: str) -> str:
    return (LOGS / name).read_text("utf-8")


def test_a_frame_in_a_changed_file_names_the_change() -> None:
    """The patch whose file the traceback ends in is the suspect, and certainly so; the other is not."""
    found = diagnose(
        _read("cpu-broken-patch-tp2-0.5.10.post1.log"),
        changed_paths={"sm120": ["sglang/srt/layers/communicator.py"], "other": ["sglang/srt/server_args.py"]},
    )
    assert (found.category, found.suspects, found.certainty) == ("patch_error", ("sm120",), "certain")
    assert found.cause_lineno == 56


def test_a_changed_file_keeps_the_named_cause_where_there_is_one() -> None:
    """A synchronising call in a patch is still a failed graph capture, with the patch as suspect."""
    found = diagnose(_read("G05-graph-capture-failed.log"), changed_paths={"sync": "srt/models/qwen3.py"})
    assert (found.category, found.cause_lineno, found.suspects) == ("graph_capture", 11, ("sync",))


def test_a_victim_in_a_changed_file_is_no_suspect() -> None:
    """A rank that only lost its peer says nothing about the file it was in."""
    found = diagnose(
        _read("027-sglang-gloo-closed-by-peer-only-symptom.log"),
        changed_paths={"patch": ["sglang/srt/model_executor/cuda_graph_runner.py"]},
    )
    assert (found.category, found.suspects) == ("peer_died", ())


def test_a_compiler_error_in_a_changed_source_names_the_change() -> None:
    """The compiler's own line carries the path of the patched header."""
    text = (
        'Traceback (most recent call last):\n  File "/v/tvm_ffi/cpp/extension.py", line 9, in build_ninja\n'
        "    x()\nRuntimeError: ninja exited with status 1\nFAILED: [code=1] cuda_0.o\n"
        "/v/sglang/jit_kernel/csrc/rope.cuh(12): error: static assertion failed\n"
        "ninja: build stopped: subcommand failed.\n"
    )
    found = diagnose(text, changed_paths={"rope": ["sglang/jit_kernel/csrc/rope.cuh"], "b": ["other.cuh"]})
    assert (found.category, found.cause_lineno, found.suspects) == ("jit_toolchain", 6, ("rope",))


def test_a_changed_flag_or_variable_that_brings_this_about_is_suspected() -> None:
    """The memory fraction for an out-of-memory at the KV pool, the allocator setting for failed graph buffers."""
    pool = diagnose(
        _read("G03-oom-at-kv-pool.log"), changed_names={"mem": ["--mem-fraction-static"], "x": ["NCCL_ALGO"]}
    )
    assert pool.suspects == ("mem",)
    buffers = diagnose(
        _read("066-custom-allreduce-register-graph-buffers.log"),
        changed_names={"alloc": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
    )
    assert buffers.suspects == ("alloc",)


def test_a_status_without_a_cause_invents_none() -> None:
    """Killed from outside is said to be that; another status stays unknown; an end that was asked for is healthy."""
    ready = "[2026-03-01 10:01:00] The server is fired up and ready to roll!\n"
    killed = diagnose(ready, exit_code=-9)
    assert (killed.outcome, killed.category, killed.cause_line) == ("failed", "worker_died_silently", None)
    status = diagnose(ready, exit_code=3)
    assert (status.outcome, status.category, status.cause_line) == ("failed", "unknown", None)
    asked = diagnose(
        ready + "[2026-03-01 10:02:00] SIGTERM received. signum=None frame=None. Draining requests\n", exit_code=-9
    )
    assert asked.outcome == "healthy"


def test_the_form_for_machines_has_exactly_these_keys() -> None:
    """Field names are an interface."""
    assert diagnose("", exit_code=None).to_json("a.log") == {
        "file": "a.log",
        "outcome": "unknown",
        "category": "unknown",
        "cause_line": None,
        "cause_lineno": None,
        "rank": None,
        "certainty": "possible",
        "remedy": "is this the server's log?",
        "suspects": [],
    }


def test_phases_of_both_generations_of_engines_are_followed() -> None:
    """Old and new wording of SGLang, and vLLM, run through the same phases in order."""
    old = [
        "[2026-03-01 10:00:00] server_args=ServerArgs(x)",
        "[2026-03-01 10:00:01 TP0] Init torch distributed begin.",
        "[2026-03-01 10:00:02 TP0] Load weight begin. avail mem=9",
        "[2026-03-01 10:00:03 TP0] Memory pool end. avail mem=5",
        "[2026-03-01 10:00:04 TP0] Capture cuda graph begin.",
        "[2026-03-01 10:00:05] max_total_num_tokens=4096, x=1",
        "[2026-03-01 10:00:06] INFO:     Application startup complete.",
        "[2026-03-01 10:00:07] The server is fired up and ready to roll!",
    ]
    new = [
        "[2026-03-01 10:00:00] server_args={'a': 1}",
        "[2026-03-01 10:00:01] Init parallel begin.",
        old[2],
        old[3],
        "[2026-03-01 10:00:04] Capture target decode CUDA graph begin. backend=full",
        *old[5:],
    ]
    vllm = [
        "(APIServer pid=1) INFO 03-01 10:00:00 [api_utils.py:273] non-default args: {}",
        "(Worker pid=2) INFO 03-01 10:00:01 [pynccl.py:111] vLLM is using nccl==2.28.9",
        "(Worker pid=2) INFO 03-01 10:00:02 [gpu_model_runner.py:5] Starting to load model /m...",
        "(Worker pid=2) INFO 03-01 10:00:03 [gpu_worker.py:298] Available KV cache memory: 1.71 GiB",
        "(Worker pid=2) INFO 03-01 10:00:04 [x.py:1] Graph capturing finished in 3 secs",
        "(EngineCore pid=2) INFO 03-01 10:00:05 [core.py:290] init engine (profile, create kv cache) took 2 s",
        "(APIServer pid=1) INFO:     Waiting for application startup.",
        "(APIServer pid=1) INFO:     Application startup complete.",
    ]
    for lines in (old, new, vllm):
        watch = LiveWatch()
        seen = []
        for line in lines:
            assert watch.feed([line]) == []
            seen.append(watch.phase)
        assert seen == ["args", "dist", "weights", "kv", "graphs", "warmup", "warmup", "ready"]
