"""Files beside the ledger: `artifacts/ab/abcdef….gz`, named by the digest of what is inside.

A file is in place and synced before the row that names it is committed, and a row is marked as pruned before its file
goes. So a crash leaves at most a file without a row, which the next `prune` takes away; never a row without its file.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy import exists, func, or_, select

from orchestrator.core.ports import Clock
from orchestrator.core.records import ArtifactRecord
from orchestrator.errors import Refused
from orchestrator.ledger.base import Mask, Part, Row, change, columns, pick, record, records, timestamp
from orchestrator.ledger.database import Database, as_ours, sync_path
from orchestrator.ledger.tables import ArmTable, ArtifactTable, EventTable, ExperimentTable

Keep = Literal["always", "until_reverted", "until_old"]
KEPT: dict[str, Keep] = {"found": "until_reverted", "patched": "until_reverted", "log": "until_old"}
"""Kind → how long. Any other kind is kept always."""

_artifact, _arm, _event = columns(ArtifactTable).c, columns(ArmTable).c, columns(EventTable).c
_experiment = columns(ExperimentTable).c


@dataclass(frozen=True)
class Retention:
    """Logs older than `log_days` go, then the oldest logs until the folder holds at most `total_bytes`, then the
    pre-images of experiments proved reverted, oldest first."""

    log_days: float = 90.0
    total_bytes: int = 10 * 2**30


class Artifacts(Part):
    def __init__(self, database: Database, clock: Clock, mask: Mask) -> None:
        super().__init__(database, clock, mask)
        self._folder = database.path.parent / "artifacts"

    def add_artifact(
        self,
        kind: str,
        data: bytes,
        *,
        name: str,
        experiment_id: int | None = None,
        launch_id: int | None = None,
    ) -> ArtifactRecord:
        """Secrets are masked in it, except in pre-images (`found`, `patched`): those must come back byte for byte."""
        keep = KEPT.get(kind, "always")
        if keep != "until_reverted":
            text = data.decode("utf-8", "surrogateescape")
            masked = self._mask(text)
            data = data if masked == text else masked.encode("utf-8", "surrogateescape")
        sha256 = hashlib.sha256(data).hexdigest()
        packed = gzip.compress(data, compresslevel=6, mtime=0)
        path = f"{sha256[:2]}/{sha256}.gz"
        # Inside the write transaction: `prune` removes files in one too, and so never this one.
        with self._database.write(), as_ours(self._folder):
            self._place(self._folder / path, packed)
            values = {
                "kind": kind, "name": name, "sha256": sha256, "size": len(data), "stored_size": len(packed),
                "path": path, "keep": keep, "experiment_id": experiment_id, "launch_id": launch_id,
                "created_at": self._now(),
            }  # fmt: skip
            return record(ArtifactRecord, self._insert(ArtifactTable, values))

    def _place(self, path: Path, packed: bytes) -> None:
        if path.exists():
            return
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            for folder in (self._folder, self._folder.parent):
                sync_path(folder)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            file.write(packed)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_path(path.parent)

    def artifact(self, artifact_id: int) -> ArtifactRecord:
        return record(ArtifactRecord, self._required(ArtifactTable, artifact_id, "artifact"))

    def artifacts(self, *, experiment_id: int | None = None, launch_id: int | None = None) -> list[ArtifactRecord]:
        """Oldest first."""
        query = pick(ArtifactTable).order_by(_artifact.id)
        if experiment_id is not None:
            query = query.where(_artifact.experiment_id == experiment_id)
        if launch_id is not None:
            query = query.where(_artifact.launch_id == launch_id)
        return records(ArtifactRecord, self._rows(query))

    def find_content(self, sha256: str) -> bytes | None:
        """Bytes with this digest, if any artifact still holds them."""
        query = pick(ArtifactTable).where(_artifact.sha256 == sha256, _artifact.pruned_at.is_(None))
        for row in self._rows(query):
            problem, data = read_packed(self._folder / row["path"], sha256)
            if problem is None:
                return data
        return None

    def images(self, host: str, kind: Literal["found", "patched"]) -> dict[str, bytes]:
        """Path → the newest bytes of that kind which this ledger put aside for a file of the host."""
        query = (
            pick(ArtifactTable)
            .join(columns(ExperimentTable), _experiment.id == _artifact.experiment_id)
            .where(_experiment.host == host, _artifact.kind == kind, _artifact.pruned_at.is_(None))
        )
        newest = {r["name"]: r["sha256"] for r in self._rows(query.order_by(_artifact.id))}
        contents = {path: self.find_content(sha256) for path, sha256 in newest.items()}
        return {path: data for path, data in contents.items() if data is not None}

    def read_artifact(self, artifact_id: int) -> bytes:
        """Pruned, gone or damaged → `Refused`."""
        found = self.artifact(artifact_id)
        if found.pruned_at is not None:
            raise Refused(f"artifact #{found.id} ({found.name}) was pruned at {found.pruned_at}")
        problem, data = read_packed(self._folder / found.path, found.sha256)
        if problem:
            raise Refused(f"artifact #{found.id} ({found.name}) {problem}", facts={"file": found.path})
        return data

    def prune(self, keep: Retention = Retention()) -> list[ArtifactRecord]:
        """What was given up. The row and its digest stay; the file goes unless another row needs the same bytes."""
        with self._database.write():
            given_up = self._choose(keep)
            now = self._now()
            for artifact_id in given_up:
                self._update(change(ArtifactTable).where(_artifact.id == artifact_id), {"pruned_at": now})
        self._sweep()
        return [self.artifact(artifact_id) for artifact_id in given_up]

    def _choose(self, keep: Retention) -> list[int]:
        live = _artifact.pruned_at.is_(None)
        logs = self._rows(pick(ArtifactTable).where(live, _artifact.keep == "until_old").order_by(_artifact.id))
        oldest = timestamp(self._clock.now() - keep.log_days * 86400)
        chosen = [r["id"] for r in logs if r["created_at"] < oldest]
        total = self._row(
            select(func.sum(_artifact.stored_size).label("total")).where(live, _artifact.id.not_in(chosen))
        )
        excess = int((total and total["total"]) or 0) - keep.total_bytes
        for row in [r for r in logs if r["id"] not in set(chosen)] + self._reverted_images():
            if excess <= 0:
                break
            chosen.append(row["id"])
            excess -= row["stored_size"]
        return chosen

    def _reverted_images(self) -> list[Row]:
        """Pre-images that nothing can need any more: their experiment has ended, every change of it is proved
        reverted, and no act on it is undecided."""
        unproved = exists().where(
            _arm.experiment_id == _artifact.experiment_id,
            func.json_array_length(_arm.changes) > 0,
            or_(_arm.proof.is_(None), func.json_extract(_arm.proof, "$.clean") != 1),
        )
        outcome = columns(EventTable).alias("outcome")
        undecided = exists().where(
            _event.experiment_id == _artifact.experiment_id,
            _event.kind == "intent",
            ~exists().where(outcome.c.settles == _event.seq).correlate(columns(EventTable)),
        )
        query = (
            pick(ArtifactTable)
            .join(columns(ExperimentTable), _experiment.id == _artifact.experiment_id)
            .where(_artifact.keep == "until_reverted", _artifact.pruned_at.is_(None))
            .where(_experiment.state != "running", ~unproved, ~undecided)
        )
        return self._rows(query.order_by(_artifact.id))

    def _sweep(self) -> None:
        """Remove files that no living row names."""
        with self._database.write(), as_ours(self._folder):
            living = {r["path"] for r in self._rows(select(_artifact.path).where(_artifact.pruned_at.is_(None)))}
            for path in self._folder.glob("*/*"):
                if str(path.relative_to(self._folder)) not in living:
                    path.unlink()


def read_packed(path: Path, sha256: str) -> tuple[str | None, bytes]:
    """What is wrong with a stored file, or None; and its bytes."""
    try:
        data = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        return "has no file", b""
    except (OSError, EOFError, zlib.error) as error:
        return f"cannot be read: {error}", b""
    if hashlib.sha256(data).hexdigest() != sha256:
        return "does not have the bytes it was stored with", b""
    return None, data
