"""Clocks, power and memory of the GPUs while a server was measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

_FIELDS = ("index", "clocks.sm", "power.draw", "power.limit", "utilization.gpu", "memory.used")
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_BITS: Mapping[int, str] = {
    0x4: "SwPowerCap",
    0x8: "HwSlowdown",
    0x10: "SyncBoost",
    0x20: "SwThermalSlowdown",
    0x40: "HwThermalSlowdown",
    0x80: "HwPowerBrakeSlowdown",
}
"""Reasons for lower clocks that are no choice of ours: not idle, and not clocks that somebody set."""


@dataclass(frozen=True)
class GpuSeries:
    """One value a look: mean clock and utilisation (0 to 1) of the target's GPUs, their power together, in W.
    `memory_mib`: the most that one of them held. Empty where the tool did not tell."""

    sm_clocks_mhz: tuple[float, ...] = ()
    power_w: tuple[float, ...] = ()
    utilisation: tuple[float, ...] = ()
    power_limit_w: float | None = None
    memory_mib: float | None = None
    reasons: tuple[str, ...] = ()


def watch_argvs(tool: str) -> list[list[str]]:
    """The question, and what is asked where a driver does not know all of it."""
    rest = ["--format=csv,noheader,nounits"]
    questions = [(*_FIELDS, reason) for reason in _REASONS] + [_FIELDS]
    return [[tool, f"--query-gpu={','.join(fields)}", *rest] for fields in questions]


def read_gpus(looks: Sequence[Mapping[str, Any]], gpus: Sequence[int] | None) -> GpuSeries:
    """`gpus` of the agent's `Observed`. `gpus`: indices of the target's; None: all. Looks at idle cards do not count
    where others found them busy: their clocks are those of another state."""
    tables = [table for look in looks if (table := _table(str(look.get("stdout", "")), gpus))]
    busy = [table for table in tables if any((row[4] or 0) > 0 for row in table)]
    used = busy or tables
    if not used:
        return GpuSeries()
    limits = [row[3] for row in used[-1] if row[3] is not None]
    memory = [row[5] for table in tables for row in table if row[5] is not None]
    reasons = {word for table in used for row in table for word in _words(row[6])}
    return GpuSeries(
        sm_clocks_mhz=_over(used, 1, fmean),
        power_w=_over(used, 2, sum),
        utilisation=tuple(value / 100 for value in _over(used, 4, fmean)),
        power_limit_w=sum(limits) if limits else None,
        memory_mib=max(memory, default=None),
        reasons=tuple(sorted(reasons)),
    )


Row = tuple[float | None, float | None, float | None, float | None, float | None, float | None, float | None]


def _table(text: str, gpus: Sequence[int] | None) -> list[Row]:
    rows = [_row(line) for line in text.splitlines() if line.count(",") >= len(_FIELDS) - 1]
    return [row for row in rows if row[0] is not None and (gpus is None or int(row[0]) in gpus)]


def _row(line: str) -> Row:
    cells = [_number(cell.strip()) for cell in line.split(",")]
    a, b, c, d, e, f, g = [*cells, None, None][:7]
    return a, b, c, d, e, f, g


def _number(cell: str) -> float | None:
    """`[N/A]`, `[Not Supported]` and the like are None; reasons are hexadecimal."""
    try:
        return float(int(cell, 16)) if cell.startswith("0x") else float(cell)
    except ValueError:
        return None


def _over(tables: Sequence[Sequence[Row]], column: int, fold: Any) -> tuple[float, ...]:  # noqa: ANN401 - fmean or sum
    values = [[row[column] for row in table if row[column] is not None] for table in tables]
    return tuple(float(fold(cells)) for cells in values if cells)


def _words(mask: float | None) -> list[str]:
    return [word for bit, word in _BITS.items() if mask is not None and int(mask) & bit]
