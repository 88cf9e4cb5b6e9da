"""The dashboard: one screen of what runs, what is next and what was learned; the rest a key away."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Static

from orchestrator.core.requests import BY_NAME, command_line
from orchestrator.errors import OrchestratorError
from orchestrator.ledger.watching import MOST_ROWS, Watch
from orchestrator.tui import details, lines
from orchestrator.tui.actions import DEEDS
from orchestrator.tui.asking import Answer, send
from orchestrator.tui.log import LogView, Marked
from orchestrator.tui.palette import Deeds
from orchestrator.tui.pane import PANES, Pane
from orchestrator.tui.picture import HostLine, Now, Picture
from orchestrator.tui.reader import LinesRead, Live, PictureTaken, Reader, ReadFailed
from orchestrator.tui.screens import Agree, Details, FilterBox, key_lines
from orchestrator.tui.table import Rows
from orchestrator.tui.words import clean, clock, fit

READ_LINES = 3000
WIDE, TALL = 120, 36
"""Cells from which panes stand side by side, and from which all five are shown."""


class Dashboard(App[None]):
    """`now` gives epoch seconds; `ask` carries a request out and is called from a thread."""

    TITLE = "orchestrator"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = {Deeds}  # noqa: RUF012 - as textual declares it
    CSS = """
    Screen { layers: base; }
    .title, .foot, #head, #foot { height: 1; }
    #hosts { height: auto; max-height: 6; }
    #now { height: auto; max-height: 2; }
    #gpus { height: auto; max-height: 3; }
    .pane { height: 1fr; }
    #left, #right { width: 100%; height: 1fr; }
    #body { layout: vertical; height: 1fr; }
    #body.wide { layout: horizontal; }
    #body.wide #left { width: 5fr; }
    #body.wide #right { width: 6fr; }
    #body.wide #right { margin-left: 1; }
    #body #left { height: 2fr; }
    #body #right { height: 4fr; }
    #body.wide #left, #body.wide #right { height: 1fr; }
    #pane-run { height: 2fr; }
    ModalScreen { align: center middle; }
    .box { width: 76; max-width: 100%; height: auto; border: round $primary; padding: 0 1; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding("slash" if deed.key == "/" else deed.key, deed.call, deed.title, show=False) for deed in DEEDS),
        Binding("escape", "pane('')", "all panes", show=False),
    ]

    def __init__(
        self,
        state_dir: Path,
        *,
        may_write: bool = False,
        now: Callable[[], float],
        ask: Callable[[list[str]], Answer] = send,
    ) -> None:
        super().__init__()
        self._state_dir = state_dir
        self._may_write = may_write
        self._now = now
        self._ask = ask
        self.picture: Picture | None = None
        self.live: Live | None = None
        self.trouble = ""
        self._put_before: dict[str, Text] = {}
        self._zoomed = ""
        self._log_title = ""
        self._host_shown = 0
        self._reader = Reader(state_dir, self.post_message)

    # ---------------------------------------------------------------- building

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="hosts")
        yield Static(id="now")
        yield Static(id="gpus")
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield Pane("run", LogView(empty="nothing has been logged yet", id="log"))
                yield Pane("commands", Rows(lines.COMMANDS, empty="nothing was done yet", id="commands"))
            with Vertical(id="right"):
                yield Pane("todo", Rows(lines.TODO, empty="nothing is to be tried", id="todo"))
                empty = "nothing was learned yet"
                yield Pane("findings", Rows(lines.findings_columns(0.1), empty=empty, id="findings"))
                yield Pane("diff", Rows(lines.DIFF, empty="no file was changed yet", id="diff"))
        yield Static(id="foot")

    def on_mount(self) -> None:
        self._arrange()
        self._paint_top()
        self.query_one("#log").focus()
        self._reader.start()
        self.set_interval(1.0, self._paint_top)

    def on_unmount(self) -> None:
        self._reader.stop()

    def on_resize(self) -> None:
        self._arrange()
        self.call_after_refresh(self._paint_top)

    def _arrange(self) -> None:
        """Which panes are shown: the one that was asked for, else as many as there is room for."""
        body = self.base.query_one("#body")
        is_wide = self.size.width >= WIDE
        body.set_class(is_wide and not self._zoomed, "wide")
        shown = {self._zoomed} if self._zoomed else set(PANES if is_wide and self.size.height >= TALL else PANES[:3])
        with self.batch_update():
            for pane in self.base.query(Pane):
                pane.display = pane.pane in shown  # cheaper than a class, which would match all rules anew
            body.query_one("#left").display = bool(shown & {"run", "commands"})
            body.query_one("#right").display = bool(shown & {"todo", "findings", "diff"})

    @property
    def base(self) -> Widget:
        """The first screen, whatever lies over it."""
        return self.screen_stack[0]

    # ---------------------------------------------------------------- painting

    def on_picture_taken(self, message: PictureTaken) -> None:
        if not self.screen_stack:  # it is being closed
            return
        self.picture, self.trouble = message.picture, ""
        picture = message.picture
        columns, rows = lines.findings_lines(picture.findings)
        self._rows("findings").show(rows, columns)
        self._rows("todo").show(lines.todo_lines(picture.todo))
        self._rows("diff").show(lines.diff_lines(picture.changed, picture.proofs))
        self._rows("commands").show(lines.command_lines(picture.commands))
        if not picture.now:
            self.live = None
        self._paint_top()

    def on_lines_read(self, message: LinesRead) -> None:
        if not self.screen_stack:  # it is being closed
            return
        log = self.base.query_one(LogView)
        if message.is_new:
            log.clear()
        log.add(message.lines)
        self.live, self._log_title = message.live, message.title
        self._paint_top()

    def on_read_failed(self, message: ReadFailed) -> None:
        if not self.screen_stack:  # it is being closed
            return
        self.trouble = message.what
        self._paint_top()

    def _rows(self, name: str) -> Rows:
        return self.base.query_one(f"#{name}", Rows)

    def _paint_top(self) -> None:
        if not self.screen_stack:  # it is being closed
            return
        width, at = self.size.width, self._now()
        base = self.base
        mode = "may ask for changes (--write)" if self._may_write else "read-only (--write to act)"
        campaign = clean(self.picture.campaign or "no campaign yet") if self.picture else "reading …"
        text = f" orchestrator  {campaign}  {mode}  ! {clean(self.trouble)}" if self.trouble else (
            f" orchestrator  {campaign}  {mode}")  # fmt: skip
        head = Text(fit(text, width - 13) + fit(f"{clock(at)} UTC ", 13, "right"), style="reverse", no_wrap=True)
        self._put("head", head)
        self._put(
            "foot",
            Text(fit(" 1-5 panes  0 all  Enter details  / filter  f follow  y copy  h hosts  d dead ends  : palette"
                     "  ? help  q quit", width), style="dim", no_wrap=True)
        )  # fmt: skip
        picture = self.picture
        if picture is not None:
            most = 2 if self.size.height < 30 else 5
            self._put("hosts", lines.hosts_text(picture.hosts, at, width, most))
            state = self.live.state if self.live is not None else {}
            now = self._shown_run()
            self._put("now", lines.now_text(now, state, at, width))
            self._put("gpus", lines.gpu_text(self.live.memory if self.live is not None else {}, width))
            base.query_one("#gpus").display = now is not None
        self._retitle()

    def _put(self, name: str, text: Text) -> None:
        """Draw what is new; arrange the screen anew only where a line came or went."""
        before = self._put_before.get(name)
        if before == text and before.spans == text.spans:
            return
        self._put_before[name] = text
        is_other_size = before is None or before.plain.count("\n") != text.plain.count("\n")
        self.base.query_one(f"#{name}", Static).update(text, layout=is_other_size)

    def _shown_run(self) -> Now | None:
        """The run whose log is shown."""
        picture = self.picture
        if picture is None or not picture.now:
            return None
        return picture.now[self._reader.wanted % len(picture.now)]

    def _retitle(self) -> None:
        log = self.base.query_one(LogView)
        filters = self._reader.filters
        remarks = {
            "run": ", ".join(filter(None, [
                self._log_title, "following" if log.is_following else "not following (f)",
                f"filter {log.filter!r}" if log.filter else "",
            ])),
            **{name: self._count(name, getattr(filters, name)) for name in ("todo", "findings", "diff", "commands")},
        }  # fmt: skip
        for pane in self.base.query(Pane):
            if pane.remark != remarks[pane.pane]:
                pane.remark = clean(remarks[pane.pane])
                pane.retitle()

    def _count(self, name: str, words: str) -> str:
        shown = str(len(self._rows(name).lines))
        shown += " or more (/ looks through all)" if len(self._rows(name).lines) >= MOST_ROWS else ""
        return f"{shown} with {words!r}" if words else shown

    # ---------------------------------------------------------------- what keys do

    def action_pane(self, name: str) -> None:
        """That pane alone; once more, or none: all of them."""
        self._to_base()
        self._zoomed = "" if name == self._zoomed else name
        self._arrange()
        focus = name or next((p.pane for p in self.base.query(Pane) if p.body.has_focus), "run")
        self.base.query_one(f"#pane-{focus}", Pane).body.focus()
        self.call_after_refresh(self._retitle)

    def _to_base(self) -> None:
        while len(self.screen_stack) > 1:
            self.pop_screen()

    @property
    def _focused(self) -> str:
        return next((pane.pane for pane in self.base.query(Pane) if pane.body.has_focus), "run")

    def action_follow(self) -> None:
        log = self.base.query_one(LogView)
        log.follow(not log.is_following)
        self._retitle()

    def action_next_run(self) -> None:
        self._reader.wanted += 1
        self._reader.wake()

    def action_filter(self) -> None:
        name = self._focused
        log = self.base.query_one(LogView)
        words = log.filter if name == "run" else getattr(self._reader.filters, name)

        def take(said: str | None) -> None:
            if said is None:
                return
            if name == "run":
                log.set_filter(said)
            else:
                self._reader.filters = replace(self._reader.filters, **{name: said})
                self._reader.wake()
            self._retitle()

        self.push_screen(FilterBox(words, "lines" if name == "run" else name), take)

    def action_keys(self) -> None:
        command = "orchestrator tui --help"
        self.push_screen(Details("keys and signs", key_lines(may_write=self._may_write), command))

    def action_copy(self) -> None:
        command = self._command_of(self._focused)
        self.copy_to_clipboard(command)
        self.notify(clean(command), title="copied", markup=False)

    def _command_of(self, pane: str) -> str:
        """The command line that shows what the pane, or its chosen row, shows."""
        state = f"--state {shlex.quote(str(self._state_dir))}"
        line = self._rows(pane).chosen if pane != "run" else None
        if pane == "run":
            now = self._shown_run()
            shown = now.experiment.id if now is not None and now.experiment is not None else None
            return (
                f"orchestrator experiment show {shown} --log {state}"
                if shown
                else f"orchestrator experiment list {state}"
            )
        if pane == "todo":
            return f"orchestrator todo list {state}"
        if pane == "findings":
            return f"orchestrator finding show {line.key} {state}" if line else f"orchestrator finding list {state}"
        if pane == "diff" and line:
            return f"orchestrator experiment show {line.key} {state}"
        return f"orchestrator ledger export --format jsonl {state}"

    # ---------------------------------------------------------------- details

    def on_rows_chosen(self, message: Rows.Chosen) -> None:
        pane, key, picture = message.rows.id or "", message.line.key, self.picture
        if picture is None:
            return
        command = self._command_of(pane)
        if pane == "todo":
            row = next(r for r in picture.todo if r.id == key)
            self.push_screen(Details(f"todo: {row.id}", details.hypothesis(row), command))
        elif pane == "findings":
            found = next(f for f in picture.findings if str(f.id) == key)
            self._open(f"finding {key}", command, lambda watch: [
                *details.finding(found), *details.experiment(watch, found.experiment_id)])  # fmt: skip
        elif pane == "diff":
            self._open(f"diff: experiment #{key}", command, lambda watch: details.experiment(watch, int(key)))
        else:
            event = next(row for row in picture.commands if str(row["seq"]) == key)
            self.push_screen(Details(f"event {key}", details.command(event), command))

    def on_log_view_wanted(self) -> None:
        """The newest lines, with long ones in full."""
        if len(self.screen_stack) == 1:
            shown = list(self.base.query_one(LogView).shown)[-READ_LINES:]
            self.push_screen(Details(self._log_title, shown, self._command_of("run"), at_end=True))

    def action_hosts(self) -> None:
        self._to_base()
        self._show_host(0)

    def _show_host(self, by: int) -> None:
        picture = self.picture
        if picture is None or not picture.hosts:
            self.notify("no host has been used yet", markup=False)
            return
        self._host_shown = (self._host_shown + by) % len(picture.hosts)
        line = picture.hosts[self._host_shown]
        memory = self.live.memory if self.live is not None and self.live.run_id == line.run_id else {}
        command = f"orchestrator host reap {shlex.quote(line.name)} --state {shlex.quote(str(self._state_dir))}"
        title = f"host {line.name} ({self._host_shown + 1} of {len(picture.hosts)})"
        self._open(
            title, command, lambda watch: details.host(watch, line.name, memory, line.word, line.why), self._show_host
        )

    def action_families(self) -> None:
        self._to_base()
        picture = self.picture
        if picture is None or picture.campaign is None:
            self.notify("no campaign yet", markup=False)
            return
        campaign, state = picture.campaign, shlex.quote(str(self._state_dir))
        self._open("families and dead ends", f"orchestrator finding list --state {state}",
                   lambda watch: details.families(watch.todo(campaign), watch.findings(campaign)))  # fmt: skip

    @work(thread=True, exclusive=True, group="details")
    def _open(
        self,
        title: str,
        command: str,
        read: Callable[[Watch], list[Marked]],
        turn: Callable[[int], None] | None = None,
    ) -> None:
        """Read beside the event loop, then show."""
        try:
            watch = Watch(self._state_dir)
            try:
                shown = read(watch)
            finally:
                watch.close()
        except OrchestratorError as error:
            self.call_from_thread(self.notify, clean(error.what), severity="error", markup=False)
            return
        self.call_from_thread(self.push_screen, Details(title, shown, command, turn=turn))

    # ---------------------------------------------------------------- asking

    def action_ask(self, name: str) -> None:
        """Say what would be done, and ask the runner for it when `x` agrees."""
        action, line = BY_NAME[name], self._host_meant()
        if line is None:
            self.notify("no host has been used yet", markup=False)
            return
        hypothesis = self._hypothesis_meant() if name == "next" else None
        if name == "next" and hypothesis is None:
            self.notify("choose a row of the todo first (2)", markup=False)
            return
        words = command_line(name, line.name, str(self._state_dir), hypothesis)
        refusal = self._refusal(name, line)
        if refusal:
            self.notify(refusal, severity="warning", markup=False)
            return
        does = action.does.format(host=line.name, hypothesis=hypothesis or "")

        def answer(yes: bool | None) -> None:
            if yes:
                self._send(words)

        self.push_screen(Agree(action.title, does, shlex.join(words)), answer)

    def _refusal(self, name: str, line: HostLine) -> str:
        action = BY_NAME[name]
        if not self._may_write and name != "look":
            return "read-only: start with --write to ask for changes"
        if action.changes_host and not line.may_write:
            return clean(f"{line.name} is marked write: false in the inventory; that wins")
        if action.needs_run and line.run_id is None:
            return clean(f"no run lives on {line.name}")
        return ""

    def _host_meant(self) -> HostLine | None:
        """The host on the host screen, else that of the run shown, else the first."""
        picture = self.picture
        if picture is None or not picture.hosts:
            return None
        now = self._shown_run()
        if isinstance(self.screen, Details) and self.screen.is_of_host:
            return picture.hosts[self._host_shown % len(picture.hosts)]
        return next((line for line in picture.hosts if now is not None and line.name == now.run.host), picture.hosts[0])

    def _hypothesis_meant(self) -> str | None:
        chosen = self._rows("todo").chosen
        return chosen.key if chosen is not None else None

    @work(thread=True, group="asking")
    def _send(self, words: list[str]) -> None:
        self.call_from_thread(self.notify, clean(shlex.join(words)), title="asked", markup=False)
        answer = self._ask(words)
        severity = "information" if answer.is_yes else "error"
        self.call_from_thread(
            self.notify, clean(answer.text), title=words[2], severity=severity, timeout=15, markup=False
        )
