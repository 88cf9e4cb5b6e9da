"""A person's word on a held transaction: whose version stays at each path. Nothing is deleted.

What does not stay is moved to `kept/` in the state directory. Every step looks at what is there, so that a release that
was cut short is simply done again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from orchestrator.agent import bytecode, files
from orchestrator.agent.decisions import BACK, HOLD, Change, decide
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.identity import Identity, identify, is_same
from orchestrator.agent.preflight import Place

THEIRS = "theirs"  # what lies at the path now stays
FOUND = "found"  # the file as it was found comes back
MERGE = "merge"  # the controller's merged version comes
CHOICES = (THEIRS, FOUND, MERGE)
Placed = Sequence[Optional[bool]]


class Merged(NamedTuple):
    """One merged version: what it is made from, and its digest. The content waits under `files.merged_name`."""

    sha256: str
    theirs_sha256: str


def kept_dir(place: Place) -> str:
    return os.path.join(place.state_dir, "kept")


# -- before ------------------------------------------------------------------------------------------------------


def foresee(fs: Fs, place: Place, transaction: files.Transaction, placed: Placed, choice: str) -> List[Dict[str, Any]]:
    """What `release` would do, per file: {path, why, does, keeps}. Changes nothing."""
    shown = []
    for index, change in enumerate(transaction.changes):
        now, parked = identify(fs, change.path), identify(fs, change.stage)
        verdict = decide(change, now, parked, placed[index])
        does, keeps = _foresee(change, now, parked, verdict.action, choice)
        where = kept_dir(place) if keeps else None
        shown.append({"path": change.given, "why": verdict.why, "does": does, "keeps": keeps, "kept_in": where})
    return shown


def _foresee(
    change: Change, now: Optional[Identity], parked: Optional[Identity], action: str, choice: str
) -> Tuple[str, List[str]]:
    if action == BACK:
        return "the file as found comes back: nobody touched ours", ["ours"]
    if action != HOLD:
        return "nothing: ours is not there", []
    original = ["found"] if parked is not None and change.before is not None else []
    if choice == THEIRS:
        return ("what lies there now stays" if now is not None else "it stays deleted"), original
    current = ["theirs"] if now is not None else []
    if choice == FOUND:
        return ("the file as found comes back" if change.before is not None else "the file goes"), current
    return "the merged file comes", [*original, *current]


def stage_merged(
    fs: Fs, place: Place, transaction: files.Transaction, placed: Placed, merged: Sequence[Mapping[str, Any]]
) -> Dict[str, Merged]:
    """Puts the merged versions beside the originals, durable on return: path as given → what it is.

    `refused` when a held file cannot be merged or none was sent for it; `conflict` when a file is no longer what the
    merged version was made from.
    """
    sent = {str(one["path"]): one for one in merged}
    staged = {}
    for index, change in enumerate(transaction.changes):
        now, parked = identify(fs, change.path), identify(fs, change.stage)
        if decide(change, now, parked, placed[index]).action != HOLD:
            continue
        one = sent.get(change.given)
        if one is None or now is None or parked is None or change.kind != "replace":
            facts = {"path": change.given}
            raise AgentError("refused", "there is no merged version of a held file", facts, "keep theirs, or found")
        if now.sha256 != one["theirs_sha256"]:
            facts = {"path": change.given, "expected": str(one["theirs_sha256"]), "found": now.sha256}
            raise AgentError("conflict", "the file changed after it was merged", facts)
        staged[change.given] = _stage_one(fs, place, change, now, _decode(one))
    for folder in sorted({os.path.dirname(change.stage) for change in transaction.changes}):
        fs.sync_dir(folder)
    return staged


def _decode(one: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(str(one["content_b64"]), validate=True)
    except (binascii.Error, ValueError) as error:
        raise AgentError("usage", f"content is not base64: {error}", {"path": str(one["path"])}) from error


def _stage_one(fs: Fs, place: Place, change: Change, now: Identity, content: bytes) -> Merged:
    """Owner, rights and attributes are theirs; the second is one that no compiled form claims."""
    name = files.merged_name(change)
    if fs.find(name) is not None:  # of a release that ended before its record
        _set_aside(fs, place, change, name)
    compiled = bytecode.beside(fs, change.path) + bytecode.below_prefix(fs, place.pycache_dir, change.path)
    taken = bytecode.seconds_claimed(fs, compiled) | {bytecode.second_of(now.mtime_ns)}
    sha256 = hashlib.sha256(content).hexdigest()
    mtime_ns = bytecode.free_mtime_ns(fs.now_ns(), taken)
    after = now._replace(sha256=sha256, size=len(content), mtime_ns=mtime_ns, ino=0, nlink=0)
    files.stage_file(fs, change._replace(stage=name), after, content)
    return Merged(sha256, now.sha256)


# -- the release -------------------------------------------------------------------------------------------------


def release(
    fs: Fs, place: Place, transaction: files.Transaction, placed: Placed, choice: str, merged: Mapping[str, Merged]
) -> List[str]:
    """Settles every file: those that nobody touched are reverted, the others go by `choice`. Returns the kept files.

    `refused` when a file is to come back whose original is gone; `dirty` when somebody changed a file after the
    merged version was made.
    """
    if fs.find(kept_dir(place)) is None:
        fs.mkdir(kept_dir(place), 0o700)
        fs.sync_dir(place.state_dir)
    for index, change in enumerate(transaction.changes):
        now, parked = identify(fs, change.path), identify(fs, change.stage)
        action = decide(change, now, parked, placed[index]).action
        if action == BACK or (action == HOLD and choice == FOUND):
            _bring_back(fs, change, now, parked)
        elif action == HOLD and choice == MERGE:
            _bring_merged(fs, change, now, merged[change.given])
    files.sync_all(fs, transaction)
    kept = []
    for change in transaction.changes:
        name = files.merged_name(change)
        waiting = identify(fs, name)
        mine = merged.get(change.given)
        if waiting is not None and (mine is None or waiting.sha256 != mine.sha256):
            kept.append(_set_aside(fs, place, change, name))  # theirs, after the exchange
        if fs.find(change.stage) is not None:
            kept.append(_set_aside(fs, place, change, change.stage))
    fs.sync_dir(kept_dir(place))
    files.clear_away(fs, transaction)
    return kept


def _bring_merged(fs: Fs, change: Change, now: Optional[Identity], merged: Merged) -> None:
    """Exchanges theirs for the merged version; what came out must be what it was made from."""
    name = files.merged_name(change)
    if now is not None and now.sha256 == merged.sha256:
        return
    waiting = identify(fs, name)
    if now is not None and now.sha256 == merged.theirs_sha256 and waiting is not None:
        files.swap(fs, name, change.path)
        came_out = identify(fs, name)
        if came_out is not None and came_out.sha256 == merged.theirs_sha256:
            return
        files.swap(fs, name, change.path)
    what = "somebody changed the file after the merged version was made"
    raise AgentError("dirty", what, {"path": change.given}, "release again")


def _bring_back(fs: Fs, change: Change, now: Optional[Identity], parked: Optional[Identity]) -> None:
    """The file as found at its path, whatever was there under the stage name."""
    before = change.before
    if before is None:
        if now is not None:
            files.move(fs, change.path, _free_name(fs, change.stage) if parked is not None else change.stage)
        return
    if now is not None and is_same(now, before):
        return
    if parked is None or (parked.ino != before.ino and not is_same(parked, before)):
        raise AgentError("refused", "the original is gone", {"path": change.given}, "keep theirs")
    if now is None:
        files.move(fs, change.stage, change.path)
    else:
        files.swap(fs, change.stage, change.path)


def _set_aside(fs: Fs, place: Place, change: Change, source: str) -> str:
    """Moves a file out of the way, under a name that tells whose place it had."""
    name = f"{os.path.basename(change.path)}.{_short(change)}"
    if fs.find(kept_dir(place)) is None:
        fs.mkdir(kept_dir(place), 0o700)
        fs.sync_dir(place.state_dir)
    target = _free_name(fs, os.path.join(kept_dir(place), name))
    try:
        files.move(fs, source, target)
    except OSError as error:
        if error.errno != files.EXDEV:
            raise
        target = _free_name(fs, os.path.join(os.path.dirname(source), f"{name}.kept"))  # staged beside
        files.move(fs, source, target)
    fs.sync_dir(os.path.dirname(source))
    return target


def _short(change: Change) -> str:
    return os.path.basename(change.stage).rpartition("-")[2]


def _free_name(fs: Fs, path: str) -> str:
    number = 1
    candidate = path
    while fs.find(candidate) is not None:
        candidate = f"{path}.{number}"
        number += 1
    return candidate
