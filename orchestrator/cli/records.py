"""`todo`, `finding`, `experiment`, `ledger`, `config`: what was learned, done and kept."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from orchestrator.cli import options, output
from orchestrator.errors import Findings, UsageError

Campaign = Annotated[Optional[str], typer.Option("--campaign", help="Which campaign of the ledger.")]  # noqa: UP045
FORMATS = ("md", "json", "jsonl", "csv")


def add_todo(group: typer.Typer) -> None:
    group.command("list")(todo_list)
    group.callback()(lambda: None)


def add_finding(group: typer.Typer) -> None:
    group.command("list")(finding_list)
    group.command("show")(finding_show)


def add_experiment(group: typer.Typer) -> None:
    group.command("list")(experiment_list)
    group.command("show")(experiment_show)


def add_ledger(group: typer.Typer) -> None:
    group.command("export")(ledger_export)
    group.command("check")(ledger_check)
    group.command("backup")(ledger_backup)


def add_config(group: typer.Typer) -> None:
    group.command("show")(config_show)
    group.callback()(lambda: None)


def todo_list(campaign: Campaign = None, state: options.State = None, as_json: options.Json = False) -> int:
    """List the hypotheses of a campaign, best first, with the reason for their place.

    Example: orchestrator todo list
    """
    from orchestrator.controller.records import only_campaign, open_records

    with open_records(options.settings(state).state.value) as ledger:
        rows = ledger.todo(only_campaign(ledger, campaign))
        if as_json:
            output.emit_json({"todo": rows})
        else:
            table = [
                (r.id, r.status, r.family, _percent(r.expect), r.reason or r.hypothesis.get("claim")) for r in rows
            ]
            output.emit_table(("hypothesis", "status", "family", "expected", "why"), table)
    return 0


def finding_list(campaign: Campaign = None, state: options.State = None, as_json: options.Json = False) -> int:
    """List the verdicts of a campaign with effect and interval.

    Example: orchestrator finding list --state state
    """
    from orchestrator.cli.run import why
    from orchestrator.controller.records import only_campaign, open_records

    with open_records(options.settings(state).state.value) as ledger:
        rows = ledger.findings(only_campaign(ledger, campaign))
        if as_json:
            output.emit_json({"findings": rows})
        else:
            table = [
                (f.id, f"#{f.experiment_id}", f.hypothesis_id, f.context, f.host, f.verdict, _percent(f.effect),
                 _interval(f.low, f.high), why(f))
                for f in rows
            ]  # fmt: skip
            head = ("finding", "experiment", "hypothesis", "context", "host", "verdict", "effect", "interval", "why")
            output.emit_table(head, table)
    return 0


def finding_show(
    which: Annotated[
        str,
        typer.Argument(
            metavar="N|ID", help="Number of the finding, or a hypothesis: its last one.", show_default=False
        ),
    ],
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Show one finding: verdict, evidence, and the facts it depends on.

    Example: orchestrator finding show expert-parallel
    """
    from orchestrator.controller.records import named_finding, open_records

    with open_records(options.settings(state).state.value) as ledger:
        finding = named_finding(ledger, which)
        if as_json:
            output.emit_json(finding)
            return 0
        output.emit(f"finding {finding.id}: {finding.hypothesis_id} on {finding.host} ({finding.context})")
        output.emit(f"  {finding.summary}")
        for line in finding.evidence:
            output.emit(f"  {line}")
        if finding.verdict == "inconclusive":
            again = f"orchestrator run PLAYBOOK --only {finding.hypothesis_id}"
            output.emit(f"  to decide it: raise measure.launches or measure.repetitions, then {again}")
        output.emit(f"  experiment #{finding.experiment_id}, {finding.created_at}")
        if finding.closes:
            facts = ", ".join(f"{name} {value}" for name, value in finding.depends_on.items())
            output.emit(f"  dead end until one of these changes: {facts}")
    return 0


def experiment_list(campaign: Campaign = None, state: options.State = None, as_json: options.Json = False) -> int:
    """List what was carried out, oldest first.

    Example: orchestrator experiment list
    """
    from orchestrator.controller.records import open_records

    with open_records(options.settings(state).state.value) as ledger:
        rows = ledger.experiments(campaign)
        if as_json:
            output.emit_json({"experiments": rows})
        else:
            table = [
                (f"#{e.id}", e.hypothesis_id or "baseline", e.context, e.host, e.verdict or e.state, e.started_at[:19],
                 e.cause)
                for e in rows
            ]  # fmt: skip
            output.emit_table(("", "hypothesis", "context", "host", "verdict", "started", "cause"), table)
    return 0


def experiment_show(
    which: Annotated[
        str,
        typer.Argument(metavar="N", help="Number of the experiment, with or without `#`.", show_default=False),
    ],
    log: Annotated[bool, typer.Option("--log", help="Print the server's log of each launch.")] = False,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Show one experiment: changes, arms, launches, checks, and the proof of its revert; with --json all samples.

    Example: orchestrator experiment show 4 --log
    """
    from orchestrator.controller.records import number_of, open_records
    from orchestrator.report.text import change

    with open_records(options.settings(state).state.value) as ledger:
        experiment = ledger.experiment(number_of(which))
        if as_json:
            output.emit_json(experiment)
            return 0
        what = f"{experiment.hypothesis_id or 'baseline'} on {experiment.host} ({experiment.context})"
        output.emit(f"Experiment #{experiment.id}: {what}: {experiment.verdict or experiment.state}")
        for each in experiment.changes:
            output.emit(f"  change: {change(each)}")
        for arm in experiment.arms:
            proof = "no proof" if arm.proof is None else ("proved clean" if arm.proof.clean else "NOT clean")
            output.emit(f"  {arm.kind} {arm.number}: {proof}")
            for launch in arm.launches:
                value = launch.facts.get("value")
                shown = f"{value:.2f}" if isinstance(value, float) else "no value"
                ready = f", ready in {launch.ready_s:.1f} s" if launch.ready_s is not None else ""
                output.emit(f"    {launch.launch_id}: {launch.outcome}, {shown}{ready}")
                if launch.cause:
                    output.emit(f"      cause: {launch.cause}")
                for check in launch.facts.get("checks", []):
                    word = {True: "holds", False: "DOES NOT HOLD", None: "not seen"}[check["holds"]]
                    output.emit(f"      {check['what']}: {word} ({check['found']})")
                if log and launch.log_artifact is not None:
                    output.emit(ledger.read_artifact(launch.log_artifact).decode("utf-8", "replace"))
    return 0


def ledger_export(
    form: Annotated[str, typer.Option("--format", help="md, json, jsonl or csv.")] = "md",
    out: Annotated[Optional[Path], typer.Option("--out", help="File to write; stdout otherwise.")] = None,  # noqa: UP045
    campaign: Campaign = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Export a campaign: findings, experiments with their proofs, decisions, the trail of events.

    Example: orchestrator ledger export --format md --out campaign.md
    """
    from orchestrator.controller.records import export_ledger, only_campaign, open_records

    form = "json" if as_json else form
    if form not in FORMATS:
        raise UsageError(f"no export is called {form!r}", facts={"formats": ", ".join(FORMATS)})
    with open_records(options.settings(state).state.value) as ledger:
        name = only_campaign(ledger, campaign)
        if out is None:
            export_ledger(ledger, name, form, sys.stdout)
        else:
            with out.open("w", encoding="utf-8", newline="") as file:
                export_ledger(ledger, name, form, file)
    return 0


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


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:+.1%}"


def _interval(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"[{low:+.1%}, {high:+.1%}]"
