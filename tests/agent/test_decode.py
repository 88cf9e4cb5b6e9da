from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.decode import EventLines, Meter, percentile, request_body
from tests.agent.client import AgentClient
from tests.agent.conftest import launch_dummy, launch_python

# ---------------------------------------------------------------- one stream, from events


def sglang(tokens: int, **meta: Any) -> str:
    return json.dumps({"text": "x" * tokens, "meta_info": {"completion_tokens": tokens, "prompt_tokens": 7, **meta}})


def openai(text: str, finish: str | None = None) -> str:
    return json.dumps({"choices": [{"text": text, "finish_reason": finish}]})


def sample(api: str, events: list[tuple[float, str]], ended_at: float = 10.0) -> dict[str, Any]:
    meter = Meter(api, 1.0)
    for at, payload in events:
        meter.take(payload, at)
    return meter.sample(0, 0, ended_at)


def test_the_first_chunk_is_counted_neither_as_time_nor_as_tokens() -> None:
    events = [(2.0, sglang(3)), (2.5, sglang(4)), (3.0, sglang(8, finish_reason={"type": "length"}))]
    found = sample("sglang", events)
    assert found["ok"] and found["error"] is None
    assert (found["ttft_s"], found["decode_s"], found["decode_tokens"], found["total_s"]) == (1.0, 1.0, 5, 9.0)
    assert (found["output_tokens"], found["prompt_tokens"], found["finish_reason"]) == (8, 7, "length")


def test_a_chunk_of_several_tokens_is_several_gaps() -> None:
    """Speculation gives tokens in bursts; a burst is not one slow token."""
    events = [(2.0, sglang(1)), (2.4, sglang(5)), (2.5, sglang(6, finish_reason="length"))]
    found = sample("sglang", events)
    assert found["itl_p50_s"] == pytest.approx(0.1) and found["itl_p99_s"] == pytest.approx(0.1)


def test_a_last_event_without_a_new_token_does_not_stretch_the_time() -> None:
    events = [(2.0, sglang(1)), (3.0, sglang(2)), (9.0, sglang(2, finish_reason="length"))]
    assert sample("sglang", events)["decode_s"] == 1.0


def test_the_openai_count_comes_with_the_last_event() -> None:
    usage = {"prompt_tokens": 4, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    events = [(2.0, openai("a")), (2.2, openai("b")), (2.4, openai("c", "length"))]
    found = sample("openai", [*events, (2.4, json.dumps({"choices": [], "usage": usage})), (2.4, "[DONE]")])
    assert found["ok"] and found["text"] == "abc"
    assert (found["output_tokens"], found["decode_tokens"], found["cached_tokens"]) == (3, 2, 2)
    assert found["decode_s"] == pytest.approx(0.4)


NUMBERS = ("output_tokens", "ttft_s", "decode_s", "decode_tokens", "total_s", "itl_p50_s", "itl_p99_s", "text_sha256")


@pytest.mark.parametrize(
    ("api", "events", "error"),
    [
        ("sglang", [], "without a token"),
        ("openai", [(2.0, openai("", "stop")), (2.0, "[DONE]")], "without a token"),
        ("sglang", [(2.0, sglang(1)), (2.1, sglang(2))], "ended early, after 2 tokens"),
        ("openai", [(2.0, openai("a"))], "ended early"),
        ("sglang", [(2.0, sglang(1)), (2.1, '{"error": {"message": "CUDA error"}}')], "CUDA error"),
        ("openai", [(2.0, '{"object": "error", "error": "out of memory"}')], "out of memory"),
        ("sglang", [(2.0, "Internal Server Error")], "not JSON"),
        ("sglang", [(2.0, sglang(1, finish_reason={"type": "abort", "message": "too long"}))], "too long"),
    ],
)
def test_a_failed_stream_has_an_error_and_no_numbers(api: str, events: list[tuple[float, str]], error: str) -> None:
    found = sample(api, events)
    assert not found["ok"] and error in found["error"]
    assert {found[name] for name in NUMBERS} == {None}


def test_events_are_cut_at_line_ends_wherever_the_blocks_end() -> None:
    raw = 'data: {"a": "é"}\n\n: comment\ndata: [DONE]\r\n\n'.encode()
    for cut in range(len(raw)):
        lines = EventLines()
        assert lines.feed(raw[:cut]) + lines.feed(raw[cut:]) == ['{"a": "é"}', "[DONE]"]


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile([], 0.5) is None
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(n) for n in range(100)], 0.99) == 99.0


def test_extra_is_laid_over_the_body_key_by_key() -> None:
    spec = {"api": "sglang", "output_tokens": 9, "extra": {"sampling_params": {"temperature": 0.5}, "lora_path": "x"}}
    body = request_body(spec, "p")
    assert body["sampling_params"] == {"temperature": 0.5, "max_new_tokens": 9, "ignore_eos": True}
    assert body["lora_path"] == "x" and body["text"] == "p"


# ---------------------------------------------------------------- against a server


