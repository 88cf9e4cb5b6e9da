"""NCCL as the ranks meet it: it reads its own variables, whoever set them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .model import Constants, nccl_ring_ms


class InvalidUsage(RuntimeError):
    """What NCCL answers to a request it cannot serve."""

    def __init__(self) -> None:
        super().__init__("NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)")


def channels(constants: Constants, env: Mapping[str, str]) -> int:
    """Channels of a communicator: the default, held between NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS."""
    count = constants.nccl_default_channels
    count = min(count, _number(env, "NCCL_MAX_NCHANNELS", count))
    return max(1, count, _number(env, "NCCL_MIN_NCHANNELS", 1))


def is_tree(env: Mapping[str, str]) -> bool:
    """Whether NCCL_ALGO allows an all-reduce nothing but Tree: `Tree`, or `allreduce:tree` among others."""
    clauses = [c.strip().lower() for c in env.get("NCCL_ALGO", "").split(";") if c.strip()]
    chosen = next((c.partition(":")[2] for c in clauses if c.startswith("allreduce:")), None)
    if chosen is None:
        chosen = next((c for c in clauses if ":" not in c), "")
    return {a.strip() for a in chosen.split(",")} == {"tree"}


def all_reduce_ms(constants: Constants, env: Mapping[str, str], *, capturing: bool) -> float:
    """c for this environment. Raises `InvalidUsage` for Tree while a CUDA graph is captured."""
    if is_tree(env):
        if capturing:
            raise InvalidUsage
        return constants.nccl_tree_ms
    return nccl_ring_ms(constants, channels(constants, env))


def debug_lines(env: Mapping[str, str], rank: int) -> list[str]:
    """What NCCL_DEBUG=INFO prints about the variables it read."""
    if env.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE"):
        return []
    where = f"{os.uname().nodename}:{os.getpid()}:{os.getpid()} [{rank}] NCCL INFO"
    names = sorted(n for n in env if n.startswith("NCCL_") and n != "NCCL_DEBUG")
    return [f"{where} {name} set by environment to {env[name]}." for name in names]


def _number(env: Mapping[str, str], name: str, otherwise: int) -> int:
    """NCCL ignores what it cannot read as a number."""
    text = env.get(name, "").strip()
    return int(text) if text.isdecimal() and int(text) > 0 else otherwise
