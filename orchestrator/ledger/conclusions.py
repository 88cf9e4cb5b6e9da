"""Findings, and the decisions and insights that rest on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import select
from sqlmodel import SQLModel

from orchestrator.core.planning import within
from orchestrator.core.records import Conclusion, DecisionRecord, FindingRecord, InsightRecord
from orchestrator.errors import Bug, UsageError
from orchestrator.ledger.base import Part, change, columns, pick, record, records
from orchestrator.ledger.tables import (
    DecisionFindingTable,
    DecisionTable,
    ExperimentTable,
    FindingTable,
    HypothesisTable,
    InsightFindingTable,
    InsightTable,
)

_finding, _todo = columns(FindingTable).c, columns(HypothesisTable).c
D = TypeVar("D", bound=DecisionRecord)


class Conclusions(Part):
    def add_finding(self, experiment_id: int, conclusion: Conclusion) -> FindingRecord:
        """Belongs in one batch with `end_experiment` of the same verdict: a finding of an experiment that never ended
        is an inconsistency."""
        with self._database.write():
            experiment = self._required(ExperimentTable, experiment_id, "experiment")
            family = select(_todo.family).where(
                _todo.campaign == experiment["campaign"], _todo.id == experiment["hypothesis_id"]
            )
            row = self._row(family)
            values = conclusion.model_dump(mode="json", include=set(Conclusion.model_fields)) | {
                "depends_on": within(experiment["context"], conclusion.depends_on),
                "experiment_id": experiment_id, "family": row["family"] if row else "", "created_at": self._now(),
                **{k: experiment[k] for k in ("campaign", "host", "context", "hypothesis_id")},
            }  # fmt: skip
            return record(FindingRecord, self._insert(FindingTable, values))

    def reopen(self, finding_id: int, because: str) -> FindingRecord:
        """A fact that a dead end depends on has changed: it closes nothing any more."""
        dead_end = (_finding.id == finding_id, _finding.closes, _finding.reopened_at.is_(None))
        with self._database.write():
            values = {"reopened_at": self._now(), "reopened_because": because}
            if not self._update(change(FindingTable).where(*dead_end), values):
                raise Bug(f"finding {finding_id} is no dead end")
            return self.finding(finding_id)

    def finding(self, finding_id: int) -> FindingRecord:
        return record(FindingRecord, self._required(FindingTable, finding_id, "finding"))

    def findings(
        self,
        campaign: str | None = None,
        *,
        host: str | None = None,
        context: str | None = None,
        hypothesis_id: str | None = None,
        experiment_id: int | None = None,
    ) -> list[FindingRecord]:
        """Oldest first."""
        wanted = {
            _finding.campaign: campaign, _finding.host: host, _finding.context: context,
            _finding.hypothesis_id: hypothesis_id, _finding.experiment_id: experiment_id,
        }  # fmt: skip
        query = pick(FindingTable).where(*(column == v for column, v in wanted.items() if v is not None))
        return records(FindingRecord, self._rows(query.order_by(_finding.id)))

    # ------------------------------------------------------------ what rests on them

    def add_decision(
        self, text: str, finding_ids: Sequence[int] = (), *, campaign: str | None = None, author: str = ""
    ) -> DecisionRecord:
        """`campaign` is by default that of the findings; one of the two must be given."""
        return self._conclude(DecisionRecord, text, finding_ids, campaign, author)

    def add_insight(
        self, text: str, finding_ids: Sequence[int] = (), *, campaign: str | None = None, author: str = ""
    ) -> InsightRecord:
        return self._conclude(InsightRecord, text, finding_ids, campaign, author)

    def decisions(self, campaign: str | None = None) -> list[DecisionRecord]:
        return self._concluded(DecisionRecord, campaign)

    def insights(self, campaign: str | None = None) -> list[InsightRecord]:
        return self._concluded(InsightRecord, campaign)

    def _conclude(self, cls: type[D], text: str, finding_ids: Sequence[int], campaign: str | None, author: str) -> D:
        table, links, key = _TABLES[cls]
        with self._database.write():
            of_findings = {self.finding(f).campaign for f in finding_ids}
            campaigns = of_findings | ({campaign} if campaign else set())
            if len(campaigns) != 1:
                found = ", ".join(sorted(campaigns)) or "none"
                raise UsageError(f"it must belong to exactly one campaign, by its findings or by name; found: {found}")
            values: dict[str, Any] = {
                "campaign": campaigns.pop(), "text": text, "author": author, "created_at": self._now(),
            }  # fmt: skip
            row = self._insert(table, values)
            distinct = tuple(dict.fromkeys(finding_ids))
            self._insert_all(links, [{key: row["id"], "finding_id": f} for f in distinct])
            return record(cls, row, finding_ids=distinct)

    def _concluded(self, cls: type[D], campaign: str | None) -> list[D]:
        table, links, key = _TABLES[cls]
        query = pick(table).order_by(columns(table).c.id)
        if campaign is not None:
            query = query.where(columns(table).c.campaign == campaign)
        with self._database.read():
            of: dict[int, list[int]] = {}
            for row in self._rows(pick(links)):
                of.setdefault(row[key], []).append(row["finding_id"])
            return [record(cls, row, finding_ids=of.get(row["id"], [])) for row in self._rows(query)]


_TABLES: dict[type[DecisionRecord], tuple[type[SQLModel], type[SQLModel], str]] = {
    DecisionRecord: (DecisionTable, DecisionFindingTable, "decision_id"),
    InsightRecord: (InsightTable, InsightFindingTable, "insight_id"),
}
