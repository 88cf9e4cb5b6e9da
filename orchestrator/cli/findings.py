"""`finding`, `experiment`, `why`: what was learned, what was done, and the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from orchestrator.cli import options, output
from orchestrator.cli.selecting import Campaign, FindingName, interval, percent

if TYPE_CHECKING:
    from orchestrator.controller.why import Answer
    from orchestrator.core.records import ArmRecord, ExperimentRecord, FindingRecord
    from orchestrator.ledger import Ledger


def add_finding(group: typer.Typer) -> None:
    group.command("list")(finding_list)
    group.command("show")(finding_show)
    group.command("compare")(finding_compare)


def add_experiment(group: typer.Typer) -> None:
    group.command("list")(experiment_list)
    group.command("show")(experiment_show)


def add_why(app: typer.Typer) -> None:
    app.command("why")(why)


def finding_list(campaign: Campaign = None, state: options.State = None, as_json: options.Json = False) -> int:
    """List the verdicts of a campaign with effect and interval.

    Example: orchestrator finding list --state state
    """
    from orchestrator.cli.run import why as in_short
    from orchestrator.controller.records import only_campaign, open_records

    with open_records(options.settings(state).state.value) as ledger:
        rows = ledger.findings(only_campaign(ledger, campaign))
        if as_json:
            output.emit_json({"findings": rows})
        else:
            table = [
                (f.id, f"#{f.experiment_id}", f.hypothesis_id, f.context, f.host, f.verdict, percent(f.effect),
                 interval(f.low, f.high), in_short(f))
                for f in rows
            ]  # fmt: skip
            head = ("finding", "experiment", "hypothesis", "context", "host", "verdict", "effect", "interval", "why")
            output.emit_table(head, table)
    return 0


def finding_show(which: FindingName, state: options.State = None, as_json: options.Json = False) -> int:
    """Show one finding: verdict, evidence, launches, what rests on it, and the facts it depends on.

    Example: orchestrator finding show expert-parallel
    """
    from orchestrator.controller.records import named_finding, open_records
    from orchestrator.controller.why import why_verdict

    with open_records(options.settings(state).state.value) as ledger:
        finding = named_finding(ledger, which)
        if as_json:
            output.emit_json(finding)
            return 0
        _show(why_verdict(ledger, finding))
        if finding.verdict == "inconclusive":
            again = f"orchestrator run PLAYBOOK --only {finding.hypothesis_id}"
            output.emit(f"  to decide it: raise measure.launches or measure.repetitions, then {again}")
        output.emit(f"  experiment #{finding.experiment_id}, {finding.created_at}")
    return 0


def finding_compare(
    first: FindingName, second: FindingName, state: options.State = None, as_json: options.Json = False
) -> int:
    """Put two findings side by side, and say what was not the same: host, settings, changes, the server's own words.

    Example: orchestrator finding compare 2 5
    """
    from orchestrator.controller.records import named_finding, open_records
    from orchestrator.controller.why import why_not_reproduced

    with open_records(options.settings(state).state.value) as ledger:
        pair = [named_finding(ledger, first), named_finding(ledger, second)]
        answer = why_not_reproduced(ledger, *pair)
    if as_json:
        output.emit_json({"first": pair[0], "second": pair[1], **answer.data})
        return 0
    rows = [(label, *(_cell(f, label) for f in pair)) for label in _COMPARED]
    output.emit_table(("", f"finding {pair[0].id}", f"finding {pair[1].id}"), rows)
    _show(answer)
    return 0


_COMPARED = (
    "hypothesis",
    "host",
    "context",
    "verdict",
    "effect",
    "interval",
    "baseline",
    "treatment",
    "launches",
    "cause",
)


def _cell(f: FindingRecord, label: str) -> object:
    named: dict[str, object] = {
        "hypothesis": f.hypothesis_id, "effect": percent(f.effect), "interval": interval(f.low, f.high),
        "launches": f"{f.baseline_launches} + {f.treatment_launches}",
        "baseline": f"{f.baseline:.4g} {f.metric}" if f.baseline is not None else None,
        "treatment": f"{f.treatment:.4g} {f.metric}" if f.treatment is not None else None,
    }  # fmt: skip
    return named[label] if label in named else getattr(f, label)


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
    diff: Annotated[bool, typer.Option("--diff", help="Print what was changed in files.")] = False,
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
        output.emit(
            f"  {experiment.started_at[:19]}Z to {(experiment.ended_at or 'now')[:19]}, run #{experiment.run_id}"
        )
        for each in experiment.changes:
            output.emit(f"  change: {change(each)}")
        if experiment.cause:
            output.emit(f"  cause: {experiment.cause}")
        for finding in ledger.findings(experiment_id=experiment.id):
            output.emit(f"  finding {finding.id}: {finding.summary}")
        for arm in experiment.arms:
            _show_arm(ledger, arm, with_log=log)
        if diff:
            _show_diff(ledger, experiment)
    return 0


def _show_arm(ledger: Ledger, arm: ArmRecord, *, with_log: bool) -> None:
    from orchestrator.report.launches import proof_sentence

    output.emit(f"  {arm.kind} {arm.number}: {proof_sentence(arm)}")
    for launch in arm.launches:
        value = launch.facts.get("value")
        shown = f"{value:.2f}" if isinstance(value, float) else "no value"
        ready = f", ready in {launch.ready_s:.1f} s" if launch.ready_s is not None else ""
        samples = f", {len(launch.samples)} samples" if launch.samples else ""
        output.emit(f"    {launch.launch_id}: {launch.outcome}, {shown}{ready}{samples}")
        if launch.cause:
            output.emit(f"      cause: {launch.cause}")
        for check in launch.facts.get("checks", []):
            word = {True: "holds", False: "DOES NOT HOLD", None: "not seen"}[check["holds"]]
            output.emit(f"      {check['what']}: {word} ({check['found']})")
        if launch.facts.get("gate"):
            output.emit(f"      {launch.facts['gate']}")
        if with_log and launch.log_artifact is not None:
            output.emit(ledger.read_artifact(launch.log_artifact).decode("utf-8", "replace"))


def _show_diff(ledger: Ledger, experiment: ExperimentRecord) -> None:
    from orchestrator.report.launches import file_diffs

    content = ledger.view(experiment.campaign).content
    for path, text in file_diffs(ledger.artifacts(experiment_id=experiment.id), content):
        output.emit(f"  {path}")
        output.emit(text.rstrip("\n"))


def why(
    which: Annotated[
        str, typer.Argument(metavar="ID|N|#N", help="A hypothesis, a finding, an experiment.", show_default=False)
    ],
    other: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[N]", help="A second finding: why are the two not the same?", show_default=False),
    ] = None,
    campaign: Campaign = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Say why: why a hypothesis is ranked where it is, why a verdict, why a second finding is not like the first.

    Example: orchestrator why fewer-channels
    """
    from orchestrator.controller.records import open_records

    with open_records(options.settings(state).state.value) as ledger:
        answers = _answers(ledger, which, other, campaign)
    if as_json:
        output.emit_json({"answers": [{"title": a.title, **a.data} for a in answers]})
    else:
        for answer in answers:
            _show(answer)
    return 0


def _answers(ledger: Ledger, which: str, other: str | None, campaign: str | None) -> list[Answer]:
    from orchestrator.controller.records import named_finding, only_campaign
    from orchestrator.controller.why import last_two, why_not_reproduced, why_ranked, why_verdict

    if other is not None:
        return [why_not_reproduced(ledger, named_finding(ledger, which), named_finding(ledger, other))]
    if which.startswith("#") or (which.isascii() and which.isdigit()):
        return [why_verdict(ledger, named_finding(ledger, which))]
    name = only_campaign(ledger, campaign)
    answers = [why_ranked(ledger, name, which)]
    found = last_two(ledger, name, which)
    answers += [why_verdict(ledger, found[-1])] if found else []
    answers += [why_not_reproduced(ledger, found[0], found[1])] if len(found) == 2 else []
    return answers


def _show(answer: Answer) -> None:
    output.emit(answer.title)
    for heading, lines in answer.parts:
        output.emit(f"  {heading}:")
        for line in lines:
            output.emit(f"    {line}")
