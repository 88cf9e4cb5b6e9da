"""A person's word on held files: theirs stays, the file as found comes back, or both edits are merged."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.controller.session import refuse_read_only
from orchestrator.controller.threeway import HeldFile, held_error, not_clean, read_held
from orchestrator.core import patching
from orchestrator.errors import Dirty, PatchConflict, Problem, Refused

if TYPE_CHECKING:
    from orchestrator.controller.hosts import HostRequest
    from orchestrator.controller.narration import Narrator
    from orchestrator.controller.prepare import Place
    from orchestrator.controller.session import HostSession

Choice = Literal["theirs", "found", "merge"]
WORDS: Mapping[Choice, str] = {"theirs": "--keep-theirs", "found": "--restore-found", "merge": "--merge"}


@dataclass
class Release:
    """What was decided, or with `dry_run` would be. `kept`: where the agent put what did not stay."""

    host: str
    choice: Choice
    dry_run: bool
    txn: str | None = None
    files: list[dict[str, Any]] = field(default_factory=list)
    held: list[dict[str, Any]] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    proof: Mapping[str, Any] | None = None


def release(request: HostRequest, narrator: Narrator, choice: Choice, *, dry_run: bool = False) -> Release:
    """Settle what is held on a host. The quarantine is lifted only by the proof that follows.

    `PatchConflict` when a merge is wanted and edits meet, `Refused` without `yes`, `Dirty` when the proof fails.
    """
    from orchestrator.controller.hosts import open_host_tree

    with open_host_tree(request, narrator) as (place, session, reply):
        refuse_read_only(place.host_name, place.host)
        recovered = session.connection.call("recover", {}, timeout_s=300.0)
        done = Release(place.host_name, choice, dry_run)
        if recovered["state"] == "clean" and reply["kept"] and choice == "found":
            return _take_back(request, place, session, done, reply["kept"])
        if recovered["state"] == "clean":
            return _already_clean(place, session, done, recovered)
        _settle(request, place, session, done, recovered["report"])
        if not dry_run:
            _prove(place, session, done)
        return done


def _already_clean(place: Place, session: HostSession, done: Release, recovered: Mapping[str, Any]) -> Release:
    done.remarks = ["nothing is held there", *map(str, recovered["did"])]
    proof = recovered["verify"]
    if proof is not None and not proof["clean"]:
        raise not_clean(session, place.ledger, proof)
    if proof is not None and not done.dry_run:
        done.proof = proof
        place.ledger.release(place.host_name, "nothing was held; proved clean")
    return done


def _take_back(request: HostRequest, place: Place, session: HostSession, done: Release, kept: Sequence[str]) -> Release:
    """What a campaign has left on the host goes, the last one first; the proof is against the manifest from before."""
    record = place.ledger.host(place.host_name)
    what = (record.kept if record else None) or ", ".join(kept)
    done.remarks = [f"taken back: {what}"]
    if done.dry_run:
        return done
    if not request.yes:
        hint = f"agree with --yes: orchestrator host release {place.host_name} --restore-found --yes"
        raise Refused(f"{what} is kept on {place.host_name}: taking it back is a person's decision", hint=hint)
    intent = place.ledger.intend("release", {"kept": list(kept)}, host=place.host_name)
    reply = session.call("restore_kept", {}, timeout_s=600.0)
    place.ledger.settle(intent, "done" if reply["state"] == "clean" else "failed", {"did": reply["did"]})
    if reply["state"] != "clean":
        place.ledger.quarantine(place.host_name, "somebody changed a kept file")
        raise held_error(session, place.ledger, reply["report"])
    proof = session.call_back("verify", {}, timeout_s=600.0)
    done.proof = proof
    if not proof["clean"]:
        raise not_clean(session, place.ledger, proof)
    place.ledger.keep(place.host_name, None)
    place.ledger.release(place.host_name, "what was kept is taken back, and proved clean")
    return done


def _settle(
    request: HostRequest, place: Place, session: HostSession, done: Release, report: Sequence[Mapping[str, Any]]
) -> None:
    held = read_held(session, place.ledger, report)
    done.held = [file.as_json() for file in held]
    merged = _merged(place.host_name, held) if done.choice == "merge" else []
    done.txn = str(session.call("verify", {}, timeout_s=600.0)["open"]["txn"])
    wanted = {"txn": done.txn, "choice": done.choice}
    done.files = session.call("release", {**wanted, "dry_run": True})["files"]
    done.remarks = _remarks(done.choice, held)
    if done.dry_run:
        return
    if not request.yes:
        facts = {file["path"]: file["does"] for file in done.files}
        hint = f"agree with --yes: orchestrator host release {place.host_name} {WORDS[done.choice]} --yes"
        raise Refused(f"releasing {place.host_name} is a person's decision", facts=facts, hint=hint)
    intent = place.ledger.intend("release", {**wanted, "files": done.files}, host=place.host_name)
    reply = session.call("release", {**wanted, "merged": merged})
    done.kept = [str(path) for path in reply["kept"]]
    place.ledger.settle(intent, "done", {"kept": done.kept})


def _merged(host: str, held: Sequence[HeldFile]) -> list[dict[str, Any]]:
    """What the agent is sent: each held file merged. All problems at once when one cannot be."""
    sent: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for file in held:
        merged = file.merge
        if merged is None:
            missing = "our version is not in this ledger" if not file.ours_known else "a version of it is missing"
            problems.append(Problem(f"{file.path} cannot be merged: {missing}", facts={"host": host}))
            continue
        for overlap in merged.overlaps:
            facts = {"found": _text(overlap.found), "ours": _text(overlap.ours), "theirs": _text(overlap.theirs)}
            what = f"{file.path}: their edit meets our change at line {overlap.first} of ours"
            problems.append(Problem(what, facts=facts))
        assert file.theirs is not None
        sent.append(
            {
                "path": file.path,
                "theirs_sha256": hashlib.sha256(file.theirs).hexdigest(),
                "content_b64": base64.b64encode(merged.content).decode("ascii"),
            }
        )
    if problems:
        first = problems[0]
        hint = "choose --keep-theirs or --restore-found; what does not stay is kept on the host"
        last = Problem(problems[-1].what, problems[-1].where, hint, problems[-1].facts)
        raise PatchConflict(first.what, facts=first.facts, hint=hint, problems=[*problems[:-1], last])
    return sent


def _remarks(choice: Choice, held: Sequence[HeldFile]) -> list[str]:
    """What a person should know before choosing: ours in theirs, and the diff that a merge would leave."""
    remarks = []
    for file in held:
        left = file.residue
        if choice == "theirs" and left is not None and not left.is_clean:
            lines = ", ".join(str(number) for number, _ in left.ours)
            remarks.append(f"{file.path}: their version still holds lines of ours ({lines or 'some are missing'})")
        merged = file.merge
        if choice == "merge" and merged is not None:
            diff = patching.unified(file.found, merged.content, file.path.lstrip("/")).decode("utf-8", "replace")
            remarks.append(f"{file.path} as found, with their edit:\n{diff}".rstrip())
    return remarks


def _prove(place: Place, session: HostSession, done: Release) -> None:
    """Nothing of ours is left: only then is the host free again. What stays becomes the tree as found."""
    proof = session.call_back("verify", {}, timeout_s=600.0)
    done.proof = proof
    if not proof["clean"]:
        place.ledger.quarantine(place.host_name, "released, and still not clean")
        raise not_clean(session, place.ledger, proof)
    if not proof["kept"]:
        place.ledger.keep(place.host_name, None)
    if done.choice == "found":
        changed = {d["path"] for d in proof["differences"]}
        wrong = sorted(changed.intersection(file["path"] for file in done.files))
        if wrong:
            raise Dirty(f"{place.host_name}: a file is not as it was found", facts={"differs": ", ".join(wrong)})
    else:
        session.snapshot()
    place.ledger.release(place.host_name, f"released with {WORDS[done.choice]}, and proved clean")


def _text(lines: Sequence[bytes]) -> str:
    return b"".join(lines).decode("utf-8", "replace").rstrip("\n")
