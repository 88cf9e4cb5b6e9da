"""The fused all-reduce: residual add, norm and all-reduce of small tensors in one kernel, without NCCL."""

from __future__ import annotations

from functools import cache

from lab_hardware import settings

from flashinfer.jit.architectures import SUPPORTED_MAJOR_VERSIONS, nvcc_flags


@cache
def build_module() -> tuple[str, ...]:
    """Compile the kernel once a process. Raises RuntimeError where the JIT does not know the architecture."""
    return tuple(nvcc_flags(SUPPORTED_MAJOR_VERSIONS))


def allreduce_fusion_ms() -> float:
    """What one fused call costs on this machine."""
    build_module()
    return settings().constants.fused_ms
