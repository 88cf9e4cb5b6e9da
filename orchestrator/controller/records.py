"""What faces read: the ledger of a state directory, and exports of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from orchestrator.controller.clock import SystemClock
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.core.records import FindingRecord
    from orchestrator.ledger import Ledger


@contextmanager
def open_records(state: Path, *, create: bool = False) -> Iterator[Ledger]:
    """The ledger. Raises `UsageError` when there is none, unless it may be made."""
    from orchestrator.ledger import open_ledger

    with open_ledger(state, clock=SystemClock(), create=create) as ledger:
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


def export_ledger(
    ledger: Ledger, campaign: str, form: str, out: TextIO, *, rows: str = "findings", only: Collection[str] = ()
) -> None:
    """Raises `UsageError` for a form, a kind of rows or a hypothesis that is unknown."""
    from orchestrator.core.planning import refuse_unknown
    from orchestrator.report import export

    view = ledger.view(campaign)
    if only:
        refuse_unknown(only, [row.id for row in view.todo])
        view = view.selection(only)
    export(view, form, out, rows=rows)


def text_of(path: Path) -> str:
    """A file's text with its line ends as they are. Raises `UsageError`."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", facts={"file": str(path)}) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text in UTF-8", facts={"at byte": str(error.start)}) from error


def replace_text(path: Path, text: str) -> None:
    """The whole file or nothing of it, line ends as they are. Raises `UsageError`."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(text.encode("utf-8"))
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", facts={"file": str(path)}) from error
    finally:
        part.unlink(missing_ok=True)
