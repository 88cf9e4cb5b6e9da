"""Watches over a measurement: a server that has given no token for the stall time hangs, whatever its processor does
(ranks that wait for one another spin)."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Dict, Optional, Protocol, Type

from orchestrator.agent import stacks
from orchestrator.agent.server import Server


class Measurement(Protocol):
    """What is watched: it hears from the server, and can be ended."""

    @property
    def silent_s(self) -> float: ...

    def stop(self, why: str) -> None: ...


class Vigil:
    """From `with` to its end. `hung` is None, or says for how long nothing came and where the processes stood; the
    probe is stopped then. Without `stall_s` nothing is watched."""

    def __init__(self, server: Server, probe: Measurement, stall_s: Optional[float]) -> None:
        self._server, self._probe = server, probe
        self._stall_s = float(stall_s) if stall_s else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="vigil", daemon=True)
        self.hung: Optional[Dict[str, Any]] = None

    def __enter__(self) -> Vigil:
        if self._stall_s is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._over.set()
        if self._stall_s is not None:
            self._thread.join()

    def _watch(self) -> None:
        assert self._stall_s is not None
        while not self._over.wait(min(1.0, self._stall_s / 4)):
            silent_s = self._probe.silent_s
            if silent_s >= self._stall_s and self._server.end is None:
                self.hung = {"stalled_s": round(silent_s, 3), **stacks.collect(self._server)}
                self._probe.stop(f"nothing came for {silent_s:.0f} s")
                return
