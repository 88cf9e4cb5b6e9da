"""`run`, `plan`: the main job and its preview."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from orchestrator.cli import diagnostics, options, output
from orchestrator.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from orchestrator.controller.plan import Plan, PlannedTrial
    from orchestrator.controller.run import RunRequest, RunSummary
    from orchestrator.core.records import FindingRecord

PlaybookPath = Annotated[Path, typer.Argument(metavar="PLAYBOOK", help="Playbook file.", show_default=False)]


def add_campaign(group: typer.Typer) -> None:
    group.command("finish")(finish)
    group.callback()(lambda: None)


def add(app: typer.Typer) -> None:
    app.command("run")(run)
    app.command("plan")(plan)


def run(
    playbook: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(metavar="PLAYBOOK", help="Playbook file; not needed with --attach.", show_default=False),
    ] = None,
    only: Annotated[list[str], typer.Option("--only", metavar="ID", help="These hypotheses, also again.")] = [],  # noqa: B006
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run that was cut off.")] = False,
    baseline_only: Annotated[bool, typer.Option("--baseline-only", help="Measure the baseline, nothing else.")] = False,
    keep_best: Annotated[
        bool, typer.Option("--keep-best", help="End on the files of the largest proven gain.")
    ] = False,
    until: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--until", metavar="TIME", help="Give the host back by then: 18:00, or 2026-03-01T18:00."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave the run in the background.")] = False,
    attach: Annotated[
        bool, typer.Option("--attach", help="Tell what the run that lives does; Ctrl-C leaves it.")
    ] = False,
    host: options.HostName = None,
    hosts: options.Hosts = None,
    state: options.State = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> int:
    """Carry out the hypotheses that have no finding yet, one by one, and prove every revert.

    Example: orchestrator run playbooks/eagle-fast-verify.yaml --hosts hosts.yaml --state state
    """
    from orchestrator.cli import background

    config = options.settings(state, hosts)
    if attach:
        return background.attach(config.state.value, host)
    if playbook is None:
        raise UsageError("which playbook?", hint="orchestrator run PLAYBOOK; orchestrator run --help")
    if detach:
        return background.detach([word for word in sys.argv[1:] if word != "--detach"], config.state.value)
    from orchestrator.controller.run import RunRequest

    request = RunRequest(
        playbook,
        config.state.value,
        config.hosts.value,
        host,
        only=tuple(only),
        resume=resume,
        yes=yes,
        baseline_only=baseline_only,
        keep_best=keep_best,
        until=until,
    )
    return carry_out(request, as_json=as_json)


def finish(
    playbook: PlaybookPath,
    keep_best: Annotated[
        bool, typer.Option("--keep-best", help="End on the files of the largest proven gain.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the finish that was cut off.")] = False,
    host: options.HostName = None,
    hosts: options.Hosts = None,
    state: options.State = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> int:
    """End a campaign now: measure its wins in full, combine them, and measure the best configuration once more.

    Example: orchestrator campaign finish playbooks/eagle-fast-verify.yaml --hosts hosts.yaml --state state
    """
    from orchestrator.controller.run import RunRequest

    config = options.settings(state, hosts)
    request = RunRequest(
        playbook,
        config.state.value,
        config.hosts.value,
        host,
        resume=resume,
        yes=yes,
        keep_best=keep_best,
        finish_only=True,
    )
    return carry_out(request, as_json=as_json)


def carry_out(request: RunRequest, *, as_json: bool) -> int:
    """A run, and what it came to on stdout."""
    from orchestrator.controller.run import run as start

    try:
        summary = start(request, diagnostics.narrator())
    except Interrupted as stopped:
        hint = stopped.hint or "the same command again carries out what has no finding yet"
        raise Interrupted(stopped.what, where=stopped.where, facts=stopped.facts, hint=hint) from stopped
    if as_json:
        output.emit_json(summary_json(summary))
    else:
        show_summary(summary)
    return 0


def summary_json(summary: RunSummary) -> dict[str, object]:
    return {
        **vars(summary),
        "findings": [f.model_dump(mode="json") for f in summary.findings],
        "best": {c: f.model_dump(mode="json") for c, f in summary.best.items()},
        "kept": vars(summary.kept) if summary.kept is not None else None,
        "goal": goal_json(summary),
    }


def goal_json(summary: RunSummary) -> dict[str, object] | None:
    if summary.goal is None:
        return None
    return {"is_reached": summary.goal.is_reached, "sentences": list(summary.goal.sentences)}


def show_summary(summary: RunSummary) -> None:
    """The findings table, the best configuration per context, what it cost, and where the ledger is."""
    if summary.findings:
        rows = [
            (f"#{f.experiment_id}", f.hypothesis_id, f.context, f.verdict, _effect(f.effect), _interval(f.low, f.high),
             why(f))
            for f in summary.findings
        ]  # fmt: skip
        output.emit_table(("", "hypothesis", "context", "verdict", "effect", "interval", "why"), rows)
        output.emit()
    elif not summary.launches:
        output.emit("nothing to do: every hypothesis has a finding that holds; --only ID carries one out again")
    for context, value in summary.baselines.items():
        best = summary.best.get(context)
        gain = f"{best.hypothesis_id}, {_effect(best.effect)}" if best is not None else "the baseline; nothing beat it"
        output.emit(f"best in {context}: {gain} (baseline {value:.2f})")
    show_campaign(summary)
    if summary.kept is not None:
        output.emit(f"left on the host: {summary.kept}: {len(summary.kept.files)} file(s); start it with")
        output.emit(f"  {' '.join([*summary.kept.environment, summary.kept.command])}")
        output.emit(f"  taken back by: orchestrator host release {summary.host} --restore-found --yes")
    output.emit(f"host {summary.host}: {_proof(summary)}")
    for line in summary.foreign[:10]:
        output.emit(f"  changed by others during the run, left alone: {line}")
    ours, server = sum(summary.ours_s.values()), sum(summary.server_s.values())
    output.emit(f"time: ours {ours:.1f} s / the server's {server:.1f} s, {summary.seconds:.1f} s in all")
    output.emit(f"      ours: {_phases(summary.ours_s)}")
    output.emit(f"ledger: {summary.ledger}")


def show_campaign(summary: RunSummary) -> None:
    """What the campaign came to as a whole: bundles taken apart, families closed, wins combined, the goal."""
    for sentence in (*summary.families, *summary.notes):
        output.emit(sentence)
    for name in summary.returned:
        output.emit(f"returned to the todo: {name}, which had never been measured alone")
    for strategy, gains in summary.search.items():
        output.emit(
            f"search, {strategy}: best after each trial {', '.join(_effect(g) or 'none' for g in gains) or '–'}"
        )
    if summary.goal is not None:
        output.emit(summary.goal.headline)
        for sentence in summary.goal.sentences:
            output.emit(f"  {sentence}")
    if summary.ended is not None:
        output.emit(f"ended early: {summary.ended}; --resume goes on")


def why(finding: FindingRecord) -> str:
    """The values behind a measured verdict, else the cause."""
    if finding.baseline is None or finding.treatment is None:
        return finding.cause or finding.summary
    screened = ", screened" if any(line.startswith("screened") for line in finding.evidence) else ""
    return f"{finding.baseline:.2f} → {finding.treatment:.2f} {finding.metric}{screened}"


def _proof(summary: RunSummary) -> str:
    if summary.proof is None:
        return summary.host_state
    files, seconds = summary.proof.get("files", 0), summary.proof.get("seconds", 0.0)
    return f"{summary.host_state}, proved over {files} files in {float(seconds):.2f} s"


def _phases(seconds: dict[str, float]) -> str:
    ranked = sorted(seconds.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {value:.2f}" for name, value in ranked if value >= 0.005)


def _effect(value: float | None) -> str | None:
    return None if value is None else f"{value:+.1%}"


def _interval(low: float | None, high: float | None) -> str | None:
    return None if low is None or high is None else f"[{low:+.1%}, {high:+.1%}]"


def plan(
    playbook: PlaybookPath,
    diff: Annotated[bool, typer.Option("--diff", help="Show every change against the tree as it is.")] = False,
    only: Annotated[list[str], typer.Option("--only", metavar="ID", help="Only these hypotheses.")] = [],  # noqa: B006
    host: options.HostName = None,
    hosts: options.Hosts = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Show what a run would do. Changes nothing on the host.

    Example: orchestrator plan playbooks/eagle-fast-verify.yaml --hosts hosts.yaml --diff
    """
    from orchestrator.controller.plan import plan as draw
    from orchestrator.controller.run import RunRequest

    config = options.settings(state, hosts)
    request = RunRequest(playbook, config.state.value, config.hosts.value, host, tuple(only))
    drawn = draw(request, diagnostics.narrator())
    if as_json:
        output.emit_json({**vars(drawn), "trials": [vars(t) for t in drawn.trials]})
    else:
        _show_plan(drawn, with_diff=diff)
    return 0


