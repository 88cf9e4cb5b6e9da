"""Findings and audit trail of a campaign, for people and for programs. Blind to where the records come from."""

from __future__ import annotations

from typing import Literal, TextIO

from orchestrator.core.records import CampaignView
from orchestrator.errors import UsageError
from orchestrator.report.machine import CsvRows, write_csv, write_json, write_jsonl
from orchestrator.report.pull_request import markdown_lines

Format = Literal["md", "html", "json", "csv", "jsonl"]
FORMATS: tuple[Format, ...] = ("md", "html", "json", "csv", "jsonl")

__all__ = ["FORMATS", "CsvRows", "Format", "export"]


def export(view: CampaignView, format: str, out: TextIO, *, rows: str = "findings") -> None:
    """Write the report in one of `FORMATS`. `rows` says what a row of CSV is. An unknown format → `UsageError`.

    Only a page of experiments and events is in memory at a time.
    """
    if format == "md":
        for line in markdown_lines(view):
            out.write(line + "\n")
    elif format == "json":
        write_json(view, out)
    elif format == "jsonl":
        write_jsonl(view, out)
    elif format == "csv":
        write_csv(view, out, rows)
    elif format == "html":
        from orchestrator.report.html import write_html

        write_html(view, out)
    else:
        raise UsageError(f"there is no export format {format!r}", hint=f"One of: {', '.join(FORMATS)}.")
