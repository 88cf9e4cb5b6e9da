"""The log of a server while it is written, with the phases of the run marked in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from orchestrator.ledger.live import LiveLine
from orchestrator.tui.keys import MOVES
from orchestrator.tui.words import STYLES, clean, clock, fit

MOST_LINES = 20_000
SPARE_LINES = 2_000
"""Kept beyond that, so that old lines are given up seldom."""
Marked = tuple[str, str]
"""A line and its mark: `phase`, `warn`, `note`, or none."""


def marked(line: LiveLine) -> Marked | None:
    """How a line of the live file is shown; None for what stands elsewhere."""
    if line.kind == "log":
        return line.text, ""
    if line.kind == "phase":
        name, _, detail = line.text.partition("\t")
        return f"══ {name} {clock(line.at)} ══ {detail}".rstrip(), "phase"
    if line.kind == "done":
        name, seconds, result = (*line.text.split("\t"), "", "", "")[:3]
        return None if result == "ok" else (f"══ {name} ended after {seconds} s: {result}", "warn")
    if line.kind == "server":
        return f"── the server is at {line.text} ──", "phase"
    if line.kind == "warn":
        return f"!! {line.text}", "warn"
    return (f">> {line.text}", "note") if line.kind in ("note", "state") else None


class LogView(ScrollView, can_focus=True):
    """Follows the end unless told otherwise; a filter shows the lines that hold its words."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *MOVES,
        Binding("enter", "read", "read in full", show=False),
    ]
    DEFAULT_CSS = "LogView { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }"

    class Wanted(Message):
        """The log is to be read with its long lines in full."""

    def __init__(self, *, empty: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self._all: list[Marked] = []
        self._shown: list[Marked] = []
        self._empty = empty
        self._base = Style()
        self.filter = ""
        self.is_following = True

    @property
    def shown(self) -> Sequence[Marked]:
        return self._shown

    def clear(self) -> None:
        self._all.clear()
        self._shown.clear()
        self._paint()

    def add(self, lines: Iterable[Marked]) -> None:
        """One drawing, however many lines."""
        new = list(lines)
        self._all += new
        self._shown += [line for line in new if self._passes(line)]
        gone = self.give_up_oldest()
        if gone and not self.is_following:  # what is being read stays in sight
            self.scroll_to(y=max(self.scroll_offset.y - gone, 0), animate=False, immediate=True)
        if new:
            self._paint()

    def give_up_oldest(self) -> int:
        """How many of the lines shown went, so that no more than `MOST_LINES` stay by much."""
        if len(self._all) > MOST_LINES + SPARE_LINES:
            del self._all[:-MOST_LINES]
        surplus = len(self._shown) - MOST_LINES
        if surplus <= SPARE_LINES:
            return 0
        del self._shown[:surplus]
        return surplus

    def set_filter(self, words: str) -> None:
        self.filter = words
        self._shown = [line for line in self._all if self._passes(line)]
        self._paint()

    def _passes(self, line: Marked) -> bool:
        return not self.filter or self.filter.lower() in line[0].lower()

    def _paint(self) -> None:
        self.virtual_size = Size(self.size.width, len(self._shown))
        if self.is_following:
            self.call_after_refresh(self._to_end)
        self.refresh()

    def _to_end(self) -> None:
        """The scroll bar after what is drawn already."""
        if self.is_following:
            self.scroll_to(y=self._end, animate=False, immediate=True)

    @property
    def _top(self) -> int:
        return self._end if self.is_following else self.scroll_offset.y

    @property
    def _end(self) -> int:
        return max(len(self._shown) - self.size.height, 0)

    def on_resize(self) -> None:
        self._paint()

    def follow(self, on: bool) -> None:
        self.is_following = on
        self._paint()

    def action_read(self) -> None:
        self.post_message(self.Wanted())

    def action_move(self, by: int) -> None:
        self._go(self._top + by)

    def action_page(self, by: int) -> None:
        self._go(self._top + by * max(self.size.height - 1, 1))

    def action_edge(self, last: int) -> None:
        self._go(len(self._shown) if last else 0)

    def _go(self, y: int) -> None:
        """Who scrolls back wants to read; who comes to the end follows again."""
        self.is_following = y >= self._end
        self.scroll_to(y=min(max(y, 0), self._end), animate=False, immediate=True)
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        self._base = self.rich_style  # walks all ancestors: once a drawing, not once a line
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        index = self._top + y
        if index < len(self._shown):
            return self._strip(self._shown[index])
        return self._strip((self._empty, "done") if y == 0 and not self._shown else ("", ""))

    def _strip(self, line: Marked) -> Strip:
        text, mark = line
        width = self.size.width
        style = self._base + Style.parse(STYLES.get(mark, ""))
        return Strip([Segment(fit(clean(text), width), style)], width)
