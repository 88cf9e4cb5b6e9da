"""A list or log with its title."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Static

from orchestrator.tui.words import fit

PANES = ("run", "todo", "findings", "diff", "commands")
"""In the order of their keys, 1 to 5."""


class Pane(Vertical):
    """A title and what it is the title of."""

    def __init__(self, name: str, body: Widget) -> None:
        super().__init__(id=f"pane-{name}", classes="pane")
        self.pane = name
        self.body = body
        self.remark = ""
        self._title = Text()

    def compose(self) -> ComposeResult:
        yield Static(id=f"title-{self.pane}", classes="title")
        yield self.body

    def on_mount(self) -> None:
        self.retitle()

    def retitle(self) -> None:
        """The focused pane is told by a sign as well as by its style."""
        has_focus = self.body.has_focus
        text = f"{'▶' if has_focus else '─'} {PANES.index(self.pane) + 1} {self.pane}"
        rest = f" ── {self.remark} " if self.remark else " "
        title = Text(fit(text + rest, max(self.size.width, 1)).replace("  ", "──"), no_wrap=True)
        title.stylize("bold reverse" if has_focus else "bold", 0, len(text))
        if title != self._title or title.spans != self._title.spans:
            self._title = title
            self.query_one(f"#title-{self.pane}", Static).update(title, layout=False)

    def on_descendant_focus(self) -> None:
        self.retitle()

    def on_descendant_blur(self) -> None:
        self.retitle()

    def on_resize(self) -> None:
        self.retitle()
