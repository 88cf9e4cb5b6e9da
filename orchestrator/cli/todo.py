"""`todo`: the hypotheses of a campaign, what people do with them, and plans in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from orchestrator.cli import options, output
from orchestrator.cli.selecting import Because, Campaign, HypothesisId, OnFindings, percent
from orchestrator.errors import UsageError


def add(group: typer.Typer) -> None:
    group.command("list")(todo_list)
    group.command("show")(todo_show)
    group.command("add")(todo_add)
    group.command("rank")(todo_rank)
    group.command("drop")(todo_drop)
    group.command("import")(todo_import)
    group.command("export")(todo_export)


def todo_list(campaign: Campaign = None, state: options.State = None, as_json: options.Json = False) -> int:
    """List the hypotheses of a campaign, best first, with why each stands where it stands, and the closed families.

    Example: orchestrator todo list
    """
    from orchestrator.controller.records import only_campaign, open_records
    from orchestrator.controller.todo import view_todo

    with open_records(options.settings(state).state.value) as ledger:
        view = view_todo(ledger, only_campaign(ledger, campaign))
    if as_json:
        todo = [s.row.model_dump(mode="json") | {"stands": s.sentence} for s in view.standings]
        output.emit_json({"todo": todo, "families": [vars(f) for f in view.families]})
        return 0
    table = [
        (s.row.id, s.row.status, s.row.family or None, percent(s.row.expect),
         f"{s.row.rank:.2f}" if s.row.rank is not None else None, s.sentence)
        for s in view.standings
    ]  # fmt: skip
    output.emit_table(("hypothesis", "status", "family", "expected", "rank", "why"), table)
    for family in view.families:
        output.emit(family.sentence)
    return 0


def todo_show(
    which: HypothesisId,
    campaign: Campaign = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Show one hypothesis: claim, changes, conditions, rank, and every finding on it.

    Example: orchestrator todo show fewer-channels
    """
    from orchestrator.controller.records import only_campaign, open_records
    from orchestrator.controller.todo import known_row
    from orchestrator.core.todo import standings
    from orchestrator.report.text import change

    with open_records(options.settings(state).state.value) as ledger:
        name = only_campaign(ledger, campaign)
        row = known_row(ledger, name, which)
        findings = ledger.findings(name, hypothesis_id=which)
    if as_json:
        output.emit_json({"todo": row, "findings": findings})
        return 0
    said = row.hypothesis
    output.emit(f"{row.id}: {row.status}, {said.get('claim')}")
    origin = f"{row.origin} of {row.parent}" if row.parent else row.origin
    facts = [("why", said.get("why")), ("expected", percent(row.expect)), ("family", row.family), ("from", origin),
             ("bundle", said.get("bundle")), ("after", said.get("after")), ("requires", said.get("requires")),
             ("contexts", said.get("context")), ("rank", row.rank), ("ranked by", row.reason)]  # fmt: skip
    for label, value in facts:
        if value not in (None, "", [], {}):
            output.emit(f"  {label}: {', '.join(value) if isinstance(value, list) else value}")
    for each in said.get("changes", ()):
        output.emit(f"  change: {change(each)}")
    output.emit(f"  stands: {standings([row], findings)[0].sentence}")
    for finding in findings:
        output.emit(f"  finding {finding.id} ({finding.context}, {finding.created_at[:10]}): {finding.summary}")
    return 0