def _show_plan(drawn: Plan, *, with_diff: bool) -> None:
    output.emit(f"campaign {drawn.campaign} on {drawn.host} ({drawn.route}), tree {drawn.source}")
    for number, trial in enumerate(drawn.trials, start=1):
        _show_trial(number, trial, with_diff=with_diff)
    if drawn.bottleneck is not None:
        output.emit(f"one pass: {drawn.bottleneck}")
    if drawn.goal:
        output.emit(f"goal: {'; '.join(drawn.goal)}")
    for sentence in drawn.advice:
        output.emit(f"note: {sentence}")
    if drawn.held_back:
        output.emit(f"already decided under the present facts: {', '.join(drawn.held_back)} (--only ID repeats one)")
    minutes = f"about {drawn.minutes:.0f} min" if drawn.minutes is not None else "minutes"
    output.emit(f"launches: {drawn.launches_min} to {drawn.launches_max}; {minutes} ({drawn.minutes_from})")


def _show_trial(number: int, trial: PlannedTrial, *, with_diff: bool) -> None:
    output.emit(f"{number:3}. {trial.hypothesis} ({trial.context}): {trial.claim}")
    if not trial.applies:
        output.emit(f"     not applicable: {trial.why_not}")
        return
    output.emit(f"     changes {', '.join(trial.kinds)}")
    if trial.at_most is not None:
        output.emit(f"     {trial.at_most}")
    for line in trial.environment:
        output.emit(f"     {line}")
    for remark in trial.remarks:
        output.emit(f"     note: {remark}")
    if with_diff:
        output.emit(f"     {trial.command}")
        if trial.diff:
            output.emit(trial.diff.rstrip("\n"))
