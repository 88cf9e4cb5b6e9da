"""Keys that every list of lines has: they call its `move`, `page` and `edge`."""

from __future__ import annotations

from textual.binding import Binding, BindingType

MOVES: tuple[BindingType, ...] = (
    Binding("up,k", "move(-1)", "up", show=False),
    Binding("down,j", "move(1)", "down", show=False),
    Binding("pageup", "page(-1)", "page up", show=False),
    Binding("pagedown,space", "page(1)", "page down", show=False),
    Binding("home,g", "edge(0)", "first", show=False),
    Binding("end,G", "edge(1)", "last", show=False),
)
