"""The ledger: what its parts can do, in one object."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from orchestrator.core.ports import Clock
from orchestrator.core.records import CampaignView
from orchestrator.errors import Problem, Refused
from orchestrator.ledger import checks
from orchestrator.ledger.artifacts import Artifacts, read_packed
from orchestrator.ledger.base import Mask
from orchestrator.ledger.campaigns import Runs, Todo
from orchestrator.ledger.conclusions import Conclusions
from orchestrator.ledger.database import Database, as_ours, sync_path
from orchestrator.ledger.experiments import Experiments
from orchestrator.ledger.requests import Requests

T = TypeVar("T")


class Ledger(Runs, Todo, Experiments, Conclusions, Requests, Artifacts):
    """Everything one state directory knows. Methods may be called from any thread; each is one transaction, unless a
    `batch` surrounds it. What a method returned is on the disk."""

    def __init__(self, state_dir: Path, clock: Clock, mask: Mask, *, create: bool) -> None:
        super().__init__(Database(state_dir / "ledger.db", create=create), clock, mask)
        self.state_dir = state_dir

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger {self._database.path}>"

    def close(self) -> None:
        self._database.close()

    def check(self) -> list[Problem]:
        """Every inconsistency found; an empty list for a ledger that is well, whatever was killed when."""
        return checks.check(self._database)

    def backup(self, path: Path) -> None:
        """A consistent copy of the database, while a run writes. `path` must not exist (`Refused`). Artifacts are not
        in it: their folder can be copied before or after."""
        self._database.backup(path)

    def view(self, campaign: str) -> CampaignView:
        """What a report needs. Unknown campaign → `UsageError`."""
        with self._database.read():
            runs = self.runs(campaign)
            hosts = {run.host for run in runs}
            return CampaignView(
                campaign=self.campaign(campaign),
                exported_at=self._now(),
                runs=runs,
                todo=self.todo(campaign),
                findings=self.findings(campaign),
                decisions=self.decisions(campaign),
                insights=self.insights(campaign),
                fingerprints=[f for f in self.fingerprints() if f.host in hosts],
                experiments=_Anew(lambda: self.each_experiment(campaign)),
                events=_Anew(lambda: self.each_event(campaign)),
                artifacts=lambda experiment: self.artifacts(experiment_id=experiment),
                content=self._kept_bytes,
            )

    def _kept_bytes(self, artifact_id: int) -> bytes | None:
        """None for what was pruned, or is gone or damaged, of which `check` tells."""
        found = self.artifact(artifact_id)
        problem, data = read_packed(self.state_dir / "artifacts" / found.path, found.sha256)
        return data if problem is None else None

    def holder_token(self, host: str, tree: str) -> str:
        """The token under which this state directory holds that tree: the same each time, another for each tree. It
        derives from a secret in `holder` (mode 0600), never written to the ledger or masked text."""
        with as_ours(self.state_dir / "holder"):
            secret = _own_secret(self.state_dir / "holder")
        return hmac.new(secret, f"{host}\0{tree}".encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class _Anew(Generic[T]):
    """An iterable that starts again each time."""

    start: Callable[[], Iterator[T]]

    def __iter__(self) -> Iterator[T]:
        return self.start()


def _own_secret(path: Path) -> bytes:
    if not path.exists():
        part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        try:
            part.touch(mode=0o600, exist_ok=False)
            part.write_text(secrets.token_hex(32))
            sync_path(part)
            try:
                os.link(part, path)  # whoever is second keeps the first one's
            except FileExistsError:
                return _own_secret(path)
            sync_path(path.parent)
        finally:
            part.unlink(missing_ok=True)
    if path.stat().st_mode & 0o077:
        raise Refused(f"{path} can be read by others", facts={"file": str(path)}, hint=f"chmod 600 {path}")
    return bytes.fromhex(path.read_text())
