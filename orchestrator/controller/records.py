"""What faces read: the ledger of a state directory, and exports of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from orchestrator.controller.clock import SystemClock
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.ledger import Ledger


@contextmanager
def open_records(state: Path) -> Iterator[Ledger]:
    """The ledger, for reading. Raises `UsageError` when there is none."""
    from orchestrator.ledger import open_ledger

    with open_ledger(state, clock=SystemClock(), create=False) as ledger:
        yield ledger


def only_campaign(ledger: Ledger, name: str | None) -> str:
    """The named campaign, or the only one there is."""
    names = [c.name for c in ledger.campaigns()]
    if name is not None:
        if name not in names:
            raise UsageError(f"no campaign is called {name!r}", facts={"known": ", ".join(names) or "none"})
        return name
    if len(names) != 1:
        raise UsageError(
            "which campaign?" if names else "the ledger holds no campaign yet",
            facts={"known": ", ".join(names) or "none"},
            hint="name one with --campaign" if names else "orchestrator run PLAYBOOK begins one",
        )
    return names[0]


def export_ledger(ledger: Ledger, campaign: str, form: str, out: TextIO) -> None:
    from orchestrator.report import export

    export(ledger.view(campaign), form, out)
