"""`diagnose`: the cause in a log, without a host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options, output

if TYPE_CHECKING:
    from orchestrator.core.diagnosis import Diagnosis


def add(app: typer.Typer) -> None:
    app.command("diagnose")(diagnose)


def diagnose(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Server logs.", show_default=False)],
    as_json: options.Json = False,
) -> int:
    """Name the cause of a failed or stuck server from its log. Exit code 0 when all logs are healthy, 1 otherwise.

    Example: orchestrator diagnose server.log
    """
    from orchestrator.controller.logs import diagnose_files

    found = diagnose_files(logs)
    if as_json:
        output.emit_json([diagnosis.to_json(file) for file, diagnosis in found])
    else:
        for file, diagnosis in found:
            _show(file, diagnosis)
    return 0 if all(diagnosis.outcome == "healthy" for _, diagnosis in found) else 1


def _show(file: str, diagnosis: Diagnosis) -> None:
    rank = f", began on {diagnosis.rank}" if diagnosis.rank else ""
    output.emit(f"{file}: {diagnosis.outcome}, {diagnosis.category} ({diagnosis.certainty}{rank})")
    if diagnosis.cause_line is not None:
        output.emit(f"{diagnosis.cause_lineno:>7} | {diagnosis.cause_line}")
    for label, text in (("cause", diagnosis.cause), ("remedy", diagnosis.remedy)):
        if text:
            output.emit(f"  {label}: {text}")
    if diagnosis.outcome in ("hung", "unknown") and diagnosis.last_phase:
        output.emit(f"  last phase: {diagnosis.last_phase}")
    for evidence in diagnosis.evidence:
        if evidence.lineno == diagnosis.cause_lineno:
            continue  # said above
        output.emit(f"{evidence.lineno:>7} | {evidence.line[:160]}  ({evidence.note})")
