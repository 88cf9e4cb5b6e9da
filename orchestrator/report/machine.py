"""The report for programs: JSON, JSON lines and CSV, written as they are read. docs/ledger.md describes them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, TextIO

from orchestrator.core.model import Model
from orchestrator.core.records import CampaignView, ExperimentRecord, FindingRecord, Sample
from orchestrator.errors import UsageError
from orchestrator.report.best import best_of
from orchestrator.report.text import cell

SCHEMA = "orchestrator/ledger-export"
VERSION = 1
CsvRows = Literal["findings", "samples"]
ROWS: tuple[CsvRows, ...] = ("findings", "samples")


def header(view: CampaignView) -> dict[str, Any]:
    return {"schema": SCHEMA, "version": VERSION, "exported_at": view.exported_at}


def sections(view: CampaignView) -> Iterator[tuple[str, Iterable[Mapping[str, Any]]]]:
    """Name → its records, in the order of an export. The long ones are iterators."""
    yield (
        "best",
        (
            {"host": b.host, "context": b.context, "finding_id": b.finding.id if b.finding else None}
            for b in best_of(view.findings)
        ),
    )
    for name in ("runs", "todo", "findings", "decisions", "insights", "fingerprints"):
        yield name, map(_dump, getattr(view, name))
    yield "experiments", (_experiment(view, e) for e in view.experiments)
    yield "events", map(_dump, view.events)


def _experiment(view: CampaignView, experiment: ExperimentRecord) -> dict[str, Any]:
    files = [_dump(artifact) for artifact in view.artifacts(experiment.id)]
    return _dump(experiment) | {"artifacts": files}


def _dump(record: Model) -> dict[str, Any]:
    return record.model_dump(mode="json")


def write_json(view: CampaignView, out: TextIO) -> None:
    """One object. Lists are written record by record."""
    out.write("{")
    for name, value in header(view).items():
        out.write(f"{_json(name)}: {_json(value)},\n")
    out.write(f'"campaign": {_json(_dump(view.campaign))}')
    for name, values in sections(view):
        out.write(f",\n{_json(name)}: [")
        separator = "\n"
        for value in values:
            out.write(separator + _json(value))
            separator = ",\n"
        out.write("]")
    out.write("}\n")


def write_jsonl(view: CampaignView, out: TextIO) -> None:
    """One record a line, each with its `type`; the first line is the header."""
    out.write(_json({"type": "header"} | header(view)) + "\n")
    out.write(_json({"type": "campaign"} | _dump(view.campaign)) + "\n")
    for name, values in sections(view):
        kind = name.removesuffix("s")
        for value in values:
            out.write(_json({"type": kind} | dict(value)) + "\n")


def _json(value: Any) -> str:  # noqa: ANN401 - whatever JSON can hold
    return json.dumps(value, allow_nan=False)


_SAMPLE = tuple(Sample.model_fields)
_FINDING = tuple(FindingRecord.model_fields)
_PLACE = (
    "experiment_id", "campaign", "host", "context", "hypothesis_id", "verdict", "arm", "kind", "launch", "launch_id",
    "outcome", "ready_s",
)  # fmt: skip


def write_csv(view: CampaignView, out: TextIO, rows: str = "findings") -> None:
    """One row a finding, or one row a sample. Other rows → `UsageError`."""
    if rows not in ROWS:
        raise UsageError(f"a row of csv is no {rows!r}", hint=f"--rows {' or '.join(ROWS)}")
    writer = csv.writer(out, lineterminator="\n")
    heads, values = (_FINDING, _findings(view)) if rows == "findings" else (_PLACE + _SAMPLE, _samples(view))
    for row in chain([heads], values):
        writer.writerow([cell(value) for value in row])


def _findings(view: CampaignView) -> Iterator[list[Any]]:
    for finding in view.findings:
        values = _dump(finding)
        yield [json.dumps(v) if isinstance(v, list | dict) else v for v in (values[name] for name in _FINDING)]


def _samples(view: CampaignView) -> Iterator[list[Any]]:
    for e in view.experiments:
        for arm in e.arms:
            for launch in arm.launches:
                place = [
                    e.id, e.campaign, e.host, e.context, e.hypothesis_id, e.verdict, arm.number, arm.kind,
                    launch.number, launch.launch_id, launch.outcome, launch.ready_s,
                ]  # fmt: skip
                for sample in launch.samples:
                    yield place + [getattr(sample, name) for name in _SAMPLE]
