"""The ledger: one SQLite file that remembers what was intended, done and learned. See docs/ledger.md.

Importing this package is cheap; the database libraries load in `open_ledger`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.ports import Clock

if TYPE_CHECKING:
    from orchestrator.ledger.artifacts import Retention as Retention
    from orchestrator.ledger.store import Ledger as Ledger

__all__ = ["Ledger", "Retention", "open_ledger"]


def open_ledger(
    state_dir: Path,
    *,
    clock: Clock,
    create: bool = True,
    mask: Callable[[Any], Any] = lambda value: value,
) -> Ledger:
    """The ledger of a state directory, brought to the present schema. `mask` takes secrets out of everything written.

    `UsageError`: no ledger there and `create` is false, or the file is something else. `Refused`: a newer schema, a
    damaged file, or a disk that does not let us write. `Busy`: another process keeps writing.
    """
    from orchestrator.ledger.store import Ledger

    return Ledger(state_dir, clock, mask, create=create)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the classes of `__all__`
    if name == "Ledger":
        from orchestrator.ledger.store import Ledger

        return Ledger
    if name == "Retention":
        from orchestrator.ledger.artifacts import Retention

        return Retention
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
