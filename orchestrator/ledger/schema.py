"""Which schema a file has, and bringing it to ours. Alembic is imported only when there is something to do."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

from orchestrator.errors import Refused, UsageError

HEAD = "0004"
"""The newest revision in `migrations/versions`."""


def revision(connection: Connection, path: Path) -> str | None:
    """The revision of an open file, None for an empty one. A database that is not ours → `UsageError`."""
    tables = {row[0] for row in connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None
    if "alembic_version" not in tables:
        raise UsageError(
            f"{path} is a database, but not a ledger",
            facts={"file": str(path), "tables": ", ".join(sorted(tables)[:8])},
            hint="Give another state directory with --state.",
        )
    row = connection.exec_driver_sql("SELECT version_num FROM alembic_version").first()
    return str(row[0]) if row else None


def migrate(connection: Connection, path: Path) -> None:
    """Bring the file to `HEAD` inside the caller's write transaction. A newer schema → `Refused`."""
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    found = revision(connection, path)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise Refused(
            f"{path} was written by a newer version of this program",
            facts={"file": str(path), "its schema": found, "newest known here": HEAD},
            hint="Use the newer version, or another state directory (--state).",
        )
    command.upgrade(config, "head")
