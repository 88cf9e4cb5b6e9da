"""`check` and `playbook schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import options, output

PlaybookPath = Annotated[Path, typer.Argument(metavar="PLAYBOOK", help="Playbook file.", show_default=False)]


def add(app: typer.Typer) -> None:
    app.command("check")(check)


def add_group(group: typer.Typer) -> None:
    group.command("schema")(schema)
    group.callback()(lambda: None)


def check(
    playbook: PlaybookPath, hosts: options.Hosts = None, host: options.HostName = None, as_json: options.Json = False
) -> int:
    """Report every problem of a playbook, each with its place and a suggestion.

    Example: orchestrator check playbooks/eagle-fast-verify.yaml
    """
    from orchestrator.controller.playbooks import check_playbook

    config = options.settings(None, hosts)
    checked = check_playbook(playbook, config.hosts.value, host, config.state.value)
    if as_json:
        output.emit_json({"playbook": checked.playbook, "problems": [], "host": checked.host})
    else:
        where = f"for host {checked.host}" if checked.host else "and no inventory to check its host against"
        output.emit(f"{playbook}: no problems, {where}")
    return 0


def schema(as_json: options.Json = False) -> int:
    """Print the JSON Schema of playbooks.

    Example: orchestrator playbook schema > playbook.schema.json
    """
    from orchestrator.controller.playbooks import playbook_schema

    output.emit_json(playbook_schema())
    return 0
