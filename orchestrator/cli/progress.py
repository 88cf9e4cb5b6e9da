"""Live progress on a terminal, with rich. Imported only there."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from orchestrator.cli.output import printable


class LiveNarrator:
    """A spinner with the phase that runs now; phases that took noticeable time stay as lines above it."""

    KEPT_FROM_S = 0.5

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._status: Status | None = None

    def phase(self, host: str, name: str, detail: str) -> None:
        text = f"[bold]{_safe(host)}[/] {_safe(name)} [dim]{_safe(detail)}[/]"
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def phase_done(self, host: str, name: str, seconds: float, result: str) -> None:
        if seconds >= self.KEPT_FROM_S or result not in ("", "ok"):
            line = f"[dim]{_safe(host)}[/] {_safe(name)} {_safe(result)} [dim]{seconds:.1f} s[/]"
            self._console.print(line)
        self._stop()

    def server_phase(self, host: str, name: str) -> None:
        self.phase(host, "server", name)

    def note(self, text: str) -> None:
        self._console.print(_safe(text))

    def warn(self, text: str) -> None:
        self._console.print(f"[yellow]warning:[/] {_safe(text)}")

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def _safe(text: str) -> str:
    return escape(printable(text))
