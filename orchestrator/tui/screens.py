"""Screens over the first one: details, hosts, agreement, keys, filter."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Static

from orchestrator.tui.actions import DEEDS, key_name
from orchestrator.tui.log import LogView, Marked
from orchestrator.tui.words import clean

CONFIRM_KEY = "x"
"""No action is opened with it."""


class Details(Screen[None]):
    """Lines to read, with a title; `/` filters them, `y` copies the command that shows the same."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,0", "dismiss_it", "back"),
        Binding("slash", "filter", "filter"),
        Binding("y", "copy", "copy command"),
        Binding("right", "next(1)", "next", show=False),
        Binding("left", "next(-1)", "previous", show=False),
    ]

    def __init__(
        self,
        title: str,
        lines: Sequence[Marked],
        command: str,
        *,
        turn: Callable[[int], None] | None = None,
        at_end: bool = False,
    ) -> None:
        super().__init__()
        self._title = title
        self._lines = lines
        self._command = command
        self._turn = turn
        self._at_end = at_end

    @property
    def is_of_host(self) -> bool:
        return self._turn is not None

    def compose(self) -> ComposeResult:
        turns = "  ←/→ other hosts  o look  R reap  L release  v revert" if self._turn is not None else ""
        yield Static(Text(f" {clean(self._title)}", style="bold reverse", no_wrap=True), classes="title")
        yield LogView(empty="nothing to show", id="lines")
        yield Static(Text(f" Esc back  / filter  y copy command{turns}", style="dim", no_wrap=True), classes="foot")

    def on_mount(self) -> None:
        view = self.query_one(LogView)
        view.is_following = self._at_end
        view.focus()
        self.call_after_refresh(self._fill)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        view = self.query_one(LogView)
        width = max(view.size.width - 2, 20)
        view.clear()
        view.add(wrapped for line in self._lines for wrapped in wrap(line, width))

    def action_dismiss_it(self) -> None:
        self.dismiss(None)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self._command)
        self.app.notify(clean(self._command), title="copied", markup=False)

    def action_filter(self) -> None:
        view = self.query_one(LogView)

        def take(words: str | None) -> None:
            if words is not None:
                view.set_filter(words)

        self.app.push_screen(FilterBox(view.filter, "lines"), take)

    def action_next(self, by: int) -> None:
        if self._turn is not None:
            self.dismiss(None)
            self._turn(by)


def wrap(line: Marked, width: int) -> list[Marked]:
    """Long lines go on below, further in."""
    text, mark = clean(line[0]), line[1]
    if len(text) <= width:
        return [(text, mark)]
    indent = " " * min(len(text) - len(text.lstrip()) + 2, width // 2)
    parts = textwrap.wrap(text, width, subsequent_indent=indent, drop_whitespace=False, break_long_words=True)
    return [(part, mark) for part in parts]


class FilterBox(ModalScreen["str | None"]):
    """Asks for words. Esc leaves the filter as it was, an empty answer takes it away."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "leave")]

    def __init__(self, words: str, where: str) -> None:
        super().__init__()
        self._words = words
        self._where = where

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Text(f"show {self._where} that hold:"))
            yield Input(self._words, placeholder="words; empty shows all", id="words")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss(None)


class Agree(ModalScreen[bool]):
    """Says exactly what will be done; done by `x`, a key that opens nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(CONFIRM_KEY, "answer(True)", "do it"),
        Binding("escape,q,enter", "answer(False)", "leave"),
        Binding("y", "copy", "copy"),
    ]

    def __init__(self, title: str, does: str, command: str) -> None:
        super().__init__()
        self._title = title
        self._does = does
        self._command = command

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            text = Text()
            text.append(f"{self._title}\n\n", "bold")
            text.append(f"{clean(self._does)}\n\n")
            text.append(f"$ {clean(self._command)}\n\n", "dim")
            text.append(f"{CONFIRM_KEY}", "bold reverse")
            text.append(" do it    ")
            text.append("Esc", "bold reverse")
            text.append(" leave it    ")
            text.append("y", "bold reverse")
            text.append(" copy the command")
            yield Static(text)

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self._command)
        self.app.notify(clean(self._command), title="copied", markup=False)


def key_lines(*, may_write: bool) -> list[Marked]:
    """The help screen, from the table of what can be done."""
    lines: list[Marked] = [
        ("Moving", "head"),
        ("  ↑ ↓ k j  line     PgUp PgDn  page     g G  first, last     Tab  next pane     Enter  details", ""),
    ]
    for deed in DEEDS:
        closed = " (needs --write)" if deed.changes and not may_write and deed.call != "ask('look')" else ""
        lines.append((f"  {key_name(deed.key):<4} {deed.title}{closed}", "phase" if deed.changes else ""))
        lines.append((f"         {deed.does}", "done"))
    lines += [
        ("Signs", "head"),
        ("  ✓ clean   ◆ kept   ▶ busy   ✗ QUARANTINED   ! cut off without a word", ""),
        ("  ══ a phase of the run ══   ── a phase of the server ──   !! warning   >> note", ""),
        ("  ├──●──┤ effect and interval   │ no effect   ‹ › goes on outside", ""),
    ]
    return lines
