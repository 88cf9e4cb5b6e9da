"""Benchmark clients: the command that is run, and what is read from its result."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.core.measures import Accuracy, Benchmark, Goodput, Measure, Workload
from orchestrator.core.model import Target
from orchestrator.serving.benchmarks import Unreadable, plan_bench, read_bench, read_score, record_of_bench
from orchestrator.serving.benchmarks.reading import read_details
from orchestrator.serving.counters import Counted
from orchestrator.serving.gate import Answers, judge_answers, judge_score
from orchestrator.serving.gpus import GpuSeries
from orchestrator.serving.prompts import GATE_PROMPTS

TARGET = Target(model="/models/m", python="/venv/bin/python", port=31000, args={"api-key": "sesame-77"})
SHAPE = Workload(prompt_tokens=512, output_tokens=64, concurrency=4)


def plan(**benchmark: Any) -> Any:
    goodput = benchmark.pop("goodput", Goodput())
    measure = Measure(benchmark=Benchmark(**benchmark), goodput=goodput)
    return plan_bench(measure, SHAPE, TARGET, {"PATH": "/usr/bin", "HOME": "/root"}, "launch-1")


def value_of(argv: tuple[str, ...], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def reply(files: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    def pack(content: Any) -> Any:
        if not isinstance(content, str):
            return content
        return {"zlib_b64": base64.b64encode(zlib.compress(content.encode())).decode()}

    packed = {name: pack(content) for name, content in (files or {}).items()}
    base = {"exit_code": 0, "signal": None, "timed_out": False, "seconds": 12.0, "cpu_s": 3.0, "stdout": ""}
    return {**base, "files": packed, "observed": {"requests_logged": None}, **more}


def details(*, aligned: bool, **more: Any) -> dict[str, Any]:
    """Three requests, of which the second failed; SGLang lists no length for it, vLLM a zero."""
    return {
        "duration": 10.0, "completed": 2, "total_input_tokens": 1024, "total_output_tokens": 6,
        "output_throughput": 0.6, "request_throughput": 0.2, "mean_ttft_ms": 150.0, "p99_ttft_ms": 200.0,
        "input_lens": [512, 512, 512], "output_lens": [3, 0, 3] if aligned else [3, 3], "ttfts": [0.1, 0.0, 0.2],
        "itls": [[0.01, 0.03], [], [0.02, 0.02]], "errors": ["", "503 Service Unavailable", ""], **more,
    }  # fmt: skip


def test_sglangs_client_measures_fixed_lengths_after_a_flush_and_nothing_else() -> None:
    """Its own warm-up is off, since ours goes before; the key is in no word of the command."""
    found = plan(tool="sglang", prompts=40, rate=8.0, args={"disable-tqdm": None})
    assert found.argv[:3] == ("/venv/bin/python", "-m", "sglang.bench_serving")
    asked = {f: value_of(found.argv, f"--{f}") for f in ("random-input-len", "random-range-ratio", "num-prompts")}
    assert asked == {"random-input-len": "512", "random-range-ratio": "1.0", "num-prompts": "40"}
    assert value_of(found.argv, "--warmup-requests") == "0" and "--flush-cache" in found.argv
    assert value_of(found.argv, "--output-file") == "{out}/sglang.jsonl" and found.files == ("sglang.jsonl",)
    assert "--disable-tqdm" not in found.argv and "sesame-77" not in " ".join((*found.argv, *found.env.values()))
    assert (found.own_requests, found.dataset) == (40, "random")


def test_vllms_client_states_the_same_lengths_in_its_own_way() -> None:
    """A range of 0 is what SGLang calls 1; no test request goes ahead, and limits become its goodput."""
    found = plan(tool="vllm", goodput=Goodput(ttft_ms=500, itl_ms=40))
    assert found.argv[1:5] == ("-m", "vllm.entrypoints.cli.main", "bench", "serve")
    assert value_of(found.argv, "--random-range-ratio") == "0.0"
    assert value_of(found.argv, "--ready-check-timeout-sec") == "0"
    assert found.argv[-3:] == ("--goodput", "ttft:500", "tpot:40")


def test_a_command_is_filled_and_its_secrets_are_masked() -> None:
    words = ("aiperf", "--url", "http://127.0.0.1:{port}", "--x", '{"a": {model}}', "--api-key", "sesame-77", "{out}")
    found = plan(tool="command", command=words, metrics={"output_tps": "a"}, args={"streaming": True})
    assert found.argv[2] == "http://127.0.0.1:31000" and found.argv[4] == '{"a": /models/m}'
    assert found.argv[-2:] == ("{out}", "--streaming")
    assert "sesame-77" not in found.shown() and "***" in found.shown()


@pytest.mark.parametrize("aligned", [True, False])
def test_requests_are_told_apart_in_the_files_of_both_clients(aligned: bool) -> None:
    """The failed one has its error and no numbers, and takes no other's length."""
    found = read_details(details(aligned=aligned))
    assert [(s["ok"], s["output_tokens"]) for s in found.samples] == [(True, 3), (False, None), (True, 3)]
    assert found.samples[1]["error"] == "503 Service Unavailable" and found.samples[1]["ttft_s"] is None
    assert found.samples[0]["decode_s"] == pytest.approx(0.04) and found.samples[0]["decode_tokens"] == 2
    assert (found.requests, found.failed, found.seconds) == (3, 1, 10.0)
    assert found.itl_s["p99_s"] == pytest.approx(0.03)


