"""Campaigns, runs, hosts and the todo."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select

from orchestrator.core.model import Hypothesis, Inventory
from orchestrator.core.records import (
    CampaignRecord,
    FingerprintRecord,
    HostRecord,
    RunRecord,
    RunState,
    TodoOrigin,
    TodoRow,
    TodoStatus,
)
from orchestrator.errors import Bug, UsageError
from orchestrator.ledger.base import Part, Row, change, columns, pick, record, records
from orchestrator.ledger.database import to_json
from orchestrator.ledger.tables import (
    CampaignTable,
    ExperimentTable,
    FingerprintTable,
    HostTable,
    HypothesisTable,
    InventoryTable,
    PlanTable,
    RunTable,
)

_run, _todo, _host = columns(RunTable).c, columns(HypothesisTable).c, columns(HostTable).c
_fingerprint, _inventory, _plan = columns(FingerprintTable).c, columns(InventoryTable).c, columns(PlanTable).c


class Campaigns(Part):
    def add_campaign(
        self, name: str, *, description: str | None = None, measure: Mapping[str, Any] | None = None
    ) -> CampaignRecord:
        """The campaign of that name, made if absent; what is given replaces what is stored."""
        given = {"description": description, "measure": None if measure is None else dict(measure)}
        given = {k: v for k, v in given.items() if v is not None}
        with self._database.write():
            if self._row(pick(CampaignTable).where(columns(CampaignTable).c.name == name)) is None:
                empty = {"description": "", "measure": {}, "created_at": self._now()}
                self._insert(CampaignTable, {"name": name} | empty | given)
            elif given:
                self._update(change(CampaignTable).where(columns(CampaignTable).c.name == name), given)
            return self.campaign(name)

    def campaign(self, name: str) -> CampaignRecord:
        return record(CampaignRecord, self._required(CampaignTable, name, "campaign"))

    def campaigns(self) -> list[CampaignRecord]:
        return records(CampaignRecord, self._rows(pick(CampaignTable).order_by(columns(CampaignTable).c.name)))


class Runs(Campaigns):
    def start_run(
        self,
        campaign: str,
        playbook_digest: str,
        host: str,
        playbook_text: str,
        *,
        description: str | None = None,
        measure: Mapping[str, Any] | None = None,
        pid: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> RunRecord:
        with self._database.write():
            self.add_campaign(campaign, description=description, measure=measure)
            self._add_host(host)
            values = {
                "campaign": campaign, "host": host, "playbook_digest": playbook_digest,
                "playbook_text": playbook_text, "pid": pid, "options": dict(options or {}),
                "state": "running", "started_at": self._now(),
            }  # fmt: skip
            return record(RunRecord, self._insert(RunTable, values))

    def end_run(self, run_id: int, state: RunState) -> RunRecord:
        """An experiment of it that still runs is a `Bug`: end it, or `abort_open` the run, first."""
        experiment = columns(ExperimentTable).c
        running = select(experiment.id).where(experiment.run_id == run_id, experiment.state == "running")
        with self._database.write():
            stuck = [row["id"] for row in self._rows(running)]
            if stuck:
                raise Bug(f"run #{run_id} ends, but its experiments {stuck} still run")
            ended = change(RunTable).where(_run.id == run_id, _run.ended_at.is_(None))
            if state == "running" or not self._update(ended, {"state": state, "ended_at": self._now()}):
                raise Bug(f"run #{run_id} cannot end as {state!r}: it is unknown, or has ended")
            return self.run(run_id)

    def run(self, run_id: int) -> RunRecord:
        return record(RunRecord, self._required(RunTable, run_id, "run"))

    def runs(self, campaign: str | None = None) -> list[RunRecord]:
        """Oldest first."""
        query = pick(RunTable).order_by(_run.id)
        return records(RunRecord, self._rows(query if campaign is None else query.where(_run.campaign == campaign)))

    def unfinished_run(self, campaign: str | None = None, host: str | None = None) -> RunRecord | None:
        """The newest run that never ended: alive in another process, or killed."""
        query = pick(RunTable).where(_run.ended_at.is_(None)).order_by(_run.id.desc())
        if campaign is not None:
            query = query.where(_run.campaign == campaign)
        if host is not None:
            query = query.where(_run.host == host)
        row = self._row(query)
        return None if row is None else record(RunRecord, row)

    # ------------------------------------------------------------ hosts

    def quarantine(self, host: str, reason: str) -> HostRecord:
        """The host is not proved clean: it takes no work until `release`."""
        return self._set_host(host, "quarantined", reason)

    def release(self, host: str, reason: str) -> HostRecord:
        """Proved clean, or a person answers for it; `reason` says which."""
        return self._set_host(host, "clean", reason)

    def keep(self, host: str, kept: str | None) -> HostRecord:
        """What a campaign has left on the host, or None when that was taken back. A quarantine stays one."""
        with self._database.write():
            self._add_host(host)
            self._update(change(HostTable).where(_host.name == host), {"kept": kept, "since": self._now()})
            return _host_record(self._required(HostTable, host, "host"))

    def _set_host(self, name: str, state: str, reason: str) -> HostRecord:
        with self._database.write():
            self._add_host(name)
            values = {"state": state, "reason": reason, "since": self._now()}
            self._update(change(HostTable).where(_host.name == name), values)
            return _host_record(self._required(HostTable, name, "host"))

    def host(self, name: str) -> HostRecord | None:
        row = self._row(pick(HostTable).where(_host.name == name))
        return None if row is None else _host_record(row)

    def hosts(self) -> list[HostRecord]:
        return [_host_record(row) for row in self._rows(pick(HostTable).order_by(_host.name))]

    def fingerprint(self, host: str, facts: Mapping[str, Any]) -> FingerprintRecord:
        """The facts of a host; the same facts again only move `last_seen`."""
        clean = self._clean(dict(facts))
        digest = digest_of(clean)
        same = (_fingerprint.host == host, _fingerprint.digest == digest)
        with self._database.write():
            self._add_host(host)
            now = self._now()
            if not self._update(change(FingerprintTable).where(*same), {"last_seen": now}):
                row = {"host": host, "digest": digest, "facts": clean, "first_seen": now, "last_seen": now}
                self._insert(FingerprintTable, row)
            return records(FingerprintRecord, self._rows(pick(FingerprintTable).where(*same)))[0]

    def fingerprints(self, host: str | None = None) -> list[FingerprintRecord]:
        """Oldest first."""
        query = pick(FingerprintTable).order_by(_fingerprint.id)
        if host is not None:
            query = query.where(_fingerprint.host == host)
        return records(FingerprintRecord, self._rows(query))

    def remember_inventory(self, inventory: Inventory) -> None:
        """Kept as last seen, secrets masked; the same again adds no row."""
        body = self._clean(inventory.model_dump(mode="json", by_alias=True, exclude_unset=True))
        with self._database.write():
            last = self._row(pick(InventoryTable).order_by(_inventory.id.desc()))
            if last is None or last["digest"] != digest_of(body):
                row = {"seen_at": self._now(), "digest": digest_of(body), "body": body}
                self._insert(InventoryTable, row)

    def last_inventory(self) -> Inventory | None:
        row = self._row(pick(InventoryTable).order_by(_inventory.id.desc()))
        return None if row is None else record(Inventory, row["body"])


class Todo(Campaigns):
    def upsert_hypotheses(self, campaign: str, hypotheses: Iterable[Hypothesis]) -> list[TodoRow]:
        """Rows of a playbook, in its order. A known row keeps status and rank, unless its changes are other ones now:
        then it is open again, since what was found was found of something else."""
        with self._database.write():
            self.add_campaign(campaign)
            for hypothesis in hypotheses:
                known = self._todo_row(campaign, hypothesis.id)
                values = self._hypothesis_values(hypothesis)
                if known is None:
                    self._add_row(campaign, hypothesis.id, values, "playbook", None, "")
                    continue
                if known["hypothesis"]["changes"] != values["hypothesis"]["changes"] and known["status"] != "open":
                    values |= {"status": "open", "reason": "its changes are other ones now"}
                self._update(change(HypothesisTable).where(_todo.number == known["number"]), values)
            return self.todo(campaign)

    def add_todo(
        self,
        campaign: str,
        hypothesis: Hypothesis,
        *,
        origin: TodoOrigin,
        parent: str | None = None,
        reason: str = "",
    ) -> TodoRow:
        """A row that is not in the playbook. An id that is taken → `UsageError`."""
        with self._database.write():
            self.add_campaign(campaign)
            if self._todo_row(campaign, hypothesis.id) is not None:
                raise UsageError(f"campaign {campaign} already has a hypothesis {hypothesis.id}")
            self._add_row(campaign, hypothesis.id, self._hypothesis_values(hypothesis), origin, parent, reason)
            return self.todo_row(campaign, hypothesis.id)

    def _hypothesis_values(self, hypothesis: Hypothesis) -> dict[str, Any]:
        body = self._clean(hypothesis.model_dump(mode="json", by_alias=True, exclude_unset=True))
        return {"family": hypothesis.family, "expect": hypothesis.expect, "hypothesis": body}

    def _add_row(
        self, campaign: str, name: str, values: dict[str, Any], origin: str, parent: str | None, reason: str
    ) -> None:
        row = {"campaign": campaign, "id": name, "status": "open", "origin": origin, "parent": parent}
        self._insert(HypothesisTable, row | {"reason": reason, "added_at": self._now()} | values)

    def set_rank(self, campaign: str, hypothesis_id: str, rank: float | None, reason: str) -> TodoRow:
        return self._set_todo(campaign, hypothesis_id, {"rank": rank, "reason": reason})

    def pin(self, campaign: str, hypothesis_id: str, worth: float | None, decision_id: int | None) -> TodoRow:
        """A person's word on a row's gain × odds (per cent; from `planning.FIRST` on it goes before all), and the
        decision that says why; None takes it back. The next ranking keeps it."""
        return self._set_todo(campaign, hypothesis_id, {"pin": worth, "decision_id": decision_id})

    def set_status(self, campaign: str, hypothesis_id: str, status: TodoStatus, reason: str = "") -> TodoRow:
        return self._set_todo(campaign, hypothesis_id, {"status": status, "reason": reason})

    def reopen_row(self, campaign: str, hypothesis_id: str, reason: str) -> None:
        """A row that was done is open again; one that runs or was dropped stays so."""
        row = (_todo.campaign == campaign, _todo.id == hypothesis_id, _todo.status == "done")
        self._update(change(HypothesisTable).where(*row), {"status": "open", "reason": reason})

    def _set_todo(self, campaign: str, hypothesis_id: str, values: dict[str, Any]) -> TodoRow:
        with self._database.write():
            self._update(change(HypothesisTable).where(_todo.campaign == campaign, _todo.id == hypothesis_id), values)
            return self.todo_row(campaign, hypothesis_id)

    def todo(self, campaign: str) -> list[TodoRow]:
        """Ranked rows first, highest rank first, then in the order they were added."""
        order = (_todo.rank.is_(None), _todo.rank.desc(), _todo.number)
        return records(TodoRow, self._rows(pick(HypothesisTable).where(_todo.campaign == campaign).order_by(*order)))

    def keep_plan(self, campaign: str, text: str) -> None:
        """The plan that people wrote, as they wrote it; one for each campaign, the last one counts."""
        with self._database.write():
            self.add_campaign(campaign)
            values = {"text": text, "imported_at": self._now()}
            if not self._update(change(PlanTable).where(_plan.campaign == campaign), values):
                self._insert(PlanTable, {"campaign": campaign} | values)

    def plan(self, campaign: str) -> str | None:
        row = self._row(pick(PlanTable).where(_plan.campaign == campaign))
        return None if row is None else str(row["text"])

    def todo_row(self, campaign: str, hypothesis_id: str) -> TodoRow:
        row = self._todo_row(campaign, hypothesis_id)
        if row is None:
            raise UsageError(f"campaign {campaign} has no hypothesis {hypothesis_id}")
        return record(TodoRow, row)

    def _todo_row(self, campaign: str, hypothesis_id: str) -> Mapping[str, Any] | None:
        return self._row(pick(HypothesisTable).where(_todo.campaign == campaign, _todo.id == hypothesis_id))


def digest_of(value: object) -> str:
    """sha256 of the value as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(json.loads(to_json(value)), sort_keys=True).encode()).hexdigest()


def _host_record(row: Row) -> HostRecord:
    """A clean host on which something was kept is `kept`."""
    is_kept = row["state"] == "clean" and row["kept"] is not None
    return record(HostRecord, {**row, "state": "kept"} if is_kept else row)
