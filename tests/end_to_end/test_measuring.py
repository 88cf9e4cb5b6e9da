"""Benchmark clients, guardrails, evidence and the audit, on whole runs over the lab."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.end_to_end.conftest import Bench

NOTE = {"id": "note", "changes": [{"env": {"LAB_NOTE": "1"}}]}
SHAPE = {"prompt_tokens": 12, "output_tokens": 16, "concurrency": 2}
COMMAND = [
    "{python}", "-m", "sglang.bench_serving", "--port", "{port}", "--num-prompts", "{prompts}", "--output-details",
    "--max-concurrency", "{concurrency}", "--random-input-len", "{prompt_tokens}", "--random-output-len",
    "{output_tokens}", "--random-range-ratio", "1", "--flush-cache", "--output-file", "{out}/run.jsonl",
]  # fmt: skip


def last_launch(bench: Bench, experiment: int) -> dict[str, Any]:
    code, shown = bench.run("experiment", "show", str(experiment))
    assert code == 0
    found: dict[str, Any] = shown["arms"][-1]["launches"][-1]
    return found


@pytest.mark.parametrize(
    ("benchmark", "client", "counted_by"),
    [
        ({"tool": "sglang", "prompts": 6}, "sglang 0.5.10.post1", "server"),
        (
            {
                "tool": "command", "command": COMMAND, "prompts": 6, "result": "run.jsonl",
                "metrics": {"output_tps": "output_throughput", "requests": "completed", "ttft_p99_ms": "p99_ttft_ms",
                            "prompt_tokens": "total_input_tokens", "output_tokens": "total_output_tokens"},
            },
            "command",
            "client",
        ),
    ],
)  # fmt: skip
def test_a_client_measures_a_campaign(bench: Bench, benchmark: dict[str, Any], client: str, counted_by: str) -> None:
    """The client runs beside the server in both arms; its numbers decide, its command and version are recorded, and
    nothing of it is left on the host."""
    measure = {"launches": 1, "benchmark": benchmark}
    path = bench.write_playbook([NOTE], workload=SHAPE, measure=measure, guardrails={"ttft_p99_ms": 60000})
    before = bench.tree()
    code, summary = bench.run("run", str(path), "--yes")
    assert code == 0
    (finding,) = summary["findings"]
    assert finding["verdict"] in ("inconclusive", "no_effect", "improved", "regressed") and finding["baseline"] > 0
    record = last_launch(bench, finding["experiment_id"])["facts"]["record"]
    assert (record["client"], record["requests"], record["failed"]) == (client, 6, 0)
    assert record["output_tokens"] == 96 and record["counted_by"] == counted_by
    assert "sglang.bench_serving" in record["command"] and record["values"]["ttft_p99_ms"] > 0
    assert len(record["sweeps"]) >= 2
    assert bench.tree() == before


def test_a_client_that_fails_makes_no_number(bench: Bench) -> None:
    """A baseline that the client cannot measure stops the run with the client's own words; the host is clean."""
    benchmark = {"tool": "sglang", "args": {"no-such-flag": True}}
    path = bench.write_playbook([NOTE], workload=SHAPE, measure={"launches": 1, "benchmark": benchmark})
    code, said = bench.run("run", str(path), "--yes")
    assert code == 5
    assert "sglang ended with exit code 2" in str(said) and "no-such-flag" in str(said)


def test_the_audit_tells_what_the_host_can_see(bench: Bench) -> None:
    """Four launches of the baseline: their noise, how many equal splits would be kept, and the metric to use."""
    path = bench.write_playbook([NOTE], workload=SHAPE)
    code, report = bench.run("audit", "lab", str(path), "--launches", "4", "--yes")
    assert code == 0
    (found,) = report["contexts"]
    assert len(found["values"]) == 4 and found["splits"] == 6 and found["noise_between"] > 0
    assert 0 <= found["false_keeps"] <= 6 and found["smallest_effect"] > 0
    assert "decides sooner" in found["sooner"] and {"output_tps", "ttft_ms", "e2e_ms"} <= found["noises"].keys()
    assert bench.run("audit", "lab", str(path), "--launches", "3")[0] == 2


def test_a_win_that_breaks_a_guardrail_is_not_kept(bench: Bench) -> None:
    """CUDA graphs more than double the speed and take memory: with a guardrail on it the verdict is `regressed` in
    memory, and the speed stands in the evidence."""
    graphs = {"id": "graphs", "changes": [{"args": {"disable-cuda-graph": None}}]}
    eager = {"eager": {"args": {"disable-cuda-graph": True}}}
    path = bench.write_playbook(
        [graphs], workload={"prompt_tokens": 8, "output_tokens": 24}, contexts=eager, guardrails={"memory_mib": "0.5%"}
    )
    code, summary = bench.run("run", str(path), "--yes")
    assert code == 0
    (finding,) = summary["findings"]
    assert (finding["verdict"], finding["metric"]) == ("regressed", "memory_mib")
    assert finding["effect"] < 0 and finding["closes"] and finding["treatment"] > finding["baseline"]
    assert "guardrail" in finding["summary"] and "improved" in finding["evidence"][0]
    assert not summary["best"]


@contextmanager
def somebody_else(port: int) -> Iterator[None]:
    """Asks the server for a token again and again, whenever it is up."""
    over = threading.Event()
    body = json.dumps({"text": "hello there", "sampling_params": {"max_new_tokens": 1}}).encode()

    def ask() -> None:
        while not over.wait(0.1):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/generate", data=body, method="POST")
            try:
                urllib.request.urlopen(request, timeout=5).read()
            except (OSError, urllib.error.URLError):
                continue

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_requests_of_somebody_else_make_a_launch_invalid(bench: Bench) -> None:
    """A client that is not ours asks the same server meanwhile: no number, with how many requests were not ours."""
    port = bench.inventory()["targets"]["kimi-lab"]["port"]
    path = bench.write_playbook([NOTE], workload={"prompt_tokens": 8, "output_tokens": 32})
    with somebody_else(port):
        code, said = bench.run("run", str(path), "--yes")
    assert code == 5
    assert "requests that were not ours" in str(said)
