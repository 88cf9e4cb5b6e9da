"""What is left of a change, and how two contents differ, for reports and for the audit trail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from orchestrator.core.patching.diff import split_lines
from orchestrator.core.patching.paths import quote

_CONTEXT = 3


@dataclass(frozen=True)
class Residue:
    """Traces of a change in a file. Line numbers count from 1: `ours` in the file now, `missing` in the file found."""

    ours: tuple[tuple[int, bytes], ...]  # lines the change added that are still there
    missing: tuple[tuple[int, bytes], ...]  # lines the change took away that are not back

    @property
    def is_clean(self) -> bool:
        return not self.ours and not self.missing


def residue(found: bytes, patched: bytes, now: bytes) -> Residue:
    """Which traces of the step found → patched the file shows now. Edits by others are no residue."""
    before, after, current = (split_lines(data) for data in (found, patched, now))
    added, removed = Counter(after), Counter(before)
    added, removed = added - removed, removed - added
    # A line that moved is in neither; the blocks themselves catch it.
    for tag, i1, i2, j1, j2 in _blocks(before, after):
        if tag != "equal":
            added |= Counter(after[j1:j2])
            removed |= Counter(before[i1:i2])
    ours: list[tuple[int, bytes]] = []
    missing: list[tuple[int, bytes]] = []
    for tag, i1, i2, j1, j2 in _blocks(before, current):
        if tag != "equal":
            ours += _take(current, j1, j2, added)
            missing += _take(before, i1, i2, removed)
    return Residue(tuple(ours), tuple(missing))


def unified(before: bytes | None, after: bytes | None, path: str) -> bytes:
    """A git-style diff that `parse` and `git apply` read back. None: no file. Empty where nothing differs.

    An absolute path is written from the root, as git does: `a/opt/tree/file`.
    """
    if before == after:
        return b""
    old, new = split_lines(before or b""), split_lines(after or b"")
    name_a, name_b = quote("a/" + path.lstrip("/")), quote("b/" + path.lstrip("/"))
    out = [b"diff --git " + name_a + b" " + name_b + b"\n"]
    if before is None:
        out.append(b"new file mode 100644\n")
    if after is None:
        out.append(b"deleted file mode 100644\n")
    hunks = list(_hunks(old, new))
    if hunks:
        tab_a, tab_b = (b"\t" if b" " in name else b"" for name in (name_a, name_b))
        out.append(b"--- " + (b"/dev/null" if before is None else name_a + tab_a) + b"\n")
        out.append(b"+++ " + (b"/dev/null" if after is None else name_b + tab_b) + b"\n")
    return b"".join(out + hunks)


def _blocks(a: Sequence[bytes], b: Sequence[bytes]) -> Sequence[tuple[str, int, int, int, int]]:
    return list(SequenceMatcher(None, a, b).get_opcodes())


def _take(lines: Sequence[bytes], start: int, stop: int, stock: Counter[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a block that are in stock, each counted off once."""
    for at in range(start, stop):
        if stock[lines[at]] > 0:
            stock[lines[at]] -= 1
            yield at + 1, lines[at]


def _hunks(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[bytes]:
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT):
        i1, i2, j1, j2 = group[0][1], group[-1][2], group[0][3], group[-1][4]
        yield b"@@ -%s +%s @@\n" % (_span(i1, i2), _span(j1, j2))
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                yield from (_line(b" ", line) for line in old[a1:a2])
            else:
                yield from (_line(b"-", line) for line in old[a1:a2])
                yield from (_line(b"+", line) for line in new[b1:b2])


def _span(start: int, stop: int) -> bytes:
    count = stop - start
    first = start + 1 if count else start
    return b"%d" % first if count == 1 else b"%d,%d" % (first, count)


def _line(sign: bytes, line: bytes) -> bytes:
    return sign + line if line.endswith(b"\n") else sign + line + b"\n\\ No newline at end of file\n"