def test_the_last_line_of_sglangs_file_counts() -> None:
    """The client appends; an earlier run's line is not this one's."""
    old, new = (json.dumps(details(aligned=False, duration=seconds)) for seconds in (99.0, 10.0))
    found = read_bench(Benchmark(tool="sglang"), plan(tool="sglang"), reply({"sglang.jsonl": f"{old}\n{new}\n"}))
    assert found.seconds == 10.0


def test_all_clients_give_the_same_record() -> None:
    """Tokens as the server counted them where it counts; times from the requests, rates from the client's clock."""
    asked = plan(tool="vllm")
    answer = reply({"vllm.json": json.dumps(details(aligned=True, spec_decode_acceptance_length=2.5))})
    answer["observed"] = {"requests_logged": 40}
    reading = read_bench(Benchmark(tool="vllm"), asked, answer)
    counts = Counted(prompt_tokens=1030.0, output_tokens=6.0)
    found = record_of_bench(asked, reading, answer, counts, GpuSeries(), Goodput(ttft_ms=150), version="0.19.0")
    assert (found.client, found.counted_by, found.prompt_tokens, found.output_tokens) == (
        "vllm 0.19.0",
        "server",
        1030,
        6,
    )
    assert found.values["output_tps"] == pytest.approx(0.6)
    assert found.values["goodput_per_s"] == pytest.approx(0.1)
    assert found.values["ttft_p99_ms"] == pytest.approx(200.0)
    assert found.values["accept_length"] == 2.5 and found.values["error_rate"] == pytest.approx(1 / 3)
    assert (found.own_requests, found.requests_served, found.client_load) == (32, 40, 0.25)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"exit_code": 2, "stdout": "usage: x\nerror: no such flag\n"}, "exit code 2: error: no such flag"),
        ({"exit_code": -9, "signal": 9}, "signal 9"),
        ({"exit_code": None, "timed_out": True}, "still running after 12 s"),
        ({"files": {}}, "it wrote no file sglang.jsonl"),
        ({"files": {"sglang.jsonl": {"too_long": 99}}}, "too long"),
    ],
)
def test_a_client_that_gives_no_result_says_why(more: dict[str, Any], said: str) -> None:
    """Never a zero: there is no record at all."""
    with pytest.raises(Unreadable, match=said):
        read_bench(Benchmark(tool="sglang"), plan(tool="sglang"), reply(**more))


AIPERF = {
    "output_token_throughput": {"unit": "tokens/sec", "avg": 812.5},
    "time_to_first_token": {"unit": "ms", "avg": 91.0, "p99": 140.25},
    "request_count": {"avg": 32.0},
}


def test_numbers_of_a_command_come_from_json_or_from_a_pattern() -> None:
    metrics = {
        "output_tps": "output_token_throughput.avg",
        "ttft_p99_ms": {"json": "time_to_first_token.p99"},
        "requests": "request_count.avg",
        "e2e_ms": {"pattern": r"latency: ([\d.,]+) s", "scale": 1000},
    }
    words = ("aiperf", "profile")
    asked = {"tool": "command", "command": words, "metrics": metrics, "result": "*/profile_export_aiperf.json"}
    answer = reply({"a/profile_export_aiperf.json": json.dumps(AIPERF)}, stdout="latency: 9 s\nlatency: 1,2.5 s\n")
    found = read_bench(Benchmark(**asked), plan(**asked), answer)
    assert found.values == {"output_tps": 812.5, "ttft_p99_ms": 140.25, "e2e_ms": 12500.0}
    assert (found.requests, found.failed, found.samples) == (32, 0, [])


