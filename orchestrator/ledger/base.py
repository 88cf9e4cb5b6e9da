"""What every part of the ledger is built on: insert a mapping, read a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy import Insert, Select, Update, insert, select, update
from sqlmodel import SQLModel

from orchestrator.core.model import Model
from orchestrator.core.ports import Clock
from orchestrator.errors import Bug, UsageError
from orchestrator.ledger.database import Database
from orchestrator.ledger.tables import HostTable

R = TypeVar("R", bound=Model)
Row = dict[str, Any]
Mask = Callable[[Any], Any]

OUR_WORDS = frozenset(
    {
        "id", "name", "campaign", "host", "hypothesis_id", "context", "family", "parent", "state", "status", "origin",
        "kind", "verdict", "outcome", "phase", "metric", "direction", "keep", "path", "sha256", "digest",
        "playbook_digest", "text_sha256", "launch_id", "at", "first_seen", "last_seen",
    }
)  # fmt: skip
"""Columns of names, words and digests of ours: a secret that is spelled `done` must not break them."""


class Part:
    """Base of the parts that make up a `Ledger`."""

    def __init__(self, database: Database, clock: Clock, mask: Mask) -> None:
        self._database = database
        self._clock = clock
        self._mask = mask

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Several writes, one commit: all of them or none. They are durable when the block has ended, so an act that
        was announced inside comes after it."""
        with self._database.write():
            yield

    def _now(self) -> str:
        return timestamp(self._clock.now())

    def _clean(self, value: Any) -> Any:  # noqa: ANN401 - text or anything JSON can hold
        return storable(self._mask(value))

    def _clean_row(self, values: Mapping[str, Any]) -> Row:
        return {k: storable(v) if k in OUR_WORDS or k.endswith("_at") else self._clean(v) for k, v in values.items()}

    def _insert(self, table: type[SQLModel], values: Mapping[str, Any]) -> Row:
        """The row as stored: masked, with its key."""
        row = self._clean_row(values)
        with self._database.write() as connection:
            key = connection.execute(_insert_into(table), row).lastrowid
        return {_key_of(table).name: key} | row

    def _insert_all(self, table: type[SQLModel], rows: Sequence[Mapping[str, Any]]) -> None:
        if not rows:
            return
        clean = [self._clean_row(r) for r in rows]
        with self._database.write() as connection:
            connection.execute(_insert_into(table), clean)

    def _update(self, statement: Update, values: Mapping[str, Any]) -> int:
        """Rows changed."""
        with self._database.write() as connection:
            return int(connection.execute(statement.values(**self._clean_row(values))).rowcount)

    def _rows(self, statement: Select[Any]) -> list[Row]:
        with self._database.read() as connection:
            return [dict(row) for row in connection.execute(statement).mappings()]

    def _row(self, statement: Select[Any]) -> Row | None:
        with self._database.read() as connection:
            row = connection.execute(statement).mappings().first()
            return None if row is None else dict(row)

    def _required(self, table: type[SQLModel], key: int | str, what: str) -> Row:
        row = self._row(pick(table).where(_key_of(table) == key))
        if row is None:
            raise UsageError(f"there is no {what} {key if isinstance(key, str) else f'#{key}'} in the ledger")
        return row

    def _add_host(self, name: str) -> None:
        if self._row(pick(HostTable).where(columns(HostTable).c.name == name)) is None:
            self._insert(HostTable, {"name": name, "state": "clean", "reason": "", "since": self._now()})


@cache
def _key_of(table: type[SQLModel]) -> Any:  # noqa: ANN401 - a column
    return next(iter(columns(table).primary_key))


@cache
def _insert_into(table: type[SQLModel]) -> Insert:
    return insert(columns(table))


def columns(table: type[SQLModel]) -> Any:  # noqa: ANN401 - SQLModel does not declare `__table__`
    """The table behind a class, whose `.c` are its columns."""
    return table.__table__  # type: ignore[attr-defined]


def change(table: type[SQLModel]) -> Update:
    return update(columns(table))


def pick(table: type[SQLModel]) -> Select[Any]:
    return select(columns(table))


def record(cls: type[R], row: Mapping[str, Any], **more: Any) -> R:  # noqa: ANN401 - fields of `cls`
    """A row as its record. A row that does not fit was not written by us: `Bug`, with what is wrong."""
    fields = cls.model_fields  # looked up once: it is made anew at every look
    try:
        return cls.model_validate({k: v for k, v in row.items() if k in fields} | more)
    except ValidationError as error:
        first = error.errors()[0]
        raise Bug(
            f"a row of the ledger does not read back as {cls.__name__}: {first['msg']}",
            facts={"field": ".".join(map(str, first["loc"])), "row": str(dict(row))[:200]},
            hint="orchestrator ledger check",
        ) from error


def records(cls: type[R], rows: Iterable[Mapping[str, Any]]) -> list[R]:
    return [record(cls, row) for row in rows]


def timestamp(epoch_s: float) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def storable(value: Any) -> Any:  # noqa: ANN401 - text or anything JSON can hold
    """Host output is not always UTF-8: bytes that were kept as lone surrogates become `\\udcXX` in the text."""
    if isinstance(value, str):
        return str(value) if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {storable(str(k)): storable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [storable(v) for v in value]
    return value
