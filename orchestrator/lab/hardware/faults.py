"""Failures on request: `faults.json` beside `lab.json`, or the variable LAB_FAULT, read at every launch.

`faults.json` is a list of `{"kind": KIND, …}`. Keys beside `kind`:

    launches   numbers of the launches to hit, counted from 1 over the life of the lab; absent: every launch
    rank       the rank that fails (default 0)
    after      tokens the launch decodes before it happens: crash_mid_benchmark, a hang in `serve` (default 40)
    phase      where it hangs: init, load, capture, warmup or serve
    seconds    how long /health lies (early_healthy), or how long the orphan lives

LAB_FAULT=KIND, KIND:PHASE or KIND:NUMBER stands for one such entry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

KINDS = ("crash_at_load", "crash_mid_benchmark", "hang", "early_healthy", "orphan", "ignore_sigterm")
PHASES = ("init", "load", "capture", "warmup", "serve")
SECONDS = {"early_healthy": 0.5, "orphan": 120.0}


@dataclass(frozen=True)
class Fault:
    """One failure a launch is to have."""

    kind: str
    launches: tuple[int, ...] = ()
    rank: int = 0
    after: int = 40
    phase: str = "load"
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"fault {self.kind!r} is none of {', '.join(KINDS)}")
        if self.phase not in PHASES:
            raise ValueError(f"phase {self.phase!r} is none of {', '.join(PHASES)}")


@dataclass(frozen=True)
class Faults:
    """What this launch is to suffer."""

    entries: tuple[Fault, ...] = ()

    def of(self, kind: str) -> Fault | None:
        return next((f for f in self.entries if f.kind == kind), None)

    def hangs_in(self, phase: str) -> Fault | None:
        return next((f for f in self.entries if f.kind == "hang" and f.phase == phase), None)


def read_faults(path: Path, env: Mapping[str, str], launch: int) -> Faults:
    """The faults that launch number `launch` meets. Raises ValueError for an entry nobody knows."""
    entries = [parse_entry(e) for e in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []
    if env.get("LAB_FAULT"):
        entries.append(parse_text(env["LAB_FAULT"]))
    return Faults(tuple(f for f in entries if not f.launches or launch in f.launches))


def parse_entry(written: Mapping[str, Any]) -> Fault:
    """One object of `faults.json`."""
    known = {f.name for f in fields(Fault)}
    if unknown := set(written) - known:
        raise ValueError(f"a fault has no {', '.join(sorted(unknown))}; it knows {', '.join(sorted(known))}")
    values = dict(written)
    values["launches"] = tuple(values.get("launches", ()))
    values.setdefault("seconds", SECONDS.get(values.get("kind", ""), 0.0))
    return Fault(**values)


def parse_text(text: str) -> Fault:
    """`hang:capture`, `crash_mid_benchmark:30`, `orphan`."""
    kind, _, detail = text.partition(":")
    if not detail:
        return parse_entry({"kind": kind})
    if detail.isdecimal():
        key = "after" if kind in ("crash_mid_benchmark", "hang") else "seconds"
        return parse_entry({"kind": kind, key: int(detail)})
    return parse_entry({"kind": kind, "phase": detail})
