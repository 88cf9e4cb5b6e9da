"""The long prompt and the comparison of capacities, from values alone."""

from __future__ import annotations

import pytest

from orchestrator.core.model import Target, Workload
from orchestrator.serving.engine import engine_for
from orchestrator.serving.warm import capacity_of, capacity_problem, long_prompt_tokens

SHORT = Workload(prompt_tokens=32)


@pytest.mark.parametrize(
    ("workload", "info", "tokens"),
    [
        (SHORT, None, None),
        (SHORT, {"chunked_prefill_size": 8192, "context_length": None}, 8192),
        (SHORT, {"chunked_prefill_size": 8192, "max_req_input_len": 2043, "max_total_num_tokens": 4096}, 2027),
        (SHORT, {"chunked_prefill_size": -1}, None),
        (Workload(prompt_tokens=9000), {"chunked_prefill_size": 4096, "context_length": 131072}, 9000),
        (Workload(prompt_tokens=9000), None, 9000),
        (Workload(prompt_tokens=9000), {"context_length": 64}, None),
    ],
)
def test_the_long_prompt_fills_a_chunk_and_never_the_context(
    workload: Workload, info: dict[str, object] | None, tokens: int | None
) -> None:
    """A chunk of prefill or the workload's prompt, whichever is longer, below every cap the server names."""
    assert long_prompt_tokens(workload, info) == tokens


def test_a_long_prompt_for_sglang_is_exactly_as_long_as_asked() -> None:
    """It is sent as numbers, so no tokenizer decides."""
    target = Target(python="/x/python", model="/m")
    request = engine_for(target).long_request(target, 4096, "l1")
    import json

    body = json.loads(request["body"])
    assert len(body["input_ids"]) == 4096 and "text" not in body
    assert body["sampling_params"]["max_new_tokens"] == 1


def test_capacity_is_taken_from_the_server_or_its_log() -> None:
    """SGLang reports it; vLLM only logs it, and of several engines the smallest counts."""
    assert capacity_of({"max_total_num_tokens": 4096}, ["max_total_num_tokens=1"]) == 4096
    assert capacity_of(None, ["INFO GPU KV cache size: 123,456 tokens", "GPU KV cache size: 123,000 tokens"]) == 123000
    assert capacity_of({}, ["[TP0] max_total_num_tokens=600, chunked_prefill_size=8192"]) == 600
    assert capacity_of(None, ["nothing"]) is None


def test_a_smaller_cache_that_nothing_explains_is_named_with_both_numbers() -> None:
    """A patch of a communicator does not move memory; a memory flag does, and so does a change in the pool."""
    problem = capacity_problem(150_000, 12_000, flags={}, names=["NCCL_ALGO"], paths=["sglang/srt/layers/x.py"])
    assert problem is not None and "12000" in problem and "150000" in problem and "-92%" in problem
    explained = [
        {"flags": {"mem-fraction-static": 0.5}, "names": [], "paths": []},
        {"flags": {"cuda-graph-max-bs": 512}, "names": [], "paths": []},
        {"flags": {}, "names": ["PYTORCH_CUDA_ALLOC_CONF"], "paths": []},
        {"flags": {}, "names": [], "paths": ["sglang/srt/mem_cache/memory_pool.py"]},
    ]
    for changes in explained:
        assert capacity_problem(150_000, 12_000, **changes) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("baseline", "now"), [(None, 5), (5, None), (1000, 951), (1000, 1049), (1000, 1000)])
def test_five_percent_and_the_unknown_are_no_problem(baseline: int | None, now: int | None) -> None:
    """The cache differs a little from launch to launch, and a server that tells nothing is not accused."""
    assert capacity_problem(baseline, now, flags={}, names=[], paths=[]) is None
