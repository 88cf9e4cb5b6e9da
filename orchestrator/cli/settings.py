"""`config`: settings and where they come from."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import options, output


def add(group: typer.Typer) -> None:
    group.command("show")(config_show)
    group.callback()(lambda: None)


def config_show(
    origin: Annotated[bool, typer.Option("--origin", help="Where each value came from.")] = False,
    state: options.State = None,
    hosts: options.Hosts = None,
    as_json: options.Json = False,
) -> int:
    """Show the settings in effect.

    Example: orchestrator config show --origin
    """
    config = options.settings(state, hosts)
    rows = {name: getattr(config, name) for name in ("state", "hosts", "color")}
    if as_json:
        output.emit_json({name: {"value": str(s.value), "origin": s.origin} for name, s in rows.items()})
        return 0
    for name, setting in rows.items():
        output.emit(f"{name} = {setting.value}" + (f"  ({setting.origin})" if origin else ""))
    return 0
