"""File edits as the agent's `apply` takes them: of a replaced file only what differs travels. Pure.

Two changed lines of a 100 kB file would otherwise cost further round trips, since a connection that was idle sends only
a few packets before it waits for an answer.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from orchestrator.controller.treatment import FileEdit


def file_change(edit: FileEdit) -> dict[str, Any]:
    """The `FileChange` of docs/protocol.md."""
    kind = "create" if edit.before is None else "delete" if edit.after is None else "replace"
    change: dict[str, Any] = {
        "path": edit.path,
        "kind": kind,
        "before_sha256": None if edit.before is None else hashlib.sha256(edit.before).hexdigest(),
        "content_b64": None,
        "mode": edit.mode,
    }
    if edit.after is None:
        return change
    if edit.before is None:
        return {**change, "content_b64": _text(edit.after)}
    start, kept = _common_ends(edit.before, edit.after)
    middle = edit.after[start : len(edit.after) - kept]
    splice = {"start": start, "kept": kept, "middle_b64": _text(middle)}
    return {**change, "splice": {**splice, "after_sha256": hashlib.sha256(edit.after).hexdigest()}}


def _common_ends(a: bytes, b: bytes) -> tuple[int, int]:
    """Lengths of the common beginning and of the common end that is left beside it."""
    shorter = min(len(a), len(b))
    start = _common(a[:shorter], b[:shorter])
    rest = shorter - start
    end = _common(a[len(a) - rest :][::-1], b[len(b) - rest :][::-1]) if rest else 0
    return start, end


def _common(a: bytes, b: bytes) -> int:
    """Length of the common beginning of two texts of one length, by halving: comparing bytes one by one is slow."""
    low, high = 0, len(a)
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