def spec(port: int, api: str = "sglang", **more: Any) -> dict[str, Any]:
    path = {"sglang": "/generate", "openai": "/v1/completions"}[api]
    given = {"port": port, "path": path, "api": api, "prompt": "2+2=", "output_tokens": 20, "repetitions": 2}
    shape = {"concurrency": 1, "warmup": 1, "flush_path": None, "extra": {}, "timeout_s": 20.0}
    return {**given, **shape, **more}


def serve(agent: AgentClient, tmp_path: Path, port: int, **dummy: Any) -> None:
    launch_dummy(agent, tmp_path, {"port": port, **dummy})
    agent.wait_line("serving")


@pytest.mark.parametrize("api", ["sglang", "openai"])
def test_streams_are_timed_where_they_happen(agent: AgentClient, tmp_path: Path, port: int, api: str) -> None:
    serve(agent, tmp_path, port, gap_s=0.01)
    reply = agent.call("decode", launch_id="l1", spec=spec(port, api))
    assert [(s["repetition"], s["stream"], s["ok"]) for s in reply["samples"]] == [(0, 0, True), (1, 0, True)]
    for found in reply["samples"]:
        assert (found["output_tokens"], found["decode_tokens"], found["prompt_tokens"]) == (20, 19, 5)
        assert 0.1 <= found["decode_s"] < found["total_s"] and 0 < found["ttft_s"] < found["total_s"]
        assert 0.001 <= found["itl_p50_s"] <= found["itl_p99_s"]
        assert found["text"] == "x" * 20 and found["finish_reason"] == "length"
    agent.call("stop", launch_id="l1", grace_s=0)


def test_speculation_is_reported_per_request(agent: AgentClient, tmp_path: Path, port: int) -> None:
    serve(agent, tmp_path, port, stream="spec")
    (found, _) = agent.call("decode", launch_id="l1", spec=spec(port))["samples"]
    assert found["accept_length"] == 3.5 and found["decode_tokens"] == 19
    agent.call("stop", launch_id="l1", grace_s=0)


def test_concurrent_streams_start_together_and_are_samples_each(agent: AgentClient, tmp_path: Path, port: int) -> None:
    serve(agent, tmp_path, port, gap_s=0.01)
    started = time.monotonic()
    samples = agent.call("decode", launch_id="l1", spec=spec(port, concurrency=16, warmup=0))["samples"]
    assert [(s["repetition"], s["stream"]) for s in samples] == [(r, n) for r in (0, 1) for n in range(16)]
    assert all(s["ok"] for s in samples)
    assert time.monotonic() - started < sum(s["total_s"] for s in samples) / 4
    assert statistics.median(s["decode_s"] for s in samples) > 0.15
    agent.call("stop", launch_id="l1", grace_s=0)


@pytest.mark.parametrize(("status", "ok"), [(200, True), (400, False)])
def test_the_flush_before_each_repetition_is_recorded(
    agent: AgentClient, tmp_path: Path, port: int, status: int, ok: bool
) -> None:
    serve(agent, tmp_path, port, flush=status)
    reply = agent.call("decode", launch_id="l1", spec=spec(port, flush_path="/flush_cache"))
    assert [(f["repetition"], f["ok"], f["status"]) for f in reply["flushes"]] == [(0, ok, status), (1, ok, status)]
    agent.call("stop", launch_id="l1", grace_s=0)


@pytest.mark.parametrize(("mode", "error"), [("early", "ended early"), ("inband", "device-side assert")])
def test_a_broken_stream_is_a_failed_sample(
    agent: AgentClient, tmp_path: Path, port: int, mode: str, error: str
) -> None:
    serve(agent, tmp_path, port, stream=mode)
    samples = agent.call("decode", launch_id="l1", spec=spec(port))["samples"]
    assert [s["repetition"] for s in samples] == [-1, 0, 1]  # the warm-up's failure is evidence too
    assert all(not s["ok"] and error in s["error"] and s["ttft_s"] is None for s in samples)
    agent.call("stop", launch_id="l1", grace_s=0)


def test_a_server_that_dies_ends_the_measurement_at_once(agent: AgentClient, tmp_path: Path, port: int) -> None:
    serve(agent, tmp_path, port, stream="exit")
    started = time.monotonic()
    samples = agent.call("decode", launch_id="l1", spec=spec(port, warmup=0, repetitions=50))["samples"]
    assert time.monotonic() - started < 2
    assert 1 <= len(samples) <= 2 and not samples[0]["ok"]
    assert agent.wait_event("exit")["exit_code"] == 9
    agent.call("stop", launch_id="l1", grace_s=0)


def test_streams_of_a_server_that_is_killed_end_although_a_child_keeps_the_socket(
    agent: AgentClient, tmp_path: Path, port: int
) -> None:
    source = f"""
import os, socket, time
s = socket.create_server(('127.0.0.1', {port}))
print('serving', flush=True)
c, _ = s.accept()
c.recv(65536)
if os.fork():
    time.sleep(0.3)
    os._exit(4)
time.sleep(600)
"""
    launch_python(agent, tmp_path, source)
    agent.wait_line("serving")
    started = time.monotonic()
    samples = agent.call("decode", launch_id="l1", spec=spec(port, warmup=0))["samples"]
    assert time.monotonic() - started < 2
    assert "exit code 4" in samples[0]["error"]
    agent.call("stop", launch_id="l1", grace_s=0)
