"""Compiled caches that a treatment must not share."""

from __future__ import annotations

import pytest

from orchestrator.core.model import FlagValue
from orchestrator.serving.caches import GRAPHS, KERNELS, caches_of


@pytest.mark.parametrize(
    ("files", "own"),
    [
        ({"/t/sglang/jit_kernel/csrc/allreduce.cuh": b""}, True),
        ({"/t/flashinfer/jit/core.py": b"x = 1"}, True),
        ({"/t/sglang/srt/layers/moe/fused.py": b"@triton.jit\ndef k(): ..."}, True),
        ({"/t/sglang/srt/layers/deleted.cu": None}, True),
        ({"/t/sglang/srt/layers/communicator.py": b"x = 1"}, False),
        ({}, False),
    ],
)
def test_a_patch_of_a_kernel_gets_kernel_caches_of_its_own(files: dict[str, bytes | None], own: bool) -> None:
    """S16: FlashInfer, Triton and the others would go on serving the old binary, or the patched one afterwards."""
    names = caches_of(files=files, flags={}, configured={}, engine="sglang")
    assert names == (list(KERNELS) if own else [])


@pytest.mark.parametrize(
    ("flags", "configured", "engine", "own"),
    [
        ({"speculative-num-draft-tokens": 9}, {"enable-torch-compile": True}, "sglang", True),
        ({"speculative-num-draft-tokens": 9}, {}, "sglang", False),
        ({"num-speculative-tokens": 9, "max-num-seqs": 8}, {}, "vllm", True),
        ({"watchdog-timeout": 9}, {"enable-torch-compile": True}, "sglang", False),
    ],
)
def test_a_flag_that_shapes_a_compiled_graph_gets_graph_caches_of_its_own(
    flags: dict[str, FlagValue], configured: dict[str, FlagValue], engine: str, own: bool
) -> None:
    """S17: torch.compile's key omits the number of speculative tokens: the second arm loads the first one's graph."""
    names = caches_of(files={}, flags=flags, configured=configured, engine=engine)
    assert names == (list(GRAPHS) if own else [])
