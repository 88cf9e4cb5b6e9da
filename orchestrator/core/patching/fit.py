"""Does a hunk stand where it says? Exactly there: no fuzz, and no offset unless a person allows a unique one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.core.patching.diff import FileDiff, Hunk, split_lines

Offset = Literal["exact", "unique"]


@dataclass(frozen=True)
class Misfit:
    """A hunk that does not stand at its place. `line` counts from 1 in the file; None is the end of the file.

    Expected and found are equal where the hunk fits as stated but an earlier one had to be moved.
    """

    hunk: Hunk
    number: int
    line: int
    expected: bytes | None
    found: bytes | None
    elsewhere: tuple[int, ...]  # lines at which the hunk's old lines do occur


@dataclass(frozen=True)
class Fit:
    """The content after all hunks, and those that did not fit. With a misfit the content means nothing."""

    content: bytes
    misfits: tuple[Misfit, ...]


def fit(diff: FileDiff, content: bytes, offset: Offset = "exact") -> Fit:
    """Apply all hunks of one file in memory."""
    lines = split_lines(content)
    hunks = _with_line_ends(diff, lines)
    result: list[bytes] = []
    misfits: list[Misfit] = []
    at, is_shifted = 0, False
    for number, hunk in enumerate(hunks, start=1):
        places = _places(lines, hunk)
        start = _start(lines, hunk, at, places, offset, is_shifted=is_shifted)
        if start is None:
            misfits.append(_misfit(lines, hunk, number, places))
            continue
        is_shifted = is_shifted or start != hunk.first
        result += lines[at:start] + hunk.new
        at = start + len(hunk.old)
    return Fit(b"".join(result + lines[at:]), tuple(misfits))


def is_applied(diff: FileDiff, content: bytes, offset: Offset = "exact") -> bool:
    """Whether the new lines of every hunk stand where the patch would have put them.

    A hunk without new lines leaves nothing to see, so a patch that holds one is never taken for applied.
    """
    if not diff.hunks or not all(hunk.new for hunk in diff.hunks):
        return False
    backwards = replace(diff, hunks=tuple(hunk.reversed for hunk in diff.hunks))
    return not fit(backwards, content, offset).misfits


def _start(
    lines: Sequence[bytes],
    hunk: Hunk,
    at: int,
    places: Sequence[int],
    offset: Offset,
    *,
    is_shifted: bool,
) -> int | None:
    """Where the hunk goes, or None. After one shifted hunk the stated lines of the next prove nothing by themselves."""
    if not is_shifted and hunk.first >= at and _stands_at(lines, hunk.old, hunk.first):
        start = hunk.first
    elif offset == "unique" and len(places) == 1 and places[0] >= at:
        start = places[0]
    else:
        return None
    return None if _is_last(hunk) and start + len(hunk.old) != len(lines) else start


def _is_last(hunk: Hunk) -> bool:
    """Context before the change and none after it: the change is at the end of the file.

    Without this rule lines appended at the end would fit a second time.
    """
    return hunk.lines[-1].sign != b" " and any(line.sign == b" " for line in hunk.lines)


def _stands_at(lines: Sequence[bytes], wanted: Sequence[bytes], start: int) -> bool:
    return start + len(wanted) <= len(lines) and list(lines[start : start + len(wanted)]) == list(wanted)


def _places(lines: Sequence[bytes], hunk: Hunk) -> list[int]:
    wanted = hunk.old
    if not wanted:
        return []
    firsts = (i for i, line in enumerate(lines) if line == wanted[0])
    return [i for i in firsts if _stands_at(lines, wanted, i)]


def _misfit(lines: Sequence[bytes], hunk: Hunk, number: int, places: Sequence[int]) -> Misfit:
    elsewhere = tuple(place + 1 for place in places)
    for i, expected in enumerate(hunk.old):
        found = lines[hunk.first + i] if hunk.first + i < len(lines) else None
        if found != expected:
            return Misfit(hunk, number, hunk.first + i + 1, expected, found, elsewhere)
    end = hunk.first + len(hunk.old)
    if _is_last(hunk) and end < len(lines):
        return Misfit(hunk, number, end + 1, None, lines[end], elsewhere)
    # Its lines match, and yet it cannot stand here: it lies past the end, or an earlier hunk was moved.
    expected = b"".join(hunk.old[:1])
    return Misfit(hunk, number, hunk.first + 1, expected, expected if hunk.old else None, elsewhere)


def _with_line_ends(diff: FileDiff, lines: Sequence[bytes]) -> tuple[Hunk, ...]:
    """A patch that came in CRLF throughout takes the line ends of a file that is CRLF throughout."""
    ended = [line for line in lines if line.endswith(b"\n")]
    if not (diff.is_crlf and ended and all(line.endswith(b"\r\n") for line in ended)):
        return diff.hunks
    return tuple(hunk.with_crlf for hunk in diff.hunks)
