"""One SQLite file, opened so that what was acknowledged survives kill -9 and a power cut.

Every write is a `BEGIN IMMEDIATE`: a transaction that reads first and writes later would fail the moment another
process wrote in between. WAL and `synchronous=FULL`: a commit that returned is on the disk.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from orchestrator.errors import Bug, Busy, OrchestratorError, Refused, UsageError
from orchestrator.ledger import schema

BUSY_TIMEOUT_S = 10.0


class Database:
    """One connection, used by one thread at a time. Another process has its own."""

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._begin = "BEGIN"
        self._is_writing = False
        self._is_spoiled = False
        if not create and not path.exists():
            raise UsageError(f"there is no ledger at {path}", hint="Check --state, or start a run there first.")
        with as_ours(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._engine = create_engine(
                "sqlite://",
                creator=lambda: sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False),
                poolclass=StaticPool,
                json_serializer=to_json,
            )
            event.listen(self._engine, "connect", _configure)
            event.listen(self._engine, "begin", lambda c: c.exec_driver_sql(self._begin))
            try:
                self._connection = self._engine.connect()
                self._prepare()
            except BaseException:
                self._engine.dispose()
                raise

    def _prepare(self) -> None:
        if self._pragma("journal_mode") == "wal":
            with self.read() as connection:
                if schema.revision(connection, self.path) == schema.HEAD:
                    return
        with _locked(self.path.with_suffix(".lock")):
            with self.read() as connection:
                schema.revision(connection, self.path)  # what is not ours is not touched
            if self._pragma("journal_mode = WAL") != "wal":
                raise Refused(
                    f"{self.path.parent} is on a file system without shared memory, which the ledger needs",
                    hint="Put the state directory on a local disk (--state).",
                )
            with self.write() as connection:
                schema.migrate(connection, self.path)

    def _pragma(self, text: str) -> str:
        with self._lock, as_ours(self.path):
            # Straight to the driver: SQLite refuses a change of journal mode inside a transaction.
            cursor = self._connection.connection.cursor()
            cursor.execute(f"PRAGMA {text}")
            value = cursor.fetchall()[0][0]
            cursor.close()
            return str(value)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A write transaction; inside another one of this thread, a part of it."""
        with self._lock:
            if self._is_writing:
                try:
                    with as_ours(self.path):
                        yield self._connection
                except BaseException:
                    self._is_spoiled = True  # half of a write must not be committed by whoever caught this
                    raise
                return
            with as_ours(self.path), self._transaction("BEGIN IMMEDIATE"):
                self._is_writing = True
                try:
                    yield self._connection
                    if self._is_spoiled:
                        raise Bug("a write inside this batch failed, so nothing of the batch was kept")
                finally:
                    self._is_writing = self._is_spoiled = False

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent snapshot; inside a write of this thread, the rows as that write sees them."""
        with self._lock, as_ours(self.path):
            if self._is_writing or self._connection.in_transaction():
                yield self._connection
                return
            with self._transaction("BEGIN"):
                yield self._connection

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._begin = begin
        with self._connection.begin():
            yield

    def backup(self, target: Path) -> None:
        """A consistent copy, while others write. `target` must not exist."""
        if target.exists():
            raise Refused(f"{target} exists", hint="Name a file that does not exist yet.")
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with as_ours(self.path):
                source, copy = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S), sqlite3.connect(part)
                try:
                    source.backup(copy)
                    copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a companion
                finally:
                    copy.close()
                    source.close()
                sync_path(part)
                part.replace(target)
                sync_path(target.parent)
        finally:
            part.unlink(missing_ok=True)

    def close(self) -> None:
        with self._lock:
            self._connection.close()
            self._engine.dispose()


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # BEGIN is ours to say; see the `begin` listener
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time prepares a file: SQLite does not wait for a change of journal mode."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Busy("another process is preparing the ledger", facts={"lock": str(path)}) from None
                time.sleep(0.01)
        yield


@contextmanager
def as_ours(path: Path) -> Iterator[None]:
    """No `sqlalchemy`, `sqlite3` or `OSError` passes this room."""
    try:
        yield
    except OrchestratorError:
        raise
    except DBAPIError as error:
        raise _translate(error.orig or error, path) from error
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    except OSError as error:
        where = str(error.filename or path)
        raise Refused(f"{where}: {error.strerror or error}", facts={"file": where}) from error


def _translate(error: BaseException, path: Path) -> OrchestratorError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    facts = {"file": str(path), "sqlite": f"{getattr(error, 'sqlite_errorname', 'error')}: {error}"}
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy(f"another process has been writing to the ledger for over {BUSY_TIMEOUT_S:g} s", facts=facts)
    if code == sqlite3.SQLITE_NOTADB:
        return UsageError(f"{path} is not a ledger", facts=facts, hint="Give another state directory with --state.")
    if code == sqlite3.SQLITE_CORRUPT:
        return Refused(f"{path} is damaged", facts=facts, hint="Put a backup in its place.")
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        return Refused(f"the ledger cannot be read or written: {error}", facts=facts)
    return Bug(f"the ledger refused a row: {error}", facts=facts)


def to_json(value: Any) -> str:  # noqa: ANN401 - whatever JSON can hold
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def sync_path(path: Path) -> None:
    """Make a file's content, or a folder's names, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