def todo_add(
    which: Annotated[str, typer.Argument(metavar="ID", help="A new name.", show_default=False)],
    claim: Annotated[str, typer.Option("--claim", help="One sentence.", show_default=False)],
    env: Annotated[list[str], typer.Option("--env", metavar="NAME=VALUE", help="A variable; NAME alone unsets.")] = [],  # noqa: B006
    flag: Annotated[
        list[str], typer.Option("--flag", metavar="NAME=VALUE", help="A server flag; NAME alone is bare.")
    ] = [],  # noqa: B006
    expect: Annotated[Optional[str], typer.Option("--expect", help="Expected gain, such as 5%.")] = None,  # noqa: UP045
    family: Annotated[str, typer.Option("--family", help="Approach that it belongs to.")] = "",
    why: Annotated[str, typer.Option("--why", help="What makes it likely.")] = "",
    bundle: Annotated[str, typer.Option("--bundle", help="Why several kinds of change go together.")] = "",
    after: Annotated[list[str], typer.Option("--after", metavar="ID", help="Decided before it.")] = [],  # noqa: B006
    requires: Annotated[
        list[str], typer.Option("--requires", metavar="WHAT", help="'sglang >=0.5', 'gpu_arch 12.0'.")
    ] = [],  # noqa: B006
    context: Annotated[list[str], typer.Option("--context", metavar="NAME", help="Judged there.")] = [],  # noqa: B006
    campaign: Campaign = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Add a hypothesis to the todo, ranked among the others. What changes files belongs in a playbook or a plan.

    Example: orchestrator todo add two-channels --claim "two channels are enough" --env NCCL_MAX_NCHANNELS=2 --expect 5%
    """
    from orchestrator.controller.plans import hypothesis_from_words
    from orchestrator.controller.records import only_campaign, open_records
    from orchestrator.controller.todo import add_row

    words = {"claim": claim, "why": why, "expect": expect, "family": family, "bundle": bundle}
    said = {**words, "after": after, "context": context}
    hypothesis = hypothesis_from_words(which, said, env=env, flags=flag, requires=requires)
    with open_records(options.settings(state).state.value) as ledger:
        row = add_row(ledger, only_campaign(ledger, campaign), hypothesis)
    if as_json:
        output.emit_json(row)
    else:
        output.emit(f"{row.id} is in the todo: {row.reason}")
    return 0


def todo_rank(
    which: Annotated[Optional[str], typer.Argument(metavar="ID", help="Left out: rank all of them anew.")] = None,  # noqa: UP045
    because: Annotated[Optional[str], typer.Option("--because", help="Why: kept as a decision.")] = None,  # noqa: UP045
    before: Annotated[Optional[str], typer.Option("--before", metavar="ID", help="Just above this one.")] = None,  # noqa: UP045
    worth: Annotated[
        float | None, typer.Option("--worth", help="Gain × odds in per cent, instead of the reckoning.")
    ] = None,
    by_reckoning: Annotated[bool, typer.Option("--by-reckoning", help="Take back what was ranked by hand.")] = False,
    finding: OnFindings = [],  # noqa: B006
    campaign: Campaign = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Rank anew from what is known, or move one hypothesis by hand: to the top, before another one, to a worth.

    Example: orchestrator todo rank expert-parallel --because "fewer calls beat faster calls" --finding 3
    """
    from orchestrator.controller.records import named_finding, only_campaign, open_records
    from orchestrator.controller.todo import rank_by_hand, rank_by_reckoning, rerank

    if which is not None and not because:
        raise UsageError("ranking by hand asks for a decision", hint="say why with --because TEXT")
    with open_records(options.settings(state).state.value) as ledger:
        name = only_campaign(ledger, campaign)
        if which is None:
            rerank(ledger, name)
        elif by_reckoning:
            rank_by_reckoning(ledger, name, which, because or "")
        else:
            rests = [named_finding(ledger, f).id for f in finding]
            rank_by_hand(ledger, name, which, because or "", worth=worth, before=before, finding_ids=rests)
        rows = [row for row in ledger.todo(name) if row.status in ("open", "running")]
    if as_json:
        output.emit_json({"todo": rows})
    else:
        table = [(n, row.id, f"{row.rank:.2f}" if row.rank is not None else None, row.reason)
                 for n, row in enumerate(rows, start=1)]  # fmt: skip
        output.emit_table(("", "hypothesis", "rank", "why"), table)
    return 0


def todo_drop(
    which: HypothesisId,
    because: Because,
    again: Annotated[bool, typer.Option("--take-up", help="The reverse: a dropped one is open again.")] = False,
    campaign: Campaign = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Drop a hypothesis: it is not carried out any more, and the decision says why.

    Example: orchestrator todo drop mscclpp --because "will not be installed on this host"
    """
    from orchestrator.controller.records import only_campaign, open_records
    from orchestrator.controller.todo import drop_row, take_up

    with open_records(options.settings(state).state.value) as ledger:
        act = take_up if again else drop_row
        row = act(ledger, only_campaign(ledger, campaign), which, because)
    if as_json:
        output.emit_json(row)
    else:
        output.emit(f"{row.id}: {row.reason}")
    return 0


def todo_import(
    plan: Annotated[Path, typer.Argument(metavar="FILE", help="A plan in Markdown.", show_default=False)],
    campaign: Annotated[Optional[str], typer.Option("--campaign", help="Made if it is new.")] = None,  # noqa: UP045
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Take in a plan in Markdown: `- [ ] id: claim` with `expect:`, `after:`, `change:` … below. All of it or nothing.

    Example: orchestrator todo import plan.md
    """
    from orchestrator.controller.plans import import_plan
    from orchestrator.controller.records import only_campaign, open_records

    with open_records(options.settings(state).state.value, create=campaign is not None) as ledger:
        if campaign is not None:
            ledger.add_campaign(campaign)
        done = import_plan(ledger, only_campaign(ledger, campaign), plan)
    if as_json:
        output.emit_json(vars(done))
        return 0
    for word, names in vars(done).items():
        if names and word != "unread":
            output.emit(f"{word.replace('_', ' ')}: {', '.join(names)}")
    for line in done.unread:
        output.emit(f"not taken in: {line}")
    return 0


def todo_export(
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--out", help="File to write; what was written there by hand since stays. Stdout otherwise."),
    ] = None,
    campaign: Campaign = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Give the plan back as people wrote it, with what became of each item, and the rows that it lacks at its end.

    Example: orchestrator todo export --out plan.md
    """
    from orchestrator.controller.plans import export_plan
    from orchestrator.controller.records import only_campaign, open_records, replace_text, text_of

    with open_records(options.settings(state).state.value) as ledger:
        name = only_campaign(ledger, campaign)
        base = text_of(out) if out is not None and out.exists() else None
        text = export_plan(ledger, name, base)
    if out is not None:
        replace_text(out, text)
    if as_json:
        output.emit_json({"file": str(out) if out is not None else None, "text": text})
    elif out is None:
        output.emit_text(text)
    else:
        output.emit(f"written: {out}")
    return 0
