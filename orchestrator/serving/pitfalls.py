"""Settings that are known to break a start together, though each alone is harmless. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orchestrator.serving.configuration import flag_key

if TYPE_CHECKING:
    from orchestrator.core.model import FlagValue
    from orchestrator.serving.configuration import Configuration

_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_TENSOR_PARALLEL = ("tp_size", "tensor_parallel_size", "tp")


def pitfalls_of(configuration: Configuration) -> list[str]:
    """A sentence for each pair that this configuration holds."""
    flags = {flag_key(name): value for name, value in configuration.flags.items()}
    said = []
    name = next((n for n in _ALLOCATOR if "expandable_segments:true" in (configuration.env.get(n) or "").lower()), None)
    if name is not None and _ranks(flags) > 1 and not flags.get("disable_custom_all_reduce"):
        said.append(
            f"{name} has expandable_segments, which custom all-reduce cannot share between ranks: starts with more "
            "than one rank have ended after graph capture with `custom_all_reduce.cuh … 'invalid argument'`; "
            "--disable-custom-all-reduce goes with it"
        )
    return said


def _ranks(flags: Mapping[str, FlagValue]) -> int:
    value = next((flags[name] for name in _TENSOR_PARALLEL if flags.get(name)), 1)
    return int(str(value)) if str(value).isdigit() else 1
