"""A server that answered once is not yet one to measure: it also takes a long prompt, and has the baseline's room.

An engine that gave nearly all memory to its cache answers a short request and dies of the first long one; one that
found a GPU half full starts healthily with a fraction of the cache. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.core.model import FlagValue, Workload

ROOM = 16
"""Tokens that are left free below every cap: the answer's own, and what templates add."""
TOLERANCE = 0.05
_SHORT = 64
_LOGGED = re.compile(r"max_total_num_tokens=(\d+)|GPU KV cache size: ([\d,]+) tokens")
_FLAGS = re.compile(
    r"mem-fraction|max-total-tokens|max-running|max-mamba|cuda-graph|(tp|dp|pp|ep|attn|tensor|data|pipeline|expert)-\w*(size|par)"
    r"|^(tp|dp|pp|ep|dtype|quantization|device)$|kv-cache|page-size|block-size|chunked-prefill|max-prefill|max-num|context|max-model-len"
    r"|speculative|offload|lora|swa|attention-backend|moe|torch-compile|memory|gpu-memory|hierarchical|enforce-eager|nccl|all-?reduce|symm"
)
_NAMES = re.compile(r"MEM|ALLOC|CACHE_SIZE|BUFF|NCHANNELS|WORKSPACE|GRAPH|CUDA_VISIBLE")
_PATHS = re.compile(
    r"mem_cache|memory|kv_cache|pool|model_runner|cuda_graph|server_args|arg_groups|/models?/|quantization|worker"
)
_CAPS = ("max_req_input_len", "context_length", "max_model_len", "max_total_num_tokens")


def long_prompt_tokens(workload: Workload, info: Mapping[str, Any] | None) -> int | None:
    """How long the second prompt is: one whole chunk of prefill, or the workload's own prompt where that is longer,
    capped by what the server takes. None where that is no longer than the first prompt was.

    `info`: what the server tells of itself, None where it tells nothing.
    """
    known = info or {}
    wanted = max(workload.prompt_tokens, _positive(known.get("chunked_prefill_size")) or 0)
    room = [cap - ROOM for name in _CAPS if (cap := _positive(known.get(name)))]
    tokens = min([wanted, *room])
    return tokens if tokens > _SHORT else None


def capacity_of(info: Mapping[str, Any] | None, log: Iterable[str]) -> int | None:
    """Tokens that the cache holds: as the server reports it, else the smallest that its log names; None if unknown."""
    told = _positive((info or {}).get("max_total_num_tokens"))
    if told:
        return told
    found = [int((m[1] or m[2]).replace(",", "")) for line in log for m in _LOGGED.finditer(line)]
    return min(found, default=None)


def capacity_problem(
    baseline: int | None,
    now: int | None,
    *,
    flags: Mapping[str, FlagValue],
    names: Iterable[str],
    paths: Sequence[str],
) -> str | None:
    """Why a measurement would compare unequal servers, or None. A declared change that can move memory explains any
    difference: `flags`, environment `names` and file `paths` that the hypothesis changes."""
    if not baseline or not now or abs(now - baseline) <= TOLERANCE * baseline:
        return None
    if capacity_causes(flags=flags, names=names, paths=paths):
        return None
    return (
        f"the cache holds {now} tokens, the baseline's {baseline} ({now / baseline - 1:+.0%}), and nothing that was "
        "changed explains it: somebody else may hold GPU memory"
    )


def capacity_causes(*, flags: Mapping[str, FlagValue], names: Iterable[str], paths: Sequence[str]) -> list[str]:
    """Those of the changes that can make a cache larger or smaller."""
    return [
        *(f"--{flag}" for flag in flags if _FLAGS.search(flag)),
        *(name for name in names if _NAMES.search(name)),
        *(path for path in paths if _PATHS.search(path)),
    ]


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
