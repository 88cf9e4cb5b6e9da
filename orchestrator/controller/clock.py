"""The machine's clock, for everything that is given one."""

from __future__ import annotations

import time


class SystemClock:
    """Implements `core.ports.Clock`."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()
