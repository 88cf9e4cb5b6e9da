"""Options that many commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

if TYPE_CHECKING:
    from orchestrator.config import Config

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
State = Annotated[Optional[Path], typer.Option("--state", help="State directory: ledger and artifacts.")]  # noqa: UP045
Hosts = Annotated[Optional[Path], typer.Option("--hosts", help="Inventory file; wins over the playbook's.")]  # noqa: UP045
HostName = Annotated[Optional[str], typer.Option("--host", help="Which host of the inventory.")]  # noqa: UP045
Yes = Annotated[bool, typer.Option("--yes", help="Agree beforehand to what would be asked.")]


def settings(state: Path | None = None, hosts: Path | None = None) -> Config:
    """Settings in effect, given what stood on the command line."""
    import os

    from orchestrator.config import load_config

    flags = {"state": state, "hosts": hosts}
    given = {name: str(value) for name, value in flags.items() if value is not None}
    return load_config(given, dict(os.environ), Path.cwd(), Path.home())
