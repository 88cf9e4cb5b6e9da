"""Words and little pictures of the dashboard, as text: what a colour says, a word or a sign says too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from rich.cells import cell_len, set_cell_size

from orchestrator.report.text import plain

STYLES: Mapping[str, str] = {
    "improved": "bold green", "regressed": "red", "no_effect": "cyan", "inconclusive": "yellow", "crashed": "bold red",
    "hung": "bold red", "wrong_output": "bold red", "not_effective": "yellow", "not_applicable": "dim",
    "invalid": "yellow", "aborted": "yellow", "running": "bold", "open": "", "done": "dim", "skipped": "dim",
    "clean": "green", "kept": "cyan", "busy": "bold cyan", "QUARANTINED": "bold reverse red", "cut off": "bold yellow",
    "phase": "bold cyan", "warn": "bold yellow", "note": "cyan", "add": "green", "del": "red", "head": "bold",
    "failed": "bold red", "refused": "bold red", "pending": "yellow",
}  # fmt: skip
"""Mark → style. Every mark is also a word on the screen."""


def clean(text: str) -> str:
    """One line that no terminal acts on."""
    return text if text.isprintable() else plain(text)


def fit(text: str, width: int, align: str = "left") -> str:
    """Exactly `width` cells; what does not fit ends in `…`."""
    if width <= 0:
        return ""
    missing = width - cell_len(text)
    if missing < 0:
        return set_cell_size(text, width - 1) + "…"
    return " " * missing + text if align == "right" else text + " " * missing


def duration(seconds: float | None) -> str:
    """`0.4 s`, `12 s`, `1m05s`, `2h07m`, `3d04h`; unknown is a dash."""
    if seconds is None:
        return "–"
    whole = max(int(seconds), 0)
    if whole < 10:
        return f"{max(seconds, 0.0):.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def epoch(timestamp: str) -> float:
    """Of the ledger's times."""
    return datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC).timestamp()


def clock(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%H:%M:%S")


FOREST_NOTE = "│ is no effect, ● the effect, ├─┤ its interval"


def scale_of(bounds: Iterable[float]) -> float:
    """How far the forest plot reaches to both sides: the widest interval, at most 100 %."""
    return min(max((abs(bound) for bound in bounds), default=0.1), 1.0) or 0.1


def forest(low: float | None, effect: float | None, high: float | None, scale: float, width: int = 17) -> str:
    """`   │ ├──●──┤   `: the interval, its centre, and where zero is. What lies outside has an arrow."""
    middle = width // 2
    cells = [" "] * width
    cells[middle] = "│"
    if effect is None:
        return "".join(cells)

    def place(value: float) -> int:
        return min(max(round(middle + value / scale * middle), 0), width - 1)

    left, right = place(effect if low is None else low), place(effect if high is None else high)
    for index in range(left, right + 1):
        cells[index] = "┼" if index == middle else "─"
    if low is not None and high is not None:
        cells[left] = "‹" if low < -scale * 1.001 else "├"
        cells[right] = "›" if high > scale * 1.001 else "┤"
    cells[place(effect)] = "●"
    return "".join(cells)


def card(index: str, used_mib: int, total_mib: int | None, width: int) -> str:
    """`0 ███▌··· 71G` of a GPU, as wide as there is room."""
    label = f" {used_mib / 1024:.0f}G"
    room = width - len(index) - len(label) - 1
    if total_mib is None or room < 2:
        return f"{index}{label}"
    filled = round(min(used_mib / total_mib, 1.0) * room)
    return f"{index} {'█' * filled}{'·' * (room - filled)}{label}"


def cards(memory: Mapping[str, tuple[int, int | None]], width: int) -> list[str]:
    """Lines of cards, all of them."""
    if not memory:
        return []
    each = max(min((width + 1) // max(len(memory), 1) - 1, 24), 8)
    a_line = max((width + 1) // (each + 1), 1)
    shown = [card(index, used, total, each).ljust(each) for index, (used, total) in memory.items()]
    return [" ".join(shown[i : i + a_line]) for i in range(0, len(shown), a_line)]
