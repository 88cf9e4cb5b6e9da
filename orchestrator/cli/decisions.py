"""`decision`, `insight`: what people concluded, linked to the findings it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from orchestrator.cli import options, output
from orchestrator.cli.selecting import Campaign, OnFindings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from orchestrator.core.records import DecisionRecord
    from orchestrator.ledger import Ledger

R = TypeVar("R")
Text = Annotated[str, typer.Argument(metavar="TEXT", help="In a sentence or two.", show_default=False)]


def add_decision(group: typer.Typer) -> None:
    group.command("add")(decision_add)
    group.command("list")(decision_list)


def add_insight(group: typer.Typer) -> None:
    group.command("add")(insight_add)
    group.command("list")(insight_list)


def decision_add(
    text: Text,
    finding: OnFindings = [],  # noqa: B006
    campaign: Campaign = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Keep a decision: what will be done, and why. It stands in every export.

    Example: orchestrator decision add "test the untested member alone" --finding 1
    """
    from orchestrator.controller.todo import decide

    _show([_keep(decide, text, finding, campaign, state)], "decision", as_json=as_json)
    return 0


def insight_add(
    text: Text,
    finding: OnFindings = [],  # noqa: B006
    campaign: Campaign = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Keep an insight: what was understood. It stands in every export.

    Example: orchestrator insight add "the number of calls is the cost, not the call" --finding 3 --finding 4
    """
    from orchestrator.controller.todo import conclude

    _show([_keep(conclude, text, finding, campaign, state)], "insight", as_json=as_json)
    return 0


def decision_list(campaign: Campaign = None, state: options.State = None, as_json: options.Json = False) -> int:
    """List the decisions of a campaign, oldest first.

    Example: orchestrator decision list
    """
    from orchestrator.controller.records import only_campaign, open_records

    with open_records(options.settings(state).state.value) as ledger:
        _show(ledger.decisions(only_campaign(ledger, campaign)), "decision", as_json=as_json, is_list=True)
    return 0


def insight_list(campaign: Campaign = None, state: options.State = None, as_json: options.Json = False) -> int:
    """List the insights of a campaign, oldest first.

    Example: orchestrator insight list
    """
    from orchestrator.controller.records import only_campaign, open_records

    with open_records(options.settings(state).state.value) as ledger:
        _show(ledger.insights(only_campaign(ledger, campaign)), "insight", as_json=as_json, is_list=True)
    return 0


def _keep(
    conclude: Callable[[Ledger, str, str, Sequence[int]], R],
    text: str,
    finding: Sequence[str],
    campaign: str | None,
    state: Path | None,
) -> R:
    from orchestrator.controller.records import named_finding, only_campaign, open_records

    with open_records(options.settings(state).state.value) as ledger:
        rests = [named_finding(ledger, which).id for which in finding]
        return conclude(ledger, only_campaign(ledger, campaign), text, rests)


def _show(rows: Sequence[DecisionRecord], word: str, *, as_json: bool, is_list: bool = False) -> None:
    if as_json:
        output.emit_json({f"{word}s": rows} if is_list else rows[0])
        return
    for row in rows:
        rests = f" (findings {', '.join(map(str, row.finding_ids))})" if row.finding_ids else ""
        output.emit(f"{word} {row.id}, {row.created_at[:10]}, {row.author or 'nobody named'}: {row.text}{rests}")
