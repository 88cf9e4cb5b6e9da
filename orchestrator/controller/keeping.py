"""The end of a campaign: the host is left as found, or on the configuration that won."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.controller.splices import file_change
from orchestrator.core.secrets import mask_env, mask_words
from orchestrator.errors import OrchestratorError, Refused
from orchestrator.serving.engine import plan_launch

if TYPE_CHECKING:
    from orchestrator.controller.book import Book
    from orchestrator.controller.prepare import Prepared
    from orchestrator.controller.session import HostSession
    from orchestrator.controller.treatment import Treatment
    from orchestrator.core.records import FindingRecord


@dataclass(frozen=True)
class Kept:
    """What was left on a host. The server is started by its own service: `command` and `environment` are what it needs.
    `files` are in place already; empty where the winner changes none."""

    hypothesis: str
    context: str
    effect: float
    files: tuple[str, ...]
    command: str
    environment: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.hypothesis} ({self.context}), {self.effect:+.1%}"


def winner(best: Mapping[str, FindingRecord]) -> FindingRecord | None:
    """The largest proven gain of all contexts: a host can be left on one configuration only."""
    gains = [finding for finding in best.values() if finding.effect is not None]
    return max(gains, key=lambda finding: finding.effect or 0.0, default=None)


def refuse_shadow(session: HostSession) -> None:
    """Before a run that is to keep something: a copy goes when the run ends."""
    if session.target.tree == "shadow":
        raise Refused(
            f"{session.name} works on a copy, which cannot be kept",
            hint="`tree: in_place` in the target, or `at_end: found` in the playbook",
        )


def keep_best(session: HostSession, book: Book, prepared: Prepared, best: Mapping[str, FindingRecord]) -> Kept | None:
    """Apply the winner once more, and have it stay. None where nothing won. The host is as found when this fails."""
    won = winner(best)
    if won is None or won.hypothesis_id is None:
        return None
    treatment = _treatment_of(session, prepared, won)
    kept = _describe(session, treatment, won)
    if treatment.files:
        _apply(session, book, treatment, won, kept)
    return kept


def _treatment_of(session: HostSession, prepared: Prepared, won: FindingRecord) -> Treatment:
    from orchestrator.controller.choose import build_all

    hypotheses = {h.id: h for h in prepared.playbook.hypotheses}
    hypotheses |= {
        row.id: row.as_hypothesis()
        for row in prepared.ledger.todo(prepared.playbook.campaign)
        if row.id not in hypotheses
    }
    key = (str(won.hypothesis_id), won.context)
    return build_all(prepared, session, [(hypotheses[key[0]], key[1])])[key]


def _describe(session: HostSession, treatment: Treatment, won: FindingRecord) -> Kept:
    plan = plan_launch(
        session.target, treatment.configuration, session.base_env, str(won.hypothesis_id), cwd=session.cwd
    )
    changed = {**treatment.expectation.environ, **treatment.expectation.python_environ}
    return Kept(
        hypothesis=str(won.hypothesis_id),
        context=won.context,
        effect=float(won.effect or 0.0),
        files=tuple(edit.path for edit in treatment.files),
        command=shlex.join(mask_words(plan.argv, session.target.secrets)),
        environment=tuple(f"{n}={v}" if v is not None else f"unset {n}" for n, v in mask_env(dict(changed)).items()),
    )


def _apply(session: HostSession, book: Book, treatment: Treatment, won: FindingRecord, kept: Kept) -> None:
    txn = f"{book.name_prefix}-kept-{won.experiment_id}"
    files: list[dict[str, Any]] = [file_change(edit) for edit in treatment.files]
    with book.ledger.batch():
        for edit in treatment.files:
            for kind, content in (("found", edit.before), ("patched", edit.after)):
                if content is not None:
                    book.ledger.add_artifact(kind, content, experiment_id=won.experiment_id, name=edit.path)
    with book.intent("keep", {"txn": txn, "files": list(kept.files), "what": str(kept)}) as settle:
        session.call("apply", {"txn": txn, "files": files})
        try:
            reply = session.call("keep", {"txn": txn}, timeout_s=600.0)
        except OrchestratorError:
            session.call_back("revert", {"txn": txn, "reason": "it could not be kept"})
            raise
        settle({"digest": reply["digest"]})
    book.ledger.keep(session.name, str(kept))
