"""`tui`: the dashboard; `request`: what its actions do, from a command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from orchestrator.cli import diagnostics, options, output
from orchestrator.errors import Refused


def add(app: typer.Typer) -> None:
    app.command("tui")(tui)
    app.command("request")(request)


def tui(
    write: Annotated[bool, typer.Option("--write", help="Let keys ask for changes; each is agreed to first.")] = False,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Open the dashboard: what runs, what is next, what was learned. Opens at any time and changes nothing by itself.
    With --json: what it would show first, once, without a terminal.

    Example: orchestrator tui --state state
    """
    import sys
    import time

    path = options.settings(state).state.value
    if as_json:
        bring_up_to_date(path)
        output.emit_json(first_picture(path))
        return 0
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refused(
            "the dashboard needs a terminal", hint="orchestrator finding list and todo list show the same as text"
        )
    bring_up_to_date(path)
    from orchestrator.tui.app import Dashboard

    Dashboard(path, may_write=write, now=time.time).run()
    return 0


def first_picture(path: Path) -> Any:  # noqa: ANN401 - whatever the screens show
    from contextlib import closing
    from dataclasses import asdict

    from orchestrator.ledger.watching import Watch
    from orchestrator.tui.picture import Filters, take

    with closing(Watch(path)) as watch:
        return asdict(take(watch, Filters()))


def bring_up_to_date(path: Path) -> None:
    """A ledger of an earlier version learns the present schema; one that is absent is `UsageError`."""
    from orchestrator.ledger.watching import Watch

    try:
        Watch(path).close()
    except Refused:
        from orchestrator.controller.records import open_records

        with open_records(path):
            pass


def request(
    action: Annotated[
        str,
        typer.Argument(
            metavar="ACTION",
            help="stop, pause, resume, revert, rerank, next, look, reap or release.",
            show_default=False,
        ),
    ],
    host: Annotated[str, typer.Argument(metavar="HOST", help="A host that was used.", show_default=False)],
    hypothesis: Annotated[Optional[str], typer.Option("--hypothesis", metavar="ID", help="Which one is next.")] = None,  # noqa: UP045
    hosts: options.Hosts = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Ask the run that lives on a host for something, and wait for its answer; without a run, it is done here.

    Example: orchestrator request stop gpu1
    """
    from orchestrator.controller.requests import Wish, ask

    config = options.settings(state, hosts)
    wish = Wish(action, host, config.state.value, config.hosts.value, hypothesis)
    answered = ask(wish, diagnostics.narrator())
    if as_json:
        output.emit_json(answered)
    else:
        output.emit(answered.answer)
    return 0
