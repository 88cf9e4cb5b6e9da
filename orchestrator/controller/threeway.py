"""A held file in its three versions: as found, ours, and what somebody made of it; and what merging them gives."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.core import patching
from orchestrator.errors import Dirty, OrchestratorError, Unreachable

if TYPE_CHECKING:
    from orchestrator.controller.session import HostSession
    from orchestrator.core.patching import Merge
    from orchestrator.ledger import Ledger

_READ_LIMIT = 8 << 20
_SHOWN_LINES = 60


@dataclass(frozen=True)
class HeldFile:
    """Contents None: no such file, or (`found`, `ours`) not to be had. `found_at` and `path` are on the host."""

    path: str
    why: str
    found_at: str | None
    found: bytes | None
    ours: bytes | None
    theirs: bytes | None
    ours_known: bool

    @property
    def merge(self) -> Merge | None:
        """None where there is nothing to merge: a version is missing."""
        if self.found is None or self.ours is None or self.theirs is None:
            return None
        return patching.merge(self.found, self.ours, self.theirs)

    @property
    def residue(self) -> patching.Residue | None:
        """What of our change is in their version."""
        if self.found is None or self.ours is None or self.theirs is None:
            return None
        return patching.residue(self.found, self.ours, self.theirs)

    def as_json(self) -> dict[str, Any]:
        merged = self.merge
        return {
            "path": self.path,
            "why": self.why,
            "found_at": self.found_at,
            "theirs_at": self.path if self.theirs is not None else None,
            "ours_known": self.ours_known,
            "found_to_ours": _diff(self.found, self.ours, self.path) if self.ours_known else None,
            "ours_to_theirs": _diff(self.ours, self.theirs, self.path) if self.ours_known else None,
            "found_to_theirs": _diff(self.found, self.theirs, self.path),
            "can_merge": merged is not None and merged.is_possible,
        }

    def text(self) -> str:
        """The report for people: why, where each version lies, and how they differ."""
        lines = [self.why]
        lines.append(f"found:  {self.found_at or 'not on the host any more'}")
        lines.append(f"ours:   {'in the ledger of this state directory' if self.ours_known else 'not known here'}")
        lines.append(f"theirs: {self.path if self.theirs is not None else 'deleted'}")
        if self.ours_known:
            lines += ["found → ours:", *_shown(_diff(self.found, self.ours, self.path))]
            lines += ["ours → theirs:", *_shown(_diff(self.ours, self.theirs, self.path))]
        else:
            lines += ["found → theirs:", *_shown(_diff(self.found, self.theirs, self.path))]
        merged = self.merge
        if merged is not None:
            places = ", ".join(f"line {o.first}" for o in merged.overlaps)
            lines.append(f"their edit meets ours at {places}: no merge" if places else "the two edits can be merged")
        return "\n".join(lines)


def read_held(session: HostSession, ledger: Ledger, report: Sequence[Mapping[str, Any]]) -> list[HeldFile]:
    """The versions of every held file: found and theirs from the host, ours from the ledger."""
    wanted = sorted({p for one in report for p in (one["path"], one["found_at"]) if p})
    reply: Mapping[str, Any] = {}
    if wanted:
        reply = session.connection.call("read", {"paths": wanted, "max_bytes": _READ_LIMIT}, timeout_s=120.0)
    files = []
    for one in report:
        digest = one["ours_sha256"]
        ours = ledger.find_content(digest) if digest else None
        files.append(
            HeldFile(
                path=one["path"],
                why=one["why"],
                found_at=one["found_at"],
                found=_content(reply, one["found_at"]),
                ours=ours,
                theirs=_content(reply, one["path"]),
                ours_known=digest is None or ours is not None,
            )
        )
    return files


def held_error(session: HostSession, ledger: Ledger, report: Sequence[Mapping[str, Any]]) -> Dirty:
    """What a person needs to decide: the three-way report of every held file, and the three ways out."""
    held = read_held(session, ledger, report)
    return Dirty(
        f"{session.name} could not be put back: somebody else changed a file of ours; all versions are kept",
        facts={file.path: file.text() for file in held},
        hint=f"orchestrator host release {session.name} --keep-theirs | --restore-found | --merge; try --dry-run",
    )


def not_clean(session: HostSession, ledger: Ledger, proof: Mapping[str, Any]) -> Dirty:
    """The error for a host whose proof failed, with the report when a file is held."""
    report = (proof.get("open") or {}).get("report") or []
    if report:
        try:
            return held_error(session, ledger, report)
        except Unreachable as lost:
            session.narrator.warn(f"{session.name}: {lost.what}; the three versions could not be read")
    ours = [d["path"] for d in proof["differences"] if d["ours"]]
    return Dirty(
        f"{session.name} is not as it was found",
        facts={"differs": ", ".join(ours[:5])} if ours else {},
        hint=f"orchestrator host recover {session.name}",
    )


def recover_or_report(session: HostSession, ledger: Ledger) -> dict[str, Any]:
    """Stop, revert, verify whatever is open. Raises `Dirty` with the three-way report when a file is held."""
    reply = session.connection.call("recover", {"hold_service": session.holds_service}, timeout_s=300.0)
    if reply["state"] != "clean":
        raise held_error(session, ledger, reply["report"])
    return reply


def _content(reply: Mapping[str, Any], path: str | None) -> bytes | None:
    entry = reply.get(path or "", {})
    if entry.get("kind", "absent") == "absent":
        return None
    if "content_b64" not in entry:
        raise OrchestratorError(f"{path} is too large, or no file, and cannot be shown")
    return base64.b64decode(entry["content_b64"])


def _diff(before: bytes | None, after: bytes | None, path: str) -> str:
    return patching.unified(before, after, path.lstrip("/")).decode("utf-8", "replace")


def _shown(diff: str) -> list[str]:
    lines = [line for line in diff.splitlines() if not line.startswith(("diff --git", "--- ", "+++ "))]
    more = [f"… {len(lines) - _SHOWN_LINES} more lines"] if len(lines) > _SHOWN_LINES else []
    return [f"  {line}" for line in [*lines[:_SHOWN_LINES], *more]] or ["  no difference in content"]
