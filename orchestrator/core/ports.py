"""What edges are given: a host that acts for them, and a clock. Protocols only.

`HostPort` is a host seen through its agent; requests, replies and events are those of docs/protocol.md. `serving`
knows engines and asks a `HostPort`; `hosts` implements it and knows no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

Json = Mapping[str, Any]


class HostPort(Protocol):
    """One open connection to the agent of one host."""

    def call(self, do: str, with_: Json | None = None, *, timeout_s: float = 60.0) -> dict[str, Any]:
        """One request and its reply. Raises the `OrchestratorError` the agent names, `Unreachable` on a dead
        connection or when no reply came in time."""
        ...

    def on_event(self, listener: Callable[[str, Json], None]) -> Callable[[], None]:
        """Have `listener(event, data)` called from the reader thread; the result unsubscribes."""
        ...


class Clock(Protocol):
    """Time, passed in. Tests own theirs."""

    def now(self) -> float:
        """Seconds since the epoch (UTC)."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...
