"""The append-only trail: what is about to be done, how it came out, and what else is worth knowing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import and_, func, or_, select

from orchestrator.core.records import EventKind, EventRecord, Intent
from orchestrator.errors import Bug
from orchestrator.ledger.base import Part, columns, pick, record, records
from orchestrator.ledger.tables import EventTable, ExperimentTable, RunTable

PAGE = 500
_event, _experiment, _run = columns(EventTable).c, columns(ExperimentTable).c, columns(RunTable).c
_LAST = select(func.coalesce(func.max(_event.seq), 0).label("seq"))


class Trail(Part):
    def intend(
        self,
        phase: str,
        data: Mapping[str, Any] | None = None,
        *,
        experiment_id: int | None = None,
        host: str | None = None,
        run_id: int | None = None,
    ) -> Intent:
        """Committed when this returns (in a batch: when that has ended), so that the act may begin. Host and run are
        by default those of the experiment, the host that of the run."""
        values = self._append("intent", phase, data, experiment_id, host, run_id)
        return record(Intent, values)

    def settle(self, intent: EventRecord | int, outcome: str, data: Mapping[str, Any] | None = None) -> EventRecord:
        """How the act came out. An intent that has an outcome already, or is none → `Bug`."""
        seq = intent if isinstance(intent, int) else intent.seq
        with self._database.write():
            row = self._required(EventTable, seq, "event")
            if row["kind"] != "intent" or self._row(select(_event.seq).where(_event.settles == seq)) is not None:
                raise Bug(f"event {seq} ({row['kind']} {row['phase']}) has nothing to settle")
            where = (row["experiment_id"], row["host"], row["run_id"])
            return record(EventRecord, self._append("outcome", row["phase"], data, *where, seq, outcome))

    def note(
        self,
        phase: str,
        data: Mapping[str, Any] | None = None,
        *,
        experiment_id: int | None = None,
        host: str | None = None,
        run_id: int | None = None,
    ) -> EventRecord:
        return record(EventRecord, self._append("info", phase, data, experiment_id, host, run_id))

    def open_intents(self, host: str | None = None) -> list[Intent]:
        """Intents without an outcome, oldest first: what a crash has left undecided."""
        outcome = columns(EventTable).alias("outcome")
        query = (
            pick(EventTable)
            .outerjoin(outcome, outcome.c.settles == _event.seq)
            .where(_event.kind == "intent", outcome.c.seq.is_(None))
            .order_by(_event.seq)
        )
        return records(Intent, self._rows(query if host is None else query.where(_event.host == host)))

    def events(
        self,
        *,
        after: int = 0,
        run_id: int | None = None,
        experiment_id: int | None = None,
        host: str | None = None,
        kind: EventKind | None = None,
        phase: str | None = None,
        limit: int = PAGE,
    ) -> list[EventRecord]:
        """At most `limit` events with a seq above `after`, oldest first. Ask again with the last seq for the rest."""
        wanted = {
            _event.run_id: run_id, _event.experiment_id: experiment_id, _event.host: host,
            _event.kind: kind, _event.phase: phase,
        }  # fmt: skip
        query = pick(EventTable).where(_event.seq > after, *(c == v for c, v in wanted.items() if v is not None))
        return records(EventRecord, self._rows(query.order_by(_event.seq).limit(limit)))

    def each_event(self, campaign: str | None = None, *, host: str | None = None) -> Iterator[EventRecord]:
        """All events of a campaign's runs and what people did to it, or of the whole ledger, read page by page."""
        conditions = [] if host is None else [_event.host == host]
        if campaign is not None:
            runs = select(_run.id).where(_run.campaign == campaign)
            by_hand = and_(_event.run_id.is_(None), func.json_extract(_event.data, "$.campaign") == campaign)
            conditions.append(or_(_event.run_id.in_(runs), by_hand))
        last = 0
        while True:
            query = pick(EventTable).where(_event.seq > last, *conditions)
            page = records(EventRecord, self._rows(query.order_by(_event.seq).limit(PAGE)))
            if not page:
                return
            yield from page
            last = page[-1].seq

    def _append(
        self,
        kind: EventKind,
        phase: str,
        data: Mapping[str, Any] | None,
        experiment_id: int | None,
        host: str | None,
        run_id: int | None,
        settles: int | None = None,
        outcome: str | None = None,
    ) -> dict[str, Any]:
        with self._database.write():
            if experiment_id is not None and (host is None or run_id is None):
                of = self._row(select(_experiment.host, _experiment.run_id).where(_experiment.id == experiment_id))
                if of is None:
                    raise Bug(f"event {phase!r} of experiment #{experiment_id}, which does not exist")
                host, run_id = host or of["host"], run_id or of["run_id"]
            elif host is not None:
                self._add_host(host)
            elif run_id is not None:
                host = self._required(RunTable, run_id, "run")["host"]
            last = self._row(_LAST)
            values = {
                "seq": (last["seq"] if last else 0) + 1, "at": self._now(), "kind": kind, "phase": phase,
                "experiment_id": experiment_id, "host": host, "run_id": run_id, "settles": settles,
                "outcome": outcome, "data": dict(data or {}),
            }  # fmt: skip
            return self._insert(EventTable, values)
