"""The ledger as those see it who only look: bounded questions, read-only, beside whoever writes.

Plain `sqlite3`, so that opening costs no import of the database libraries; every answer is limited, so that it costs
the same whether ten experiments or ten thousand lie behind it. Of one thread at a time.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from orchestrator.core.model import Model
from orchestrator.core.records import (
    ArmRecord,
    ExperimentRecord,
    FindingRecord,
    HostRecord,
    LaunchRecord,
    RunRecord,
    TodoRow,
)
from orchestrator.core.requests import RequestRecord
from orchestrator.errors import Refused, UsageError
from orchestrator.ledger.schema import HEAD

MOST_ROWS = 500
"""Of one list. A filter looks through all rows before this is applied."""
JSON_COLUMNS = frozenset(
    {"data", "facts", "changes", "proof", "argv", "options", "hypothesis", "evidence", "depends_on", "body", "result",
     "arguments", "measure"}
)  # fmt: skip
M = TypeVar("M", bound=Model)
Row = dict[str, Any]


class Watch:
    """Opened on a state directory. An older schema → `Refused`, with what brings it up to date."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.path = state_dir / "ledger.db"
        if not self.path.is_file():
            raise UsageError(f"there is no ledger at {self.path}", hint="Check --state, or start a run there first.")
        with self._as_ours():
            uri = f"file:{quote(str(self.path.resolve()))}?mode=ro"
            self._connection = sqlite3.connect(uri, uri=True, timeout=2.0, check_same_thread=False)
            self._connection.row_factory = sqlite3.Row
            found = self._connection.execute("SELECT version_num FROM alembic_version").fetchone()
        if found is None or found[0] != HEAD:
            raise Refused(
                f"{self.path} has the schema {found[0] if found else 'of no version'}, and {HEAD} is needed here",
                hint="orchestrator ledger check brings an older ledger up to date",
            )

    def close(self) -> None:
        self._connection.close()

    def version(self) -> int:
        """Another number than before: somebody has written."""
        return int(self._rows("PRAGMA data_version")[0]["data_version"])

    # ---------------------------------------------------------------- hosts and runs

    def hosts(self) -> list[HostRecord]:
        rows = self._rows("SELECT * FROM host ORDER BY state = 'quarantined' DESC, name LIMIT ?", MOST_ROWS)
        for row in rows:
            if row["state"] == "clean" and row["kept"] is not None:
                row["state"] = "kept"
        return [_record(HostRecord, row) for row in rows]

    def last_runs(self) -> dict[str, RunRecord]:
        """Host → its newest run, without the playbook's text."""
        fields = "id, campaign, host, playbook_digest, pid, options, state, started_at, ended_at"
        rows = self._rows(f"SELECT {fields} FROM run WHERE id IN (SELECT max(id) FROM run GROUP BY host)")  # noqa: S608
        return {row["host"]: _record(RunRecord, row) for row in rows}

    def latest_campaign(self) -> str | None:
        rows = self._rows("SELECT campaign FROM run ORDER BY id DESC LIMIT 1")
        return str(rows[0]["campaign"]) if rows else None

    def inventory(self) -> Row:
        """As last seen, as JSON; empty when none was."""
        rows = self._rows("SELECT body FROM inventory ORDER BY id DESC LIMIT 1")
        return dict(rows[0]["body"]) if rows else {}

    def facts(self, host: str) -> Row:
        rows = self._rows("SELECT facts FROM fingerprint WHERE host = ? ORDER BY last_seen DESC LIMIT 1", host)
        return dict(rows[0]["facts"]) if rows else {}

    # ---------------------------------------------------------------- what runs

    def current(self, run_id: int) -> ExperimentRecord | None:
        """The experiment that the run is at."""
        rows = self._rows("SELECT * FROM experiment WHERE run_id = ? ORDER BY id DESC LIMIT 1", run_id)
        return _record(ExperimentRecord, rows[0]) if rows and rows[0]["state"] == "running" else None

    def current_arm(self, experiment_id: int) -> ArmRecord | None:
        rows = self._rows("SELECT * FROM arm WHERE experiment_id = ? ORDER BY id DESC LIMIT 1", experiment_id)
        return _record(ArmRecord, rows[0]) if rows else None

    def phase_since(self, experiment_id: int) -> str | None:
        """When the last act of this experiment was announced."""
        rows = self._rows("SELECT at FROM event WHERE experiment_id = ? ORDER BY seq DESC LIMIT 1", experiment_id)
        return str(rows[0]["at"]) if rows else None

    def durations(self, campaign: str, host: str) -> list[float]:
        """Seconds that the last experiments with a launch took there, newest first."""
        return [
            float(row["seconds"])
            for row in self._rows(
                "SELECT (julianday(e.ended_at) - julianday(e.started_at)) * 86400 AS seconds FROM experiment e "
                "WHERE e.campaign = ? AND e.host = ? AND e.state = 'done' AND e.hypothesis_id IS NOT NULL "
                "AND EXISTS (SELECT 1 FROM arm WHERE arm.experiment_id = e.id) ORDER BY e.id DESC LIMIT 40",
                campaign,
                host,
            )
        ]

    def left(self, campaign: str) -> int:
        """Hypotheses that have no finding yet."""
        query = (
            "SELECT count(*) AS n FROM hypothesis h WHERE campaign = ? AND status IN ('open', 'running') "
            "AND NOT EXISTS (SELECT 1 FROM finding f WHERE f.campaign = h.campaign AND f.hypothesis_id = h.id)"
        )
        return int(self._rows(query, campaign)[0]["n"])

    # ---------------------------------------------------------------- lists

    def todo(self, campaign: str, filter_: str = "") -> list[TodoRow]:
        """What runs, then what is open, best first, then what is settled."""
        query = (
            "SELECT * FROM hypothesis WHERE campaign = ? AND (id LIKE ? ESCAPE '\\' OR family LIKE ? ESCAPE '\\' OR "
            "reason LIKE ? ESCAPE '\\' OR status LIKE ? ESCAPE '\\') ORDER BY CASE status WHEN 'running' THEN 0 WHEN "
            "'open' THEN 1 ELSE 2 END, rank IS NULL, rank DESC, number LIMIT ?"
        )
        return self._records(TodoRow, query, campaign, *[_like(filter_)] * 4, MOST_ROWS)

    def findings(self, campaign: str | None = None, filter_: str = "") -> list[FindingRecord]:
        """Newest first."""
        where = "campaign = ? AND" if campaign is not None else ""
        query = (
            f"SELECT * FROM finding WHERE {where} (hypothesis_id LIKE ? ESCAPE '\\' OR verdict LIKE ? ESCAPE '\\' "  # noqa: S608
            "OR host LIKE ? ESCAPE '\\' OR context LIKE ? ESCAPE '\\' OR summary LIKE ? ESCAPE '\\') "
            "ORDER BY id DESC LIMIT ?"
        )
        named = () if campaign is None else (campaign,)
        return self._records(FindingRecord, query, *named, *[_like(filter_)] * 5, MOST_ROWS)

    def changed_experiments(self, filter_: str = "") -> list[ExperimentRecord]:
        """Those that replaced bytes of files on a host, newest first."""
        query = (
            "SELECT * FROM experiment WHERE id IN "
            "(SELECT experiment_id FROM artifact WHERE kind IN ('found', 'patched')) "
            "AND (hypothesis_id LIKE ? ESCAPE '\\' OR host LIKE ? ESCAPE '\\') ORDER BY id DESC LIMIT ?"
        )
        return self._records(ExperimentRecord, query, *[_like(filter_)] * 2, MOST_ROWS)

    def proofs(self, experiment_ids: Sequence[int]) -> dict[int, bool]:
        """Experiment → whether every arm that changed something has a clean proof; absent while none has ended."""
        marks = ",".join("?" * len(experiment_ids))
        proved = "min(coalesce(json_extract(proof, '$.clean'), 0))"
        which = "json_array_length(changes) > 0 AND ended_at IS NOT NULL"
        query = (
            f"SELECT experiment_id, {proved} AS clean FROM arm WHERE experiment_id IN ({marks}) AND {which} "  # noqa: S608
            "GROUP BY experiment_id"
        )
        return {row["experiment_id"]: bool(row["clean"]) for row in self._rows(query, *experiment_ids)}

    def commands(self, filter_: str = "") -> list[Row]:
        """What was done on hosts and asked of us, newest first, with its outcome: `seq`, `at`, `kind`, `phase`,
        `host`, `experiment_id`, `data`, `outcome`, `ended_at`, `answer`."""
        query = (
            "SELECT e.seq, e.at, e.kind, e.phase, e.host, e.experiment_id, e.data, o.outcome, o.at AS ended_at, "
            "o.data AS answer FROM event e LEFT JOIN event o ON o.settles = e.seq WHERE e.kind != 'outcome' AND "
            "(? = '%%' OR e.phase LIKE ? ESCAPE '\\' OR e.host LIKE ? ESCAPE '\\' OR e.data LIKE ? ESCAPE '\\') "
            "ORDER BY e.seq DESC LIMIT ?"
        )
        rows = self._rows(query, *[_like(filter_)] * 4, MOST_ROWS)
        return [{**r, "answer": json.loads(r["answer"]) if r["answer"] else {}} for r in rows]

    def requests(self, host: str | None = None) -> list[RequestRecord]:
        """Newest first."""
        where, given = ("WHERE host = ?", (host,)) if host is not None else ("", ())
        return self._records(RequestRecord, f"SELECT * FROM request {where} ORDER BY id DESC LIMIT 200", *given)  # noqa: S608

    def last_look(self, host: str) -> RequestRecord | None:
        """The newest answer to who holds the host's GPUs and port."""
        query = (
            "SELECT * FROM request WHERE host = ? AND action IN ('look', 'reap') AND state = 'done' "
            "ORDER BY id DESC LIMIT 1"
        )
        found = self._records(RequestRecord, query, host)
        return found[0] if found else None

    # ---------------------------------------------------------------- details

    def experiment(self, experiment_id: int) -> ExperimentRecord:
        """With arms and launches, without samples. Unknown → `UsageError`."""
        rows = self._rows("SELECT * FROM experiment WHERE id = ?", experiment_id)
        if not rows:
            raise UsageError(f"there is no experiment #{experiment_id} in the ledger")
        arms = []
        for arm in self._rows("SELECT * FROM arm WHERE experiment_id = ? ORDER BY id", experiment_id):
            launches = self._records(LaunchRecord, "SELECT * FROM launch WHERE arm_id = ? ORDER BY id", arm["id"])
            arms.append(_record(ArmRecord, {**arm, "launches": launches}))
        return _record(ExperimentRecord, {**rows[0], "arms": arms})

    def images(self, experiment_id: int) -> list[tuple[str, bytes | None, bytes | None]]:
        """Path → the bytes as found and as patched, None where there were none or they are kept no more."""
        query = "SELECT * FROM artifact WHERE experiment_id = ? AND kind IN ('found', 'patched') ORDER BY id"
        sides: dict[str, dict[str, bytes | None]] = {}
        for row in self._rows(query, experiment_id):
            sides.setdefault(row["name"], {})[row["kind"]] = None if row["pruned_at"] else self._content(row["path"])
        return [(path, side.get("found"), side.get("patched")) for path, side in sides.items()]

    def last_log(self, experiment_id: int) -> str | None:
        """The log of its last launch that is kept, None when there is none."""
        query = (
            "SELECT path FROM artifact WHERE experiment_id = ? AND kind = 'log' AND pruned_at IS NULL "
            "ORDER BY id DESC LIMIT 1"
        )
        rows = self._rows(query, experiment_id)
        data = self._content(rows[0]["path"]) if rows else None
        return None if data is None else data.decode("utf-8", "replace")

    def last_experiment(self, host: str | None = None) -> int | None:
        """The newest with a launch."""
        where, given = ("AND e.host = ?", (host,)) if host is not None else ("", ())
        query = (
            "SELECT e.id FROM artifact a JOIN experiment e ON e.id = a.experiment_id "  # noqa: S608
            f"WHERE a.kind = 'log' {where} ORDER BY a.id DESC LIMIT 1"
        )
        rows = self._rows(query, *given)
        return int(rows[0]["id"]) if rows else None

    def _content(self, path: str) -> bytes | None:
        try:
            return gzip.decompress((self.state_dir / "artifacts" / path).read_bytes())
        except (OSError, EOFError, zlib.error):
            return None

    # ---------------------------------------------------------------- reading

    def _rows(self, query: str, *given: Any) -> list[Row]:  # noqa: ANN401 - what SQLite binds
        with self._as_ours():
            return [_row(row) for row in self._connection.execute(query, given)]

    def _records(self, cls: type[M], query: str, *given: Any) -> list[M]:  # noqa: ANN401 - what SQLite binds
        return [_record(cls, row) for row in self._rows(query, *given)]

    @contextmanager
    def _as_ours(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise Refused(f"the ledger cannot be read: {error}", facts={"file": str(self.path)}) from error


def _row(row: sqlite3.Row) -> Row:
    keys: Sequence[str] = row.keys()
    return {k: json.loads(row[k]) if k in JSON_COLUMNS and isinstance(row[k], str) else row[k] for k in keys}


def _record(cls: type[M], row: Row) -> M:
    return cls.model_validate({k: v for k, v in row.items() if k in cls.model_fields})


def _like(filter_: str) -> str:
    escaped = filter_.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
