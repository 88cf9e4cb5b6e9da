"""What faces read: the ledger of a state directory, and exports of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from orchestrator.controller.clock import SystemClock
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.core.records import FindingRecord
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


def number_of(text: str) -> int:
    """A number as tables print it, with or without `#`. Raises `UsageError`."""
    digits = text.removeprefix("#")
    if not (digits.isascii() and digits.isdigit()):
        raise UsageError(f"{text!r} is no number", hint="the numbers stand in the first columns of the lists")
    return int(digits)


def named_finding(ledger: Ledger, which: str) -> FindingRecord:
    """By its own number, by `#` and the number of its experiment, or the last one on a hypothesis."""
    from difflib import get_close_matches

    if which.isascii() and which.isdigit():
        return ledger.finding(int(which))
    if which.startswith("#"):
        found = ledger.findings(experiment_id=number_of(which))
        if not found:
            raise UsageError(f"experiment {which} has no finding", hint=f"orchestrator experiment show {which[1:]}")
        return found[-1]
    found = ledger.findings(hypothesis_id=which)
    if not found:
        known = sorted({f.hypothesis_id for f in ledger.findings() if f.hypothesis_id is not None})
        near = get_close_matches(which, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are findings on: {', '.join(known) or 'nothing yet'}"
        raise UsageError(f"there is no finding on {which!r}", hint=hint)
    return found[-1]


def export_ledger(ledger: Ledger, campaign: str, form: str, out: TextIO) -> None:
    from orchestrator.report import export

    export(ledger.view(campaign), form, out)
