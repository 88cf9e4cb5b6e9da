"""One table of everything that can be done: it feeds keys, help and command palette."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.requests import ACTIONS


@dataclass(frozen=True)
class Deed:
    """`call` is the action of the application that a key, the palette or a click starts."""

    area: str
    verb: str
    key: str
    call: str
    does: str
    changes: bool = False

    @property
    def title(self) -> str:
        return f"{self.area}: {self.verb}"


LOOKING: tuple[Deed, ...] = (
    Deed("view", "run", "1", "pane('run')", "the server's log and the run's phases; again or 0: all panes"),
    Deed("view", "todo", "2", "pane('todo')", "what is to be tried, best first, and why"),
    Deed("view", "findings", "3", "pane('findings')", "what was learned, newest first"),
    Deed("view", "diff", "4", "pane('diff')", "files: found, patched, reverted"),
    Deed("view", "commands", "5", "pane('commands')", "what was done on hosts, and asked"),
    Deed("view", "all panes", "0", "pane('')", "back to the first screen (Esc too)"),
    Deed("view", "hosts", "h", "hosts", "a host's GPUs, who holds them, and why each would be ended"),
    Deed("view", "families and dead ends", "d", "families", "what is closed, and what would reopen it"),
    Deed("view", "next run's log", "w", "next_run", "where several hosts are at work"),
    Deed("log", "follow", "f", "follow", "stay at the end of the log, or stop doing so"),
    Deed("list", "filter", "/", "filter", "lines and rows that hold these words; empty shows all"),
    Deed("copy", "command line", "y", "copy", "the command line that does or shows the same"),
    Deed("help", "keys", "question_mark", "keys", "this screen"),
    Deed("help", "command palette", "colon", "command_palette", "every action by name (Ctrl-P too)"),
    Deed("app", "quit", "q", "quit", "close the dashboard; what runs goes on"),
)
ASKING: tuple[Deed, ...] = tuple(
    Deed(a.area, a.verb, a.key, f"ask('{a.name}')", a.does.format(host="the host", hypothesis="The chosen hypothesis"),
         changes=True)
    for a in ACTIONS
)  # fmt: skip
DEEDS = LOOKING + ASKING
SHOWN_KEYS = {"question_mark": "?", "colon": ":"}


def key_name(key: str) -> str:
    return SHOWN_KEYS.get(key, key)
