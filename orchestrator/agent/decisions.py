"""Whose is it? The one place that says what a revert does to a file: ours, theirs or mixed.

Pure: what lies at the path, what lies under the stage name, and what the journal knows go in, a verdict comes out. The
journal alone never decides; content does, because a crash can fall between any two steps.
"""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional

from orchestrator.agent.identity import Identity, has_same_rights, is_same, is_same_but_time

LEAVE = "leave"  # nothing of ours is at the path: drop what is staged
BACK = "back"  # ours is at the path: undo the swap or the move
HOLD = "hold"  # somebody else had a hand in it: touch nothing


class Change(NamedTuple):
    """One file of a transaction, as the journal has it.

    `path` has no symbolic links, `given` is how the controller wrote it. `stage` is the name under which the new
    content waits before, and the original after the swap. For `create` before is None, for `delete` after is None; the
    inode and link count of `after` are 0.
    """

    path: str
    given: str
    kind: str
    stage: str
    before: Optional[Identity]
    after: Optional[Identity]

    def as_dict(self) -> Dict[str, Any]:
        data = dict(self._asdict())
        for side in ("before", "after"):
            data[side] = data[side] and data[side].as_dict()
        return data

    @classmethod
    def from_dict(cls, data: Dict[str, Any]) -> Change:
        sides = {side: data[side] and Identity.from_dict(data[side]) for side in ("before", "after")}
        return cls(**{**data, **sides})


class Verdict(NamedTuple):
    """`action` is LEAVE, BACK or HOLD; `why` is for the person who has to decide a HOLD."""

    action: str
    why: str


_NOT_PLACED = Verdict(LEAVE, "our version never got there, or is out again")
_OURS = Verdict(BACK, "ours is in place and the original is safe")


def decide(change: Change, now: Optional[Identity], parked: Optional[Identity], was_placed: Optional[bool]) -> Verdict:
    """What to do about one file.

    `now` is what lies at the path, `parked` what lies under the stage name. `was_placed` is what the journal knows:
    True when our version had reached the path, False when it had not, None after a crash in between.
    """
    if was_placed is False and not _is_original(change.before, parked):
        return _NOT_PLACED
    if change.kind == "replace":
        return _decide_replace(change, now, parked, was_placed)
    if change.kind == "create":
        return _decide_create(change, now, parked, was_placed)
    return _decide_delete(change, now, parked, was_placed)


def _is_original(before: Optional[Identity], parked: Optional[Identity]) -> bool:
    """Whether the original lies under the stage name, as it was or as somebody made it there."""
    if before is None or parked is None:
        return False
    return is_same(parked, before) or parked.ino == before.ino


def _decide_replace(
    change: Change, now: Optional[Identity], parked: Optional[Identity], was_placed: Optional[bool]
) -> Verdict:
    before, after = change.before, change.after
    assert before is not None and after is not None
    if parked is not None and is_same(parked, after):
        return _NOT_PLACED
    if parked is not None and _is_original(before, parked):
        return _decide_swapped(before, after, now, parked)
    if now is not None and is_same(now, before):
        return _NOT_PLACED
    if was_placed or (now is not None and now.sha256 == after.sha256):
        lost = "is gone from" if parked is None else "is not what lies under its name in"
        return Verdict(HOLD, f"our version was put in place and the original {lost} the stage")
    return _NOT_PLACED


def _decide_swapped(before: Identity, after: Identity, now: Optional[Identity], parked: Identity) -> Verdict:
    """The original is parked: is what lies at the path still ours?"""
    if not is_same(parked, before):
        return Verdict(HOLD, "somebody wrote to the original, or changed its rights, while it was parked")
    if now is None:
        return Verdict(HOLD, "somebody deleted the file while our version was in place")
    if is_same_but_time(now, after):
        return _OURS
    if is_same_but_time(now, before):
        return Verdict(BACK, "somebody put the original content back; the original file itself replaces it")
    if now.sha256 == after.sha256 and not has_same_rights(now, after):
        return Verdict(HOLD, "somebody changed mode, owner or attributes of the file while our version was in place")
    return Verdict(HOLD, "somebody edited the file while our version was in place")


def _decide_create(
    change: Change, now: Optional[Identity], parked: Optional[Identity], was_placed: Optional[bool]
) -> Verdict:
    after = change.after
    assert after is not None
    if parked is not None:
        if was_placed and not is_same_but_time(parked, after):
            return Verdict(HOLD, "somebody edited the file while we took it away; it lies in the stage")
        return _NOT_PLACED
    if now is None:
        return _NOT_PLACED
    if is_same_but_time(now, after):
        return _OURS
    if now.sha256 == after.sha256:
        return Verdict(HOLD, "somebody changed mode, owner or attributes of the file that we created")
    return Verdict(HOLD, "somebody edited the file that we created")


def _decide_delete(
    change: Change, now: Optional[Identity], parked: Optional[Identity], was_placed: Optional[bool]
) -> Verdict:
    before = change.before
    assert before is not None
    if parked is not None:
        if not is_same(parked, before):
            return Verdict(HOLD, "somebody wrote to the deleted file while it was parked")
        if now is None:
            return _OURS
        return Verdict(HOLD, "somebody made a new file where we had deleted one")
    if now is not None and (not was_placed or is_same(now, before)):
        return _NOT_PLACED
    return Verdict(HOLD, "the file is neither at its path nor in the stage")
