"""What people do with the todo: add, rank, drop, decide, conclude. Every act is in the trail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.controller.acts import record_act, who
from orchestrator.controller.choose import keep_ranks
from orchestrator.core import planning, todo
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.core.model import Hypothesis
    from orchestrator.core.planning import ClosedFamily
    from orchestrator.core.records import DecisionRecord, InsightRecord, TodoRow
    from orchestrator.ledger import Ledger

ABOVE = 0.01
"""Per cent by which a row that was put before another one is worth more."""


@dataclass(frozen=True)
class TodoView:
    """The rows in their order with where each stands, and the families that are closed."""

    standings: Sequence[todo.Standing]
    families: Sequence[ClosedFamily]


def view_todo(ledger: Ledger, campaign: str) -> TodoView:
    rows, findings = ledger.todo(campaign), ledger.findings(campaign)
    families = todo.announcements(rows, findings, ledger.mean_cost_s(campaign))
    order = {ranked.id: n for n, ranked in enumerate(todo.rank_rows(rows, findings, ledger.mean_cost_s(campaign)))}
    places = {"running": 0, "open": 1, "done": 2, "skipped": 3}
    rows.sort(key=lambda row: (places[row.status], order[row.id]))
    return TodoView(todo.standings(rows, findings), families)


def rerank(ledger: Ledger, campaign: str) -> list[planning.Ranked]:
    """Rank and reason of every row, from what is known now."""
    ranked = todo.rank_rows(ledger.todo(campaign), ledger.findings(campaign), ledger.mean_cost_s(campaign))
    keep_ranks(ledger, campaign, ranked)
    return ranked


def known_row(ledger: Ledger, campaign: str, hypothesis_id: str) -> TodoRow:
    """Raises `UsageError` with the nearest name."""
    planning.refuse_unknown([hypothesis_id], [row.id for row in ledger.todo(campaign)])
    return ledger.todo_row(campaign, hypothesis_id)


def add_row(ledger: Ledger, campaign: str, hypothesis: Hypothesis, reason: str = "") -> TodoRow:
    """A hypothesis of a person's, ranked among the others."""
    refuse_patch_files(hypothesis)
    with ledger.batch():
        ledger.add_todo(campaign, hypothesis, origin="person", reason=reason)
        rerank(ledger, campaign)
        record_act(ledger, "todo_add", campaign, {"hypothesis": hypothesis.id})
        return ledger.todo_row(campaign, hypothesis.id)


def refuse_patch_files(hypothesis: Hypothesis) -> None:
    """A diff is read beside its playbook: a row of the ledger alone has no such place."""
    for change in hypothesis.changes:
        patch = getattr(change, "patch", None)
        if patch is not None and patch.files:
            raise UsageError(
                f"hypothesis {hypothesis.id} names the diff {patch.files[0]}, which only a playbook can carry",
                hint="add the row to the playbook, or write the change as edits: {file, find, replace}",
            )


def rank_by_hand(
    ledger: Ledger,
    campaign: str,
    hypothesis_id: str,
    because: str,
    *,
    worth: float | None = None,
    before: str | None = None,
    finding_ids: Sequence[int] = (),
) -> tuple[TodoRow, DecisionRecord]:
    """A row's gain × odds by a person's word (per cent), or just above another row, or before all. It stays until it
    is taken back, and the decision says why."""
    known_row(ledger, campaign, hypothesis_id)
    if before is not None:
        known_row(ledger, campaign, before)
        by_gain = todo.rank_rows(ledger.todo(campaign), ledger.findings(campaign))  # an hour each: gain × odds
        worth = next(r.score for r in by_gain if r.id == before) + ABOVE
    elif worth is None:
        worth = first_of_all(ledger, campaign)
    with ledger.batch():
        decision = decide(ledger, campaign, f"{hypothesis_id} goes {_place(before, worth)}: {because}", finding_ids)
        ledger.pin(campaign, hypothesis_id, worth, decision.id)
        rerank(ledger, campaign)
        return ledger.todo_row(campaign, hypothesis_id), decision


def first_of_all(ledger: Ledger, campaign: str) -> float:
    """A pin above every other one, and above all that is reckoned."""
    return max([planning.FIRST, *(row.pin for row in ledger.todo(campaign) if row.pin is not None)]) + 1.0


def _place(before: str | None, worth: float) -> str:
    if before is not None:
        return f"before {before}"
    return "before all others" if worth >= planning.FIRST else f"by a gain × odds of {worth:.2f} %"


def rank_by_reckoning(ledger: Ledger, campaign: str, hypothesis_id: str, because: str) -> TodoRow:
    """A person's word is taken back."""
    known_row(ledger, campaign, hypothesis_id)
    with ledger.batch():
        decide(ledger, campaign, f"{hypothesis_id} is ranked by reckoning again: {because}")
        ledger.pin(campaign, hypothesis_id, None, None)
        rerank(ledger, campaign)
        return ledger.todo_row(campaign, hypothesis_id)


def drop_row(ledger: Ledger, campaign: str, hypothesis_id: str, because: str) -> TodoRow:
    """A row that is not to be carried out; what was found of it stays. A running one → `UsageError`."""
    if known_row(ledger, campaign, hypothesis_id).status == "running":
        raise UsageError(f"{hypothesis_id} is running", hint="stop the run first (Ctrl-C)")
    with ledger.batch():
        decision = decide(ledger, campaign, f"{hypothesis_id} is dropped: {because}")
        ledger.set_status(campaign, hypothesis_id, "skipped", f"dropped: {because} (decision {decision.id})")
        return ledger.todo_row(campaign, hypothesis_id)


def take_up(ledger: Ledger, campaign: str, hypothesis_id: str, because: str) -> TodoRow:
    """A dropped row is open again."""
    if known_row(ledger, campaign, hypothesis_id).status != "skipped":
        raise UsageError(f"{hypothesis_id} was not dropped")
    with ledger.batch():
        decide(ledger, campaign, f"{hypothesis_id} is taken up again: {because}")
        ledger.set_status(campaign, hypothesis_id, "open", f"taken up again: {because}")
        rerank(ledger, campaign)
        return ledger.todo_row(campaign, hypothesis_id)


def decide(ledger: Ledger, campaign: str, text: str, finding_ids: Sequence[int] = ()) -> DecisionRecord:
    """What will be done, and why; linked to the findings it rests on."""
    with ledger.batch():
        decision = ledger.add_decision(text, finding_ids, campaign=campaign, author=who())
        record_act(ledger, "decision", campaign, {"decision": decision.id, "text": text})
        return decision


def conclude(ledger: Ledger, campaign: str, text: str, finding_ids: Sequence[int] = ()) -> InsightRecord:
    """What was understood; linked to the findings it rests on."""
    with ledger.batch():
        insight = ledger.add_insight(text, finding_ids, campaign=campaign, author=who())
        record_act(ledger, "insight", campaign, {"insight": insight.id, "text": text})
        return insight
