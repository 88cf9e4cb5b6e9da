"""Live progress on a terminal, with rich. Imported only there."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from orchestrator.cli.output import printable


class LiveNarrator:
    """One line that moves: host, experiment, phase and its seconds. Phases that took noticeable time stay above it."""

    KEPT_FROM_S = 0.5

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._label = ""

    def phase(self, host: str, name: str, detail: str) -> None:
        self._label = detail or self._label
        text = f"[bold]{_safe(host)}[/] {_safe(name)} [dim]{_safe(self._label)}[/]"
        if self._progress is None:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._progress.start()
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(text, total=None)

    def phase_done(self, host: str, name: str, seconds: float, result: str) -> None:
        if seconds >= self.KEPT_FROM_S or result not in ("", "ok"):
            self._print(f"[dim]{_safe(host)}[/] {_safe(name)} {_safe(result)} [dim]{seconds:.1f} s[/]")
        if self._progress is not None:
            self._progress.stop()
            self._progress, self._task = None, None

    def server_phase(self, host: str, name: str) -> None:
        if self._progress is not None and self._task is not None:
            text = f"[bold]{_safe(host)}[/] server: {_safe(name)} [dim]{_safe(self._label)}[/]"
            self._progress.update(self._task, description=text)

    def note(self, text: str) -> None:
        self._print(_safe(text))

    def warn(self, text: str) -> None:
        self._print(f"[yellow]warning:[/] {_safe(text)}")

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)


def _safe(text: str) -> str:
    return escape(printable(text))
