"""Which links join the GPUs of a target, and whether a hypothesis can do with them. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence


def kinds_between(links: Sequence[Sequence[str]], gpus: Sequence[int] | None) -> list[str]:
    """Kinds of link between any two of these cards (None: all), such as `NODE`, `SYS`, `NV18`, sorted. `links[i][j]` as
    `nvidia-smi topo -m` shows it."""
    mine = range(len(links)) if gpus is None else [index for index in gpus if index < len(links)]
    return sorted({links[i][j] for i in mine for j in mine if i != j and j < len(links[i])} - {"X", ""})


def unmet_links(wanted: Sequence[str], found: Sequence[str]) -> str | None:
    """Why the links do not do, or None. Every kind found must match one of the patterns, such as `NV*`."""
    if not wanted:
        return None
    asked = " or ".join(wanted)
    if not found:
        return f"no link between GPUs was seen, and {asked} is required"
    others = [kind for kind in found if not any(fnmatch.fnmatchcase(kind, pattern) for pattern in wanted)]
    return f"GPUs are joined by {', '.join(others)}, and {asked} is required" if others else None
