"""What the GPUs of a host hold when nobody uses them: the lowest ever seen, kept in the ledger from visit to visit.

The level at which we happen to come is no measure: somebody may have been there already. A level belongs to a card and
a driver, since another driver reserves another amount.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.hosts.facts import Gpu
    from orchestrator.ledger import Ledger

PHASE = "idle_memory"
SLACK_MIB = 256
"""What contexts of displays and monitoring come and go with."""


class IdleMemory:
    """Levels in MiB. `save` is called with all of them whenever one is new or lower."""

    def __init__(
        self, recorded: Mapping[str, int] | None = None, save: Callable[[Mapping[str, int]], None] = lambda _: None
    ) -> None:
        self._levels = dict(recorded or {})
        self._save = save
        self._keys: dict[int, str] = {}

    def learn(self, gpus: Sequence[Gpu], driver: str | None) -> None:
        """The cards of the host, and what they hold just now."""
        self._keys = {g.index: f"{g.uuid or g.index} {driver or '?'}" for g in gpus}
        self.observe({g.index: g.memory_used_mib for g in gpus if g.memory_used_mib is not None})

    def observe(self, used_mib: Mapping[int, int]) -> None:
        seen = {self._keys[index]: used for index, used in used_mib.items() if index in self._keys}
        lower = {key: used for key, used in seen.items() if self._is_new(key, used)}
        if lower:
            self._levels.update(lower)
            self._save(self._levels)

    def _is_new(self, key: str, used_mib: int) -> bool:
        known = self._levels.get(key)
        return known is None or used_mib < known

    def level(self, index: int) -> int | None:
        """None for a card that was never seen."""
        return self._levels.get(self._keys.get(index, ""))

    def above(self, used_mib: Mapping[int, int], mine: Sequence[int] | None) -> dict[int, int]:
        """Card → MiB above its level, for those of `mine` (None: all) that hold more than the slack above it."""
        surplus = {i: used - level for i, used in used_mib.items() if (level := self.level(i)) is not None}
        return {i: mib for i, mib in surplus.items() if mib > SLACK_MIB and (mine is None or i in mine)}


def idle_memory_of(ledger: Ledger, host: str) -> IdleMemory:
    """As the ledger has it; what is learned goes back there."""
    recorded: dict[str, int] = {}
    after = 0
    while page := ledger.events(after=after, host=host, phase=PHASE):
        recorded.update({str(key): int(mib) for key, mib in page[-1].data["levels_mib"].items()})
        after = page[-1].seq
    return IdleMemory(recorded, lambda levels: _save(ledger, host, levels))


def _save(ledger: Ledger, host: str, levels: Mapping[str, int]) -> None:
    ledger.note(PHASE, {"levels_mib": dict(levels)}, host=host)
