"""Symmetric memory: which architectures it knows, and whether the links can multicast."""

from __future__ import annotations

from lab_hardware import settings

MIB = 1024 * 1024

# Compute capability's major version → world size → bytes of the largest all-reduce. SM120 is not in it.
ALL_REDUCE_MAX_SIZES: dict[int, dict[int, int]] = {
    9: {2: 64 * MIB, 4: 64 * MIB, 6: 128 * MIB, 8: 128 * MIB},
    10: {2: 64 * MIB, 4: 64 * MIB, 6: 128 * MIB, 8: 128 * MIB},
}


def has_multicast() -> bool:
    """Multicast needs NVLink."""
    return settings().machine.nvlink
