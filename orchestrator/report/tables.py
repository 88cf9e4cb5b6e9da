"""Findings, todo and experiments as rows of text. Whoever shows them decides about colours."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.core.records import ExperimentRecord, FindingRecord, TodoRow
from orchestrator.report.text import interval, number, percent, plain


@dataclass(frozen=True)
class Column:
    head: str
    align: Literal["left", "right"] = "left"


@dataclass(frozen=True)
class Row:
    """`mark` is the verdict or status: what a colour would tell."""

    cells: tuple[str, ...]
    mark: str


@dataclass(frozen=True)
class Table:
    columns: tuple[Column, ...]
    rows: Sequence[Row]


def findings_table(findings: Iterable[FindingRecord]) -> Table:
    columns = (
        Column("id", "right"), Column("hypothesis"), Column("host"), Column("context"), Column("verdict"),
        Column("effect", "right"), Column("interval", "right"), Column("baseline", "right"),
        Column("treatment", "right"), Column("launches", "right"), Column("why"),
    )  # fmt: skip
    rows = [
        Row(
            (
                str(f.id), plain(f.hypothesis_id or "baseline"), plain(f.host), plain(f.context), f.verdict.value,
                percent(f.effect), interval(f.low, f.high), number(f.baseline), number(f.treatment),
                f"{f.baseline_launches}+{f.treatment_launches}", plain(f.cause or f.summary),
            ),
            f.verdict.value,
        )
        for f in findings
    ]  # fmt: skip
    return Table(columns, rows)


def todo_table(todo: Iterable[TodoRow]) -> Table:
    columns = (
        Column("hypothesis"), Column("family"), Column("status"), Column("rank", "right"),
        Column("expect", "right"), Column("from"), Column("why"),
    )  # fmt: skip
    rows = [
        Row(
            (
                plain(row.id), plain(row.family) or "–", row.status, number(row.rank), percent(row.expect),
                plain(f"{row.origin} of {row.parent}" if row.parent else row.origin), plain(row.reason),
            ),
            row.status,
        )
        for row in todo
    ]  # fmt: skip
    return Table(columns, rows)


def experiments_table(experiments: Iterable[ExperimentRecord]) -> Table:
    columns = (
        Column("experiment", "right"), Column("hypothesis"), Column("host"), Column("context"), Column("state"),
        Column("verdict"), Column("started"), Column("cause"),
    )  # fmt: skip
    rows = []
    for e in experiments:
        doing = f"{e.state} {e.phase}".strip() if e.state == "running" else e.state
        cells = (
            f"#{e.id}", plain(e.hypothesis_id or "baseline"), plain(e.host), plain(e.context), plain(doing),
            e.verdict.value if e.verdict else "–", e.started_at[:19].replace("T", " "), plain(e.cause or ""),
        )  # fmt: skip
        rows.append(Row(cells, e.verdict.value if e.verdict else e.state))
    return Table(columns, rows)


def lines(table: Table, *, width: int | None = None) -> Iterator[str]:
    """The table as aligned text, heads first. With a `width` the last column is cut to fit, with `…`."""
    cells = [tuple(c.head for c in table.columns), *(row.cells for row in table.rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        parts = [
            " " * (size - _width(text)) + text if column.align == "right" else text + " " * (size - _width(text))
            for text, size, column in zip(row, widths, table.columns, strict=True)
        ]
        line = "  ".join(parts).rstrip()
        yield line if width is None else _cut(line, width)


def _width(text: str) -> int:
    """Columns on a terminal."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in ("W", "F") else 1 for c in text
    )


def _cut(line: str, width: int) -> str:
    if _width(line) <= width:
        return line
    while line and _width(line) > width - 1:
        line = line[:-1]
    return line.rstrip() + "…"
