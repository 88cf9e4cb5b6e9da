"""What a run tells whoever watches it. Faces implement `Narrator`; the run never prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from orchestrator.core.ports import Clock

Owner = Literal["ours", "server"]


class Narrator(Protocol):
    """Called from the run's thread; must not block."""

    def phase(self, host: str, name: str, detail: str) -> None:
        """A phase begins."""
        ...

    def phase_done(self, host: str, name: str, seconds: float, result: str) -> None: ...

    def server_phase(self, host: str, name: str) -> None:
        """The server's log says that it reached a phase of its own, such as `weights`."""
        ...

    def note(self, text: str) -> None:
        """One sentence worth keeping on the screen."""
        ...

    def warn(self, text: str) -> None: ...


class Silent:
    """Says nothing; for callers that only want the result."""

    def phase(self, host: str, name: str, detail: str) -> None: ...

    def phase_done(self, host: str, name: str, seconds: float, result: str) -> None: ...

    def server_phase(self, host: str, name: str) -> None: ...

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...


@dataclass
class Costs:
    """Seconds by phase, apart for the controller's own work and for the server's.

    The server's: start, gate, measurement, stop. All else is what the controller adds.
    """

    clock: Clock
    ours: dict[str, float] = field(default_factory=dict)
    server: dict[str, float] = field(default_factory=dict)
    launches: int = 0

    @contextmanager
    def timed(self, phase: str, owner: Owner = "ours") -> Iterator[None]:
        start = self.clock.monotonic()
        try:
            yield
        finally:
            self.add(phase, self.clock.monotonic() - start, owner)

    def add(self, phase: str, seconds: float, owner: Owner = "ours") -> None:
        book = self.ours if owner == "ours" else self.server
        book[phase] = book.get(phase, 0.0) + seconds

    def move_to_server(self, phase: str, seconds: float) -> None:
        """Part of a timed phase turned out to be the server's."""
        self.ours[phase] = self.ours.get(phase, 0.0) - seconds
        self.server[phase] = self.server.get(phase, 0.0) + seconds

    @property
    def ours_s(self) -> float:
        return sum(self.ours.values())

    @property
    def server_s(self) -> float:
        return sum(self.server.values())
