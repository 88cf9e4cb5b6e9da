"""`audit`: what the noise of a host lets be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import diagnostics, options, output
from orchestrator.cli.run import PlaybookPath

if TYPE_CHECKING:
    from orchestrator.controller.auditing import AuditReport

HostArgument = Annotated[str, typer.Argument(metavar="HOST", help="A host of the inventory.", show_default=False)]


def add(app: typer.Typer) -> None:
    app.command("audit")(audit)


def audit(
    host: HostArgument,
    playbook: PlaybookPath,
    launches: Annotated[int, typer.Option("--launches", metavar="N", help="Of each context; four at the least.")] = 6,
    hosts: options.Hosts = None,
    state: options.State = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> int:
    """Launch the known-good configuration again and again: its noise, what would be kept wrongly, what can be seen.

    Example: orchestrator audit gpu1 playbooks/eagle-fast-verify.yaml --launches 8
    """
    from orchestrator.controller.auditing import audit_host
    from orchestrator.controller.run import RunRequest

    config = options.settings(state, hosts)
    request = RunRequest(playbook, config.state.value, config.hosts.value, host, yes=yes)
    report = audit_host(request, launches, diagnostics.narrator())
    if as_json:
        output.emit_json(report.to_json())
    else:
        show(report)
    return 0


def show(report: AuditReport) -> None:
    output.emit_table(
        ("context", "launches", report.metric, "between", "within", "drift/h", "false keeps", "smallest effect"),
        [
            (
                one.context,
                len(one.values),
                f"{sum(one.values) / len(one.values):.2f}",
                f"{one.found.noise.cv:.2%}",
                "-" if one.found.within_cv is None else f"{one.found.within_cv:.2%}",
                "-" if one.found.drift_per_hour is None else f"{one.found.drift_per_hour:+.1%}",
                f"{one.found.false_keeps}/{one.found.splits}",
                f"{one.found.smallest:.1%}",
            )
            for one in report.contexts
        ],
    )
    for one in report.contexts:
        output.emit(f"{one.context}: {one.found.sentence}")
        output.emit(f"{one.context}: {one.sooner}")
