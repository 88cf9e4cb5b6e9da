"""Three versions of a file: their edit of our version, put on top of the file as it was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from orchestrator.core.patching.diff import split_lines


@dataclass(frozen=True)
class Overlap:
    """A place where their edit and our change meet. Lines count from 1, in our version; `last` < `first`: between."""

    first: int
    last: int
    found: tuple[bytes, ...]
    ours: tuple[bytes, ...]
    theirs: tuple[bytes, ...]


@dataclass(frozen=True)
class Merge:
    """`content` means nothing while there are overlaps."""

    content: bytes
    overlaps: tuple[Overlap, ...]

    @property
    def is_possible(self) -> bool:
        return not self.overlaps


@dataclass(frozen=True)
class _Edit:
    """Lines start..stop of our version become `lines`."""

    start: int
    stop: int
    lines: tuple[bytes, ...]

    def meets(self, other: _Edit) -> bool:
        """Touching counts: which of two neighbours comes first is a person's business."""
        return self.start <= other.stop and other.start <= self.stop


def merge(found: bytes, ours: bytes, theirs: bytes) -> Merge:
    """`found` with the step ours → theirs carried out on it. Edits that meet are reported, not guessed at."""
    base = split_lines(ours)
    back = _edits(base, split_lines(found))
    edits = _edits(base, split_lines(theirs))
    overlaps = tuple(
        Overlap(
            min(a.start, b.start) + 1,
            max(a.stop, b.stop),
            a.lines,
            tuple(base[min(a.start, b.start) : max(a.stop, b.stop)]),
            b.lines,
        )
        for a in back
        for b in edits
        if a.meets(b) and a != b
    )
    if overlaps:
        return Merge(b"", overlaps)
    content: list[bytes] = []
    at = 0
    for edit in sorted({*back, *edits}, key=lambda e: (e.start, e.stop)):
        content += base[at : edit.start]
        content += edit.lines
        at = edit.stop
    return Merge(b"".join(content + base[at:]), ())


def _edits(base: Sequence[bytes], other: Sequence[bytes]) -> list[_Edit]:
    matcher = SequenceMatcher(None, base, other, autojunk=False)
    return [_Edit(i1, i2, tuple(other[j1:j2])) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"]
