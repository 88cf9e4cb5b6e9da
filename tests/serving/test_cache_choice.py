"""Shared or own: by what a treatment changes, or as the playbook says, with a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.serving.caches import GRAPHS, KERNELS, choose

NOTHING: dict[str, Any] = {"files": {}, "flags": {}, "env": [], "configured": {}, "engine": "sglang"}


@pytest.mark.parametrize(
    ("policy", "given", "names", "says"),
    [
        ("auto", {}, (), "shared"),
        ("auto", {"env": ["NCCL_ALGO", "CUDA_VISIBLE_DEVICES"]}, (), "shared"),
        ("auto", {"files": {"/t/csrc/reduce.cuh": b""}}, KERNELS, "reduce.cuh is a source"),
        ("auto", {"env": ["TRITON_PTXAS_PATH"]}, KERNELS, "TRITON_PTXAS_PATH is read"),
        ("auto", {"env": ["SGLANG_ENABLE_JIT_DEEPGEMM"]}, KERNELS, "SGLANG_ENABLE_JIT_DEEPGEMM"),
        ("auto", {"flags": {"max-num-seqs": 8}, "engine": "vllm"}, GRAPHS, "graphs"),
        ("shared", {"files": {"/t/csrc/reduce.cuh": b""}}, (), "the playbook says so"),
        ("own", {"flags": {"ep-size": 8}}, tuple(dict.fromkeys(KERNELS + GRAPHS)), "the playbook says so"),
        ("own", {}, (), "shared"),
    ],
)
def test_what_can_reach_a_cache_gets_its_own(
    policy: Any, given: dict[str, Any], names: tuple[str, ...], says: str
) -> None:
    choice = choose(policy, **{**NOTHING, **given})
    assert choice.names == names
    assert says in choice.why


def test_a_cache_that_the_treatment_names_itself_stays_as_it_says() -> None:
    """The variable is its own business; the others are kept apart all the same."""
    choice = choose("auto", **{**NOTHING, "files": {"/t/a.cu": b""}, "env": ["TRITON_CACHE_DIR"]})
    assert "TRITON_CACHE_DIR" not in choice.names
    assert "FLASHINFER_WORKSPACE_BASE" in choice.names
