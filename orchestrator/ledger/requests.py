"""What people asked of the process that runs experiments: rows that it takes, carries out and answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Index
from sqlmodel import Field

from orchestrator.core.requests import ActionName, RequestRecord, RequestState
from orchestrator.errors import Bug
from orchestrator.ledger.base import change, columns, pick, record, records
from orchestrator.ledger.tables import JSON_TEXT, Table
from orchestrator.ledger.trail import Trail


class RequestTable(Table, table=True):
    __tablename__ = "request"
    __table_args__ = (Index("request_by_host", "host", "state"),)
    id: int | None = Field(default=None, primary_key=True)
    action: str
    host: str = Field(foreign_key="host.name")
    run_id: int | None = Field(default=None, foreign_key="run.id")
    arguments: dict[str, Any] = Field(sa_type=JSON_TEXT)
    asked_by: str
    asked_at: str
    state: str
    taken_by: int | None = None
    taken_at: str | None = None
    ended_at: str | None = None
    answer: str
    result: dict[str, Any] = Field(sa_type=JSON_TEXT)


_request = columns(RequestTable).c


class Requests(Trail):
    def ask(
        self,
        action: ActionName,
        host: str,
        *,
        asked_by: str,
        run_id: int | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> RequestRecord:
        """`run_id`: the run it is meant for; another one does not take it."""
        with self._database.write():
            self._add_host(host)
            values = {
                "action": action, "host": host, "run_id": run_id, "arguments": dict(arguments or {}),
                "asked_by": asked_by, "asked_at": self._now(), "state": "waiting", "answer": "", "result": {},
            }  # fmt: skip
            asked = record(RequestRecord, self._insert(RequestTable, values))
            said = {"request": asked.id, "action": action, "by": asked_by, "arguments": dict(arguments or {})}
            self.note("request", said, host=host, run_id=run_id)
            return asked

    def take_request(
        self, host: str, *, pid: int, run_id: int | None = None, actions: Iterable[str] = (), only: int | None = None
    ) -> RequestRecord | None:
        """The oldest request that waits for this host and is for this run or for none, now taken; None when there is
        none. `actions`: of these alone; `only`: this one alone."""
        query = pick(RequestTable).where(_request.host == host, _request.state == "waiting").order_by(_request.id)
        query = query.where(_request.run_id.is_(None) | (_request.run_id == run_id))
        if names := list(actions):
            query = query.where(_request.action.in_(names))
        if only is not None:
            query = query.where(_request.id == only)
        if self._row(query) is None:  # the usual case takes no write lock
            return None
        with self._database.write():
            row = self._row(query)
            if row is None:
                return None
            taken = {"state": "taken", "taken_by": pid, "taken_at": self._now()}
            self._update(change(RequestTable).where(_request.id == row["id"]), taken)
            return self.request(row["id"])

    def answer_request(
        self, request_id: int, state: RequestState, answer: str, result: Mapping[str, Any] | None = None
    ) -> RequestRecord:
        """How it came out. A request that has been answered already → `Bug`."""
        open_one = (_request.id == request_id, _request.state.in_(("waiting", "taken")))
        values = {"state": state, "answer": answer, "result": dict(result or {}), "ended_at": self._now()}
        with self._database.write():
            if state in ("waiting", "taken") or not self._update(change(RequestTable).where(*open_one), values):
                raise Bug(f"request {request_id} cannot be answered as {state!r}: it is unknown, or has been answered")
            answered = self.request(request_id)
            said = {"request": request_id, "action": answered.action, "state": state, "answer": answer}
            self.note("request", said, host=answered.host, run_id=answered.run_id)
            return answered

    def request(self, request_id: int) -> RequestRecord:
        return record(RequestRecord, self._required(RequestTable, request_id, "request"))

    def requests(self, host: str | None = None) -> list[RequestRecord]:
        """Oldest first."""
        query = pick(RequestTable).order_by(_request.id)
        return records(RequestRecord, self._rows(query if host is None else query.where(_request.host == host)))

    def refuse_requests_of(self, run_id: int, because: str) -> None:
        """What was meant for a run that has ended will not be carried out by anybody."""
        waiting = pick(RequestTable).where(_request.run_id == run_id, _request.state.in_(("waiting", "taken")))
        with self._database.write():
            for row in self._rows(waiting):
                self.answer_request(row["id"], "refused", because)
