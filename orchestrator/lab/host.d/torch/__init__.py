"""A stand-in for torch: the few questions the lab's engine asks about its GPUs. Our own writing, no tensors."""

from __future__ import annotations

from torch import cuda, version

__version__ = "2.9.1"


class OutOfMemoryError(RuntimeError):
    """The GPU has no room for an allocation."""


OutOfMemoryError.__module__ = "torch"

__all__ = ["OutOfMemoryError", "cuda", "version"]
