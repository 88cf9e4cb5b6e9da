"""Which architectures the JIT compiles the communication kernels for."""

from __future__ import annotations

import torch

SUPPORTED_MAJOR_VERSIONS = [9, 10]


def nvcc_flags(supported_major_versions: list[int]) -> list[str]:
    """Compiler flags for the GPUs that are there. Raises RuntimeError when none of them is supported."""
    present = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
    flags = [f"-gencode=arch=compute_{major}{minor}a" for major, minor in present if major in supported_major_versions]
    if not flags:
        raise RuntimeError(f"No supported CUDA architectures found for major versions {supported_major_versions}.")
    return flags
