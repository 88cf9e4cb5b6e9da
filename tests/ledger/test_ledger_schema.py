from __future__ import annotations

import contextlib
import fcntl
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

import orchestrator.ledger
from orchestrator.errors import Busy, Refused, UsageError
from orchestrator.ledger import Ledger, database, open_ledger, schema
from orchestrator.ledger.tables import Table
from tests.ledger.ledger_story import Clock

ROOT = Path(__file__).parents[2]


def dump(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        lines = list(connection.iterdump())
    connection.close()
    return lines


def test_an_empty_file_becomes_a_ledger_and_a_second_opening_changes_nothing(state_dir: Path, clock: Clock) -> None:
    """Migrations run from nothing, and are idempotent."""
    state_dir.mkdir()
    (state_dir / "ledger.db").touch()
    open_ledger(state_dir, clock=clock).close()
    first = dump(state_dir / "ledger.db")
    open_ledger(state_dir, clock=clock).close()
    assert dump(state_dir / "ledger.db") == first
    assert any("CREATE TABLE experiment" in line for line in first)


def test_head_is_the_newest_migration(ledger: Ledger) -> None:
    """The constant that spares the import of alembic names its only head."""
    config = Config()
    config.set_main_option("script_location", str(Path(orchestrator.ledger.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_heads() == [schema.HEAD]


def test_the_migrations_make_what_the_table_classes_say(ledger: Ledger, state_dir: Path) -> None:
    """Alembic finds no difference between the migrated file and the classes."""
    engine = create_engine(f"sqlite:///{state_dir / 'ledger.db'}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Table.metadata) == []
    engine.dispose()


def test_a_newer_schema_is_refused_and_left_alone(state_dir: Path, clock: Clock) -> None:
    """A file of a newer version is not written to, and the error says which schema it has."""
    open_ledger(state_dir, clock=clock).close()
    with sqlite3.connect(state_dir / "ledger.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0999'")
    connection.close()
    before = dump(state_dir / "ledger.db")
    with pytest.raises(Refused, match="newer version") as caught:
        open_ledger(state_dir, clock=clock)
    assert caught.value.facts["its schema"] == "0999"
    assert dump(state_dir / "ledger.db") == before


def test_a_file_that_is_no_database_is_a_usage_error(state_dir: Path, clock: Clock) -> None:
    """Some other file under our name is reported and keeps its bytes."""
    state_dir.mkdir()
    (state_dir / "ledger.db").write_bytes(b"not a database, but long enough to look like one\n" * 50)
    before = (state_dir / "ledger.db").read_bytes()
    with pytest.raises(UsageError, match="is not a ledger"):
        open_ledger(state_dir, clock=clock)
    assert (state_dir / "ledger.db").read_bytes() == before


def test_somebody_elses_database_is_a_usage_error(state_dir: Path, clock: Clock) -> None:
    """A database with other tables is reported and not changed."""
    state_dir.mkdir()
    with sqlite3.connect(state_dir / "ledger.db") as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    before = (state_dir / "ledger.db").read_bytes()
    with pytest.raises(UsageError, match="not a ledger"):
        open_ledger(state_dir, clock=clock)
    assert (state_dir / "ledger.db").read_bytes() == before


def test_a_damaged_ledger_is_refused(state_dir: Path, clock: Clock) -> None:
    """Overwritten pages are an error of ours with the file's name, not one of the database library."""
    with open_ledger(state_dir, clock=clock) as ledger:
        ledger.note("x", {"filler": "y" * 20_000})
    data = bytearray((state_dir / "ledger.db").read_bytes())
    data[100:4096] = b"\xff" * 3996
    (state_dir / "ledger.db").write_bytes(data)
    with pytest.raises(Refused, match="damaged"):
        open_ledger(state_dir, clock=clock)


def test_reading_where_nothing_is_makes_nothing(state_dir: Path, clock: Clock) -> None:
    """`create=False` on an empty place is a usage error and leaves no folder behind."""
    with pytest.raises(UsageError, match="no ledger"):
        open_ledger(state_dir, clock=clock, create=False)
    assert not state_dir.exists()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, clock: Clock) -> None:
    """A file where the state directory should be is an error of ours."""
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(Refused, match="state"):
        open_ledger(tmp_path / "state", clock=clock)


def test_many_processes_may_create_the_same_ledger_at_once(state_dir: Path) -> None:
    """Whoever is first migrates, the others wait, all end with the same ledger."""
    rounds, count = 4, 4
    code = (
        "import sys, time; from pathlib import Path; from orchestrator.ledger import open_ledger\n"
        "import alembic.command, orchestrator.ledger.store\n"  # so that they really meet
        "class C:\n"
        "    now = staticmethod(time.time); monotonic = staticmethod(time.monotonic)\n"
        "for line in sys.stdin:\n"
        "    with open_ledger(Path(sys.argv[1]) / line.strip(), clock=C()) as ledger: ledger.note('here')\n"
        "    print('done', flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(state_dir)]
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            )
            for _ in range(count)
        ]
        for number in range(rounds):
            for child in children:
                assert child.stdin is not None
                child.stdin.write(f"{number}\n")
                child.stdin.flush()
            for child in children:
                assert child.stdout is not None
                assert child.stdout.readline() == "done\n"
    for number in range(rounds):
        with open_ledger(state_dir / str(number), clock=Clock()) as ledger:
            assert len(ledger.events()) == count
            assert ledger.check() == []


def test_a_new_ledger_waits_for_whoever_prepares_it(
    state_dir: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite does not queue changes of journal mode, so a lock does; a ledger that is ready needs none."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.05)
    state_dir.mkdir()
    with (state_dir / "ledger.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="preparing the ledger"):
            open_ledger(state_dir, clock=clock)
        fcntl.flock(lock, fcntl.LOCK_UN)
        open_ledger(state_dir, clock=clock).close()
        fcntl.flock(lock, fcntl.LOCK_EX)
        open_ledger(state_dir, clock=clock).close()


def test_every_connection_is_durable_and_checks_references(ledger: Ledger) -> None:
    """WAL, synchronous=FULL, a busy timeout and foreign keys are set on the connection that writes."""
    pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    assert [ledger._database._pragma(p) for p in pragmas] == ["wal", "2", "1", "10000"]


def test_importing_the_room_loads_no_database_library() -> None:
    """`--help` stays quick: the libraries load in `open_ledger`."""
    code = "import sys, orchestrator.ledger; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = done.stdout.split()
    assert not {"sqlalchemy", "sqlmodel", "alembic", "sqlite3"} & set(loaded)
