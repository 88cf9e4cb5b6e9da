"""The audit trail for people and for auditors: who did what, when, on which host, with which command, in order."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.core.records import EventRecord, RunRecord
    from orchestrator.ledger import Ledger

COLUMNS = ("seq", "at", "who", "host", "what", "outcome", "command", "run_id", "experiment_id", "details")
_BY_GUARD = frozenset({"guard_outcome"})
_TOLD_APART = frozenset({"who", "by", "campaign", "command", "argv"})


@dataclass(frozen=True)
class Act:
    """One line. `outcome` of an act that was only announced is `open`; of what was merely noted it is None."""

    seq: int
    at: str
    who: str
    host: str | None
    what: str
    outcome: str | None
    command: str | None
    run_id: int | None
    experiment_id: int | None
    details: Mapping[str, Any]


def acts(
    ledger: Ledger, *, host: str | None = None, campaign: str | None = None, since: str | None = None
) -> Iterator[Act]:
    """In the order in which they were written; an intent and its outcome are two lines."""
    runs = {run.id: run for run in ledger.runs()}
    announced = {intent.seq for intent in ledger.open_intents(host)}
    for event in ledger.each_event(campaign, host=host):
        if since is None or event.at >= since:
            yield _act(event, runs, is_open=event.seq in announced)


def _act(event: EventRecord, runs: Mapping[int, RunRecord], *, is_open: bool) -> Act:
    data = event.data
    what = f"{event.phase} begins" if event.kind == "intent" else event.phase
    argv = data.get("argv")
    command = shlex.join(map(str, argv)) if isinstance(argv, list) else data.get("command")
    details = {name: value for name, value in data.items() if name not in _TOLD_APART}
    if event.settles is not None:
        details = {"settles": event.settles, **details}
    outcome = "open" if is_open else event.outcome
    who = _who(event, runs.get(event.run_id or 0))
    return Act(event.seq, event.at, who, event.host, what, outcome, command, event.run_id, event.experiment_id, details)


def _who(event: EventRecord, run: RunRecord | None) -> str:
    person = event.data.get("who") or event.data.get("by")
    if person:
        return str(person)
    if event.phase in _BY_GUARD:
        return f"guard on {event.host}"
    if run is None:
        return "controller"
    begun_by = run.options.get("who")
    return f"controller of run #{run.id}" + (f", begun by {begun_by}" if begun_by else "")


def write_trail(
    ledger: Ledger,
    form: str,
    out: TextIO,
    *,
    host: str | None = None,
    campaign: str | None = None,
    since: str | None = None,
) -> None:
    """As `text`, `jsonl`, `json` (one array) or `csv`, written as it is read. Another form → `UsageError`."""
    if form not in _WRITERS:
        raise UsageError(f"no form of the trail is called {form!r}", facts={"forms": ", ".join(_WRITERS)})
    if campaign is not None:
        ledger.campaign(campaign)
    _WRITERS[form](acts(ledger, host=host, campaign=campaign, since=since), out)


def _text(rows: Iterator[Act], out: TextIO) -> None:
    from orchestrator.report.text import plain

    for act in rows:
        where = f" on {act.host}" if act.host else ""
        experiment = f", experiment #{act.experiment_id}" if act.experiment_id else ""
        outcome = f": {act.outcome}" if act.outcome else ""
        command = f" $ {act.command}" if act.command else ""
        told = json.dumps(act.details, ensure_ascii=False) if act.details else ""
        line = f"{act.seq:>6} {act.at[:19]}Z {act.who}{where}{experiment}: {act.what}{outcome}{command} {told}"
        out.write(plain(line).rstrip() + "\n")


def _jsonl(rows: Iterator[Act], out: TextIO) -> None:
    for act in rows:
        out.write(json.dumps(vars(act), allow_nan=False) + "\n")


def _json(rows: Iterator[Act], out: TextIO) -> None:
    separator = "["
    for act in rows:
        out.write(separator + json.dumps(vars(act), allow_nan=False))
        separator = ",\n"
    out.write("[]\n" if separator == "[" else "]\n")


def _csv(rows: Iterator[Act], out: TextIO) -> None:
    from orchestrator.report.text import cell

    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for act in rows:
        values = [getattr(act, name) for name in COLUMNS[:-1]]
        writer.writerow([cell(value) for value in (*values, json.dumps(act.details, ensure_ascii=False))])


_WRITERS: Mapping[str, Callable[[Iterator[Act], TextIO], None]] = {
    "text": _text, "jsonl": _jsonl, "json": _json, "csv": _csv
}  # fmt: skip
