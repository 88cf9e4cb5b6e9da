"""`init`: a playbook from a host that serves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from orchestrator.cli import diagnostics, options, output
from orchestrator.errors import Refused

HostWord = Annotated[
    str,
    typer.Argument(metavar="HOST", help="A host of the inventory, local, or user@host for SSH.", show_default=False),
]


def add(app: typer.Typer) -> None:
    app.command("init")(init)


def init(
    host: HostWord,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", metavar="FILE", help="Write the playbook there instead of printing it."),
    ] = None,
    pid: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--pid", metavar="PID", help="The server with this main process."),
    ] = None,
    port: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--port", metavar="PORT", help="The server on this port."),
    ] = None,
    hosts: options.Hosts = None,
    as_json: options.Json = False,
) -> int:
    """Look at a host that serves, and write a playbook with what it serves as the baseline. Changes nothing there.

    Example: orchestrator init root@gpu1 --out gpu1.yaml
    """
    from orchestrator.controller.init import InitRequest, draft_playbook

    if out is not None and out.exists():
        raise Refused(f"{out} is there already", hint="give another name, or move it away")
    config = options.settings(None, hosts)
    drafted = draft_playbook(InitRequest(host, config.hosts.value, pid, port), diagnostics.narrator())
    if out is not None:
        out.write_text(drafted.text, encoding="utf-8")
    if as_json:
        blanks = [{"what": what, "command": command} for what, command in drafted.blanks]
        output.emit_json({"server": drafted.server, "playbook": str(out) if out else drafted.text, "blanks": blanks})
    elif out is None:
        output.emit_text(drafted.text)
    else:
        output.emit(f"{out}: {drafted.server}")
        for what, command in drafted.blanks:
            output.emit(f"blank: {what}; this would tell: {command}")
    return 0
