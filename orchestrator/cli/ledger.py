"""`ledger`: exports, the trail, checks and copies of everything that a state directory knows."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from orchestrator.cli import options, output
from orchestrator.cli.selecting import Campaign
from orchestrator.errors import Findings, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

Out = Annotated[Optional[Path], typer.Option("--out", help="File to write; stdout otherwise.")]  # noqa: UP045


def add(group: typer.Typer) -> None:
    group.command("export")(ledger_export)
    group.command("schema")(ledger_schema)
    group.command("trail")(ledger_trail)
    group.command("check")(ledger_check)
    group.command("backup")(ledger_backup)


def ledger_export(
    form: Annotated[str, typer.Option("--format", help="md, html, json, jsonl or csv.")] = "md",
    rows: Annotated[str, typer.Option("--rows", help="What a row of csv is: findings or samples.")] = "findings",
    only: Annotated[list[str], typer.Option("--only", metavar="ID", help="These hypotheses, and the baselines.")] = [],  # noqa: B006
    out: Out = None,
    campaign: Campaign = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Export a campaign: findings, experiments with their proofs, decisions, insights, the trail of events.

    Example: orchestrator ledger export --format html --out campaign.html
    """
    from orchestrator.controller.records import export_ledger, only_campaign, open_records

    with open_records(options.settings(state).state.value) as ledger, _opened(out) as file:
        name = only_campaign(ledger, campaign)
        export_ledger(ledger, name, "json" if as_json else form, file, rows=rows, only=only)
    return 0


def ledger_schema(as_json: options.Json = False) -> int:
    """Print the JSON Schema of an export: of the object that is json, and under `line` of a line of jsonl.

    Example: orchestrator ledger schema > ledger-export.schema.json
    """
    from orchestrator.report.schema import schema

    del as_json  # it is one anyway
    output.emit_json(schema())
    return 0


def ledger_trail(
    form: Annotated[str, typer.Option("--format", help="text, jsonl or csv.")] = "text",
    host: Annotated[Optional[str], typer.Option("--host", help="Only what was done there.")] = None,  # noqa: UP045
    since: Annotated[
        str | None, typer.Option("--since", help="A time, such as 2026-03-01 or 2026-03-01T12:00.")
    ] = None,
    out: Out = None,
    campaign: Campaign = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Show who did what, when, where and with which command, in order: people, the controller, the agent on the host.

    Example: orchestrator ledger trail --host gpu1 --format csv --out trail.csv
    """
    from orchestrator.controller.records import open_records
    from orchestrator.controller.trail import write_trail

    with open_records(options.settings(state).state.value) as ledger, _opened(out) as file:
        write_trail(ledger, "json" if as_json else form, file, host=host, campaign=campaign, since=since)
    return 0


@contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    """Stdout, or a file that is there only when it is whole."""
    if out is None:
        yield sys.stdout
        return
    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(out)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def ledger_check(state: options.State = None, as_json: options.Json = False) -> int:
    """Verify the ledger: SQLite's integrity, references, and the life of every experiment.

    Example: orchestrator ledger check
    """
    from orchestrator.controller.records import open_records

    with open_records(options.settings(state).state.value) as ledger:
        problems = ledger.check()
    if as_json:
        output.emit_json({"problems": [p.what for p in problems]})
    else:
        for problem in problems:
            output.emit(problem.what)
        output.emit("the ledger is well" if not problems else f"{len(problems)} problem(s)")
    if problems and not as_json:
        raise Findings(f"the ledger has {len(problems)} problem(s)")
    return 1 if problems else 0


def ledger_backup(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Must not exist.", show_default=False)],
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Write a consistent copy of the ledger, also while a run writes to it.

    Example: orchestrator ledger backup /backup/ledger.db
    """
    from orchestrator.controller.records import open_records

    with open_records(options.settings(state).state.value) as ledger:
        ledger.backup(path)
    if as_json:
        output.emit_json({"backup": str(path)})
    else:
        output.emit(f"written: {path}")
    return 0