def test_json_among_other_output_is_found() -> None:
    asked = {"tool": "command", "command": ("x",), "metrics": {"output_tps": "runs.-1.tps"}}
    answer = reply(stdout='loading {model}\n{"runs": [{"tps": 1}, {"tps": 41.5}]}\ndone\n')
    assert read_bench(Benchmark(**asked), plan(**asked), answer).values == {"output_tps": 41.5}
    with pytest.raises(Unreadable, match=r"nothing at runs\.-1\.tps"):
        read_bench(Benchmark(**asked), plan(**asked), reply(stdout="no json"))


@pytest.mark.parametrize(
    ("benchmark", "said"),
    [
        ({"tool": "command"}, "needs it"),
        ({"tool": "decode", "command": ["x"]}, "belongs to tool `command`"),
        ({"tool": "command", "command": ["x"]}, "needs `metrics`"),
        ({"tool": "command", "command": ["x"], "metrics": {"output_tps": {"pattern": "tps"}}}, "one group"),
        ({"tool": "command", "command": ["x"], "metrics": {"speed": "a"}}, "output_tps"),
    ],
)
def test_a_benchmark_that_cannot_work_is_refused(benchmark: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Benchmark.model_validate(benchmark)


def test_a_metric_that_nobody_would_tell_is_refused() -> None:
    with pytest.raises(ValidationError, match="not among the `metrics`"):
        Measure(metric="ttft_ms", benchmark=Benchmark(tool="command", command=("x",), metrics={"output_tps": "a"}))
    with pytest.raises(ValidationError, match="needs the limits of `goodput`"):
        Measure(metric="goodput_per_s")


# ---------------------------------------------------------------- the gate


def answers(copy: str, total: str = " 9\n7 + 1 = 8", tail: str = " master. On Monday") -> Answers:
    texts = dict(zip(GATE_PROMPTS, (copy, total, tail), strict=True))
    return Answers(texts, texts)


def test_fluent_text_that_ignores_the_prompt_is_wrong() -> None:
    """Two of three answers agree word for word; the one that was to copy does not, as it does in the baseline."""
    right = answers("heron-2219-cobalt and so on")
    said = judge_answers([right], answers("heron-8888-cobalt and so on"))
    assert said.agreement > 0.6 and not said.passed
    assert "1 of 2 prompts that the baseline follows are not followed" in said.sentence
    assert judge_answers([right], right).passed


def test_what_the_baseline_cannot_do_is_not_asked() -> None:
    """A tiny model copies nothing, and its treatment need not."""
    other = answers("zzz zzz", " 1", "x")
    assert judge_answers([other], other).passed


def test_two_launches_of_the_baseline_are_the_floor() -> None:
    """Where equal launches already part early, a treatment that parts as early is not wrong."""
    a, b = (
        answers("heron-2219-cobalt", " 9 aaaaaaaa", "abcdefgh"),
        answers("heron-2219-cobalt", " 9 bbbbbbbb", "a1234567"),
    )
    found = judge_answers([a, b], answers("heron-2219-cobalt", " 9 cccccccc", "a7654321"))
    assert found.floor < 0.6 and found.passed


def test_a_score_is_held_against_what_equal_launches_differ_by() -> None:
    """67.0 against 68.0 is wrong at a floor of half a point, right at one of two, and a better score always is."""
    assert "score 67.00 against 68.00" in (judge_score([68.0], 67.0, 0.5) or "")
    assert judge_score([68.0], 67.0, 2.0) is None
    assert judge_score([67.0, 69.0], 66.5, 0.5) is None
    assert judge_score([68.0], 75.0, 0.5) is None
    assert judge_score([], 1.0, 0.0) is None
    accuracy = Accuracy(command=("lm_eval",), score={"pattern": r"\|acc\s*\|.*?\|([\d.]+)\|", "scale": 100})
    assert read_score(accuracy, reply(stdout="|acc   |↑  |0.682|±\n")) == pytest.approx(68.2)
