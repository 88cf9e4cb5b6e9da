"""Rows of text of any number: only what is seen is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from orchestrator.tui.keys import MOVES
from orchestrator.tui.words import STYLES, fit

LOOKED_AT = 300
"""Rows from which the widths of columns are taken."""


@dataclass(frozen=True)
class Column:
    """`order`: columns with a higher one are left out first where there is no room. `is_flexible`: takes what is left
    over, and gives way first, down to `least`."""

    head: str
    order: int = 0
    align: str = "left"
    most: int = 40
    least: int = 14
    is_flexible: bool = False


@dataclass(frozen=True)
class Line:
    """`key` names it for those who act on it; `mark` is what a colour would tell, and stands in a cell as a word."""

    key: str
    cells: tuple[str, ...]
    mark: str = ""


def fit_columns(columns: Sequence[Column], lines: Sequence[Line], width: int) -> list[tuple[int, int]]:
    """(column, cells) of what is shown, in order, one cell between two of them."""
    wanted = [
        min(max([cell_len(c.head), *(cell_len(line.cells[i]) for line in lines[:LOOKED_AT])]), c.most)
        for i, c in enumerate(columns)
    ]
    least = [min(w, c.least) if c.is_flexible else w for w, c in zip(wanted, columns, strict=True)]
    shown = list(range(len(columns)))
    while len(shown) > 1 and sum(least[i] for i in shown) + len(shown) - 1 > width:
        shown.remove(max(shown, key=lambda i: (columns[i].order, i)))
    spare = width - sum(least[i] for i in shown) - (len(shown) - 1)
    sizes = {i: least[i] for i in shown}
    for i in sorted((i for i in shown if columns[i].is_flexible), key=lambda i: columns[i].order):
        more = min(spare, max(wanted[i] - least[i], 0))
        sizes[i] += more
        spare -= more
    return [(i, max(min(sizes[i], width), 0)) for i in shown]


class Rows(ScrollView, can_focus=True):
    """A list with a cursor. Posts `Chosen` on Enter or a click on the row under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *MOVES,
        Binding("enter", "choose", "details", show=False),
    ]
    DEFAULT_CSS = "Rows { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }"

    class Chosen(Message):
        def __init__(self, rows: Rows, line: Line) -> None:
            super().__init__()
            self.rows = rows
            self.line = line

    def __init__(self, columns: Sequence[Column], *, empty: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self.columns = tuple(columns)
        self.lines: Sequence[Line] = ()
        self.cursor = 0
        self._empty = empty
        self._base = Style()
        self._layout_of: list[tuple[int, int]] = []

    @property
    def chosen(self) -> Line | None:
        return self.lines[self.cursor] if 0 <= self.cursor < len(self.lines) else None

    def show(self, lines: Sequence[Line], columns: Sequence[Column] | None = None) -> None:
        """The cursor stays on the row of the same key; a cursor at the top stays there."""
        known = self.chosen.key if self.chosen is not None and self.cursor > 0 else None
        self.lines = lines
        if columns is not None:
            self.columns = tuple(columns)
        self.cursor = next((i for i, line in enumerate(lines) if line.key == known), 0) if known is not None else 0
        self._lay_out()

    def on_resize(self) -> None:
        self._lay_out()

    def _lay_out(self) -> None:
        width = self.size.width - 2  # the cursor's sign, the scroll bar
        self._layout_of = fit_columns(self.columns, self.lines, width) if width > 0 else []
        self.virtual_size = Size(self.size.width, len(self.lines) + 1)
        self.refresh()

    # ---------------------------------------------------------------- drawing

    def render_lines(self, crop: Region) -> list[Strip]:
        self._base = self.rich_style  # walks all ancestors: once a drawing, not once a line
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        if y == 0:  # the head stays
            text = " " + self._join(tuple(c.head for c in self.columns))
            return self._strip(text, Style(bold=True, dim=True))
        index = self.scroll_offset.y + y - 1
        if not self.lines and y == 1:
            return self._strip(" " + self._empty, Style(dim=True))
        if index >= len(self.lines):
            return self._strip("", Style())
        line = self.lines[index]
        style = Style.parse(STYLES.get(line.mark, ""))
        is_chosen = index == self.cursor
        if is_chosen and self.has_focus:
            style += Style(reverse=True)
        return self._strip(("▸" if is_chosen else " ") + self._join(line.cells), style)

    def _join(self, cells: tuple[str, ...]) -> str:
        return " ".join(fit(cells[i], size, self.columns[i].align) for i, size in self._layout_of)

    def _strip(self, text: str, style: Style) -> Strip:
        width = self.size.width
        return Strip([Segment(fit(text, width), self._base + style)], width)

    # ---------------------------------------------------------------- moving

    def action_move(self, by: int) -> None:
        self._go(self.cursor + by)

    def action_page(self, by: int) -> None:
        self._go(self.cursor + by * max(self.size.height - 2, 1))

    def action_edge(self, last: int) -> None:
        self._go(len(self.lines) - 1 if last else 0)

    def action_choose(self) -> None:
        if self.chosen is not None:
            self.post_message(self.Chosen(self, self.chosen))

    def _go(self, index: int) -> None:
        self.cursor = min(max(index, 0), max(len(self.lines) - 1, 0))
        self.scroll_to_region(Region(0, self.cursor, 1, 2), animate=False, force=True)
        self.refresh()

    def on_click(self, event: object) -> None:
        y = int(getattr(event, "y", 0))
        index = self.scroll_offset.y + y - 1
        if y <= 0 or index >= len(self.lines):
            return
        if index == self.cursor and self.has_focus:
            self.action_choose()
        self._go(index)

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()
