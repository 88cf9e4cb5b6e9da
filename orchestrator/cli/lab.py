"""`lab create` and `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from orchestrator.cli import diagnostics, options, output

Seed = Annotated[int, typer.Option("--seed", help="Of the noise.")]


def add_demo(app: typer.Typer) -> None:
    app.command("demo")(demo)


def add(group: typer.Typer) -> None:
    group.command("create")(create)
    group.callback()(lambda: None)


def create(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Absent or empty.", show_default=False)],
    seed: Seed = 7,
    as_json: options.Json = False,
) -> int:
    """Make a simulated host with eight GPUs, a source tree and a server, in one directory.

    Example: orchestrator lab create /tmp/lab && orchestrator run /tmp/lab/playbook.yaml
    """
    from orchestrator.controller.lab import create_lab

    lab = create_lab(directory, seed)
    if as_json:
        output.emit_json({"lab": str(lab.root), "hosts": str(lab.hosts_file), "playbook": str(lab.playbook_file)})
    else:
        output.emit(f"lab: {lab.root}")
        output.emit(f"try: {_own_name()} run {lab.playbook_file}")
    return 0


def demo(
    directory: Annotated[
        Optional[Path], typer.Option("--dir", help="Where lab and ledger go; a new temporary directory otherwise.")  # noqa: UP045
    ] = None,
    seed: Seed = 7,
    as_json: options.Json = False,
) -> int:
    """Run the whole example campaign on a simulated host. Needs no GPU, no network and no other host.

    Example: orchestrator demo
    """
    from orchestrator.cli.run import show_summary, summary_json
    from orchestrator.controller.lab import demo as show

    shown = show(directory, diagnostics.narrator(), seed=seed)
    if as_json:
        output.emit_json({"lab": shown.lab, "playbook": shown.playbook, **summary_json(shown.summary)})
    else:
        show_summary(shown.summary)
        output.emit(f"more: {_own_name()} finding list --state {Path(shown.summary.ledger).parent}")
    return 0


def _own_name() -> str:
    """How this program is called from here: by its name where that is found, else by its path."""
    import shutil
    import sys

    return "orchestrator" if shutil.which("orchestrator") else sys.argv[0]
