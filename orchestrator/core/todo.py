"""Where each row of the todo stands: what was found of it, its place with the reason, and what became of families."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.core import planning
from orchestrator.core.records import FindingRecord, TodoRow, Verdict

ASSUMED_COST_S = 3600.0
"""Of an experiment, until one was carried out."""


@dataclass(frozen=True)
class Standing:
    """A row, the findings on it (oldest first), and the sentence that says where it stands."""

    row: TodoRow
    findings: tuple[FindingRecord, ...]
    sentence: str
    became: str  # the same without what would reopen it

    @property
    def is_open(self) -> bool:
        return self.row.status in ("open", "running")


def findings_by_row(findings: Iterable[FindingRecord]) -> dict[str, list[FindingRecord]]:
    """Hypothesis → its findings, oldest first."""
    of: dict[str, list[FindingRecord]] = {}
    for finding in findings:
        if finding.hypothesis_id is not None:
            of.setdefault(finding.hypothesis_id, []).append(finding)
    return of


def members(rows: Sequence[TodoRow], findings: Iterable[FindingRecord]) -> list[planning.Member]:
    """Each row in its family, with the verdict that counts for it: its best one where it was judged in several
    contexts, none while one of them is open. What a person dropped is closed as not tried."""
    of = findings_by_row(findings)
    return [_member(row, of.get(row.id, [])) for row in rows]


def _member(row: TodoRow, found: Sequence[FindingRecord]) -> planning.Member:
    last = {(f.host, f.context): f for f in found if f.verdict not in planning.OPEN_VERDICTS}
    holding = [f for f in last.values() if f.reopened_at is None]
    won = next((f for f in holding if f.verdict is Verdict.improved), None)
    is_whole = len(holding) == len(last) and set(_contexts(row)) <= {f.context for f in holding}
    deciding = won or (holding[-1] if holding and (is_whole or row.status == "done") else None)
    if deciding is not None:
        why = deciding.cause or deciding.summary
        return planning.Member(row.id, row.family, deciding.verdict, why, deciding.depends_on)
    if row.status == "skipped":
        return planning.Member(row.id, row.family, Verdict.not_applicable, row.reason or "dropped")
    return planning.Member(row.id, row.family)


def _contexts(row: TodoRow) -> tuple[str, ...]:
    named = row.hypothesis.get("context") or ()
    return (named,) if isinstance(named, str) else tuple(named)


def record_without(everyone: Iterable[planning.Member], hypothesis_id: str, family: str) -> tuple[int, int]:
    """(wins, losses) of the other members of a family; of none where there is no family."""
    return planning.family_record((m for m in everyone if m.id != hypothesis_id), family) if family else (0, 0)


def rank_rows(
    rows: Sequence[TodoRow], findings: Sequence[FindingRecord], cost_s: float | None = None
) -> list[planning.Ranked]:
    """The order of all rows with reasons: expected gain × odds ÷ cost. The odds are those of the family so far, the
    cost is what an experiment of this campaign took; a person's word goes before the reckoning."""
    everyone = members(rows, findings)
    decided = [m.id for m in everyone if m.verdict is not None]
    return planning.rank(
        [
            planning.weigh(
                row.id,
                expected=row.expect,
                record=record_without(everyone, row.id, row.family),
                cost_s=cost_s or ASSUMED_COST_S,
                after=tuple(row.hypothesis.get("after") or ()),
                pin=row.pin,
            )
            for row in rows
        ],
        decided=decided,
    )


def announcements(
    rows: Sequence[TodoRow], findings: Sequence[FindingRecord], cost_s: float | None = None
) -> list[planning.ClosedFamily]:
    """Families whose members are all closed, or closed but for those that could not be tried, with what they have in
    common and the family that comes next."""
    order = [ranked.id for ranked in rank_rows(rows, findings, cost_s)]
    return planning.closed_families(members(rows, findings), order)


def standings(rows: Sequence[TodoRow], findings: Iterable[FindingRecord]) -> list[Standing]:
    """Each row with the sentence why it stands where it stands, in the order given."""
    of = findings_by_row(findings)
    return [
        Standing(
            row,
            tuple(of.get(row.id, ())),
            _sentence(row, of.get(row.id, ()), with_facts=True),
            _sentence(row, of.get(row.id, ()), with_facts=False),
        )
        for row in rows
    ]


def _sentence(row: TodoRow, found: Sequence[FindingRecord], *, with_facts: bool) -> str:
    if row.status == "skipped":
        return (
            f"dropped: {row.reason}" if row.reason and not row.reason.startswith("dropped") else row.reason or "dropped"
        )
    if row.status == "running":
        return row.reason or "running"
    last = {(f.host, f.context): f for f in found}
    with_context = len(last) > 1 or bool(_contexts(row))
    told = [_told(f, with_context=with_context, with_facts=with_facts) for f in last.values()]
    if row.status == "open":
        return "; ".join([*told, row.reason] if row.reason and row.reason not in told else told) or "never tried"
    return "; ".join(told) or row.reason or row.status


def _told(finding: FindingRecord, *, with_context: bool, with_facts: bool) -> str:
    where = f" in {finding.context}" if with_context else ""
    head = f"{finding.verdict}{where} (finding {finding.id})"
    if finding.reopened_at is not None:
        return f"reopened: was {head}; {finding.reopened_because}"
    why = f": {finding.cause}" if finding.cause else ""
    if not finding.closes or not with_facts:
        return f"{head}{why}"
    return f"{head}{why}; dead end {until(finding.depends_on)}"


def until(depends_on: Mapping[str, str]) -> str:
    """What reopens a dead end, in words. Settings that we keep as JSON are named only."""
    facts = [name if value.startswith(("{", "[")) or name.startswith("changes of ") else f"{name} {value}"
             for name, value in depends_on.items()]  # fmt: skip
    return f"until one of these changes: {', '.join(facts)}" if facts else "that nothing reopens by itself"
