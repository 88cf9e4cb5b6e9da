"""Unified diffs: bytes → files and hunks.

Everything is bytes, since sources come in any encoding; only `\\n` ends a line. Reads plain and git diffs, with or
without prefixes, and refuses what cannot be applied exactly: binary patches, symbolic links, unsafe paths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from orchestrator.core.patching import paths
from orchestrator.core.patching.paths import NOWHERE, UnsafePath
from orchestrator.errors import Place, PlaybookError, Problem

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_MODE = re.compile(rb"(?:old mode|new mode|new file mode|deleted file mode) (\d{6})$")
_PREFIXES = {"a", "b", "c", "i", "o", "w", "1", "2"}  # git's own, mnemonic ones included
_REGULAR = 0o100000
_HEADER_HINT = (
    "name the file in both lines as the tree does: `--- a/PACKAGE/FILE`, `+++ b/PACKAGE/FILE`"
    " (git diff, or diff -u --label a/PACKAGE/FILE --label b/PACKAGE/FILE OLD NEW)"
)


class Action(StrEnum):
    MODIFY = "modify"
    CREATE = "create"
    DELETE = "delete"
    RENAME = "rename"
    COPY = "copy"


@dataclass(frozen=True)
class Line:
    """One line of a hunk. `sign` is one of `b" "`, `b"-"`, `b"+"`; `text` keeps its line end, if it has one."""

    sign: bytes
    text: bytes


@dataclass(frozen=True)
class Hunk:
    """One `@@` block. Starts count from 1; a side without lines names the line before it. `line` is in the patch."""

    old_start: int
    new_start: int
    lines: tuple[Line, ...]
    line: int

    @property
    def old(self) -> list[bytes]:
        return [entry.text for entry in self.lines if entry.sign != b"+"]

    @property
    def new(self) -> list[bytes]:
        return [entry.text for entry in self.lines if entry.sign != b"-"]

    @property
    def first(self) -> int:
        """Index from 0 of the first old line; for a hunk without old lines, of the line it goes before."""
        return self.old_start - 1 if self.old else self.old_start

    @property
    def with_crlf(self) -> Hunk:
        lines = tuple(
            Line(entry.sign, entry.text[:-1] + b"\r\n" if entry.text.endswith(b"\n") else entry.text)
            for entry in self.lines
        )
        return Hunk(self.old_start, self.new_start, lines, self.line)

    @property
    def reversed(self) -> Hunk:
        flip = {b" ": b" ", b"-": b"+", b"+": b"-"}
        lines = tuple(Line(flip[entry.sign], entry.text) for entry in self.lines)
        return Hunk(self.new_start, self.old_start, lines, self.line)


@dataclass(frozen=True)
class FileDiff:
    """What a patch does to one file. Paths are relative to the tree; modes are permission bits or None."""

    action: Action
    path: str  # the path afterwards; for a deletion the path that goes
    source: str  # the path before
    hunks: tuple[Hunk, ...]
    line: int
    mode_before: int | None = None
    mode_after: int | None = None
    is_crlf: bool = False  # the patch came in CRLF throughout and says nothing about line ends


@dataclass(frozen=True)
class Patch:
    """A parsed diff. `name` is the file a person can open."""

    name: str
    files: tuple[FileDiff, ...]


def split_lines(data: bytes) -> list[bytes]:
    """Lines with their ends; only `\\n` ends one, so `\\r` and form feeds are content."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def parse(data: bytes, name: str, *, strip: int | None = None) -> Patch:
    """Read a unified diff.

    `strip` is the number of leading path parts to drop; None means 1 where the paths carry git's prefixes (`a/`,
    `b/`), else 0. Raises `PlaybookError` with the place of every complaint.
    """
    return _Parser(data, name, strip).run()


@dataclass
class _Head:
    """The header of one file while it is read."""

    line: int
    text: str
    git: bytes | None = None
    old: tuple[str, str] | None = None  # path and time stamp of `---`
    new: tuple[str, str] | None = None
    old_mode: int | None = None
    new_mode: int | None = None
    source: str | None = None
    target: str | None = None
    action: Action | None = None
    is_crlf: bool = False


class _Parser:
    def __init__(self, data: bytes, name: str, strip: int | None) -> None:
        self.lines = split_lines(data)
        self.name = name
        self.strip = strip
        self.at = 0
        self.problems: list[Problem] = []

    def run(self) -> Patch:
        files: list[FileDiff] = []
        try:
            while self.at < len(self.lines):
                line = self.lines[self.at]
                if line.startswith(b"diff --git ") or self._starts_plain_header():
                    head = self._head()
                    if (parsed := self._file(head, self._hunks(head))) is not None:
                        files.append(parsed)
                elif _HUNK.match(line):
                    self._fail("a hunk without a file header before it")
                elif line.startswith((b"Binary files ", b"GIT binary patch")):
                    self._fail("a binary patch; only text can be patched exactly")
                else:
                    self.at += 1
        except _Unreadable as stop:
            self.problems.append(stop.problem)
        if not files and not self.problems:
            self.problems.append(Problem("no diff in it", Place(self.name)))
        if self.problems:
            raise PlaybookError(self.problems)
        return Patch(self.name, tuple(files))

    # -- headers ------------------------------------------------------------------------------------------------

    def _starts_plain_header(self) -> bool:
        pair = self.lines[self.at : self.at + 2]
        return len(pair) == 2 and pair[0].startswith(b"--- ") and pair[1].startswith(b"+++ ")

    def _head(self) -> _Head:
        head = _Head(self.at + 1, _text(self.lines[self.at]), is_crlf=self.lines[self.at].endswith(b"\r\n"))
        if self.lines[self.at].startswith(b"diff --git "):
            head.git = self._bare()[len(b"diff --git ") :]
            self.at += 1
            while self.at < len(self.lines) and self._extended(head):
                self.at += 1
        if self.at < len(self.lines) and self._starts_plain_header():
            try:
                head.old = paths.read_name(self._bare()[4:])
                self.at += 1
                head.new = paths.read_name(self._bare()[4:])
            except UnsafePath as error:
                self._fail(str(error))
            self.at += 1
        return head

    def _extended(self, head: _Head) -> bool:
        """Take one extended header line; False when it is none."""
        line = self._bare()
        if line.startswith((b"Binary files ", b"GIT binary patch")):
            self._fail("a binary patch; only text can be patched exactly")
        if mode := _MODE.match(line):
            self._mode(head, line, int(mode.group(1), 8))
            return True
        for prefix, action in ((b"rename ", Action.RENAME), (b"copy ", Action.COPY)):
            if line.startswith((prefix + b"from ", prefix + b"to ")):
                head.action = action
                word, _, raw = line[len(prefix) :].partition(b" ")
                try:
                    path = paths.unquote(raw)[0] if raw.startswith(b'"') else paths.decode(raw)
                except UnsafePath as error:
                    self._fail(str(error))
                head.source, head.target = (path, head.target) if word == b"from" else (head.source, path)
                return True
        return line.startswith((b"similarity index ", b"dissimilarity index ", b"index "))

    def _mode(self, head: _Head, line: bytes, mode: int) -> None:
        if mode & 0o170000 != _REGULAR:
            self._fail("only regular files can be patched, not symbolic links or submodules")
        if line.startswith(b"new file"):
            head.action, head.new_mode = Action.CREATE, mode & 0o7777
        elif line.startswith(b"deleted file"):
            head.action, head.old_mode = Action.DELETE, mode & 0o7777
        elif line.startswith(b"old"):
            head.old_mode = mode & 0o7777
        else:
            head.new_mode = mode & 0o7777

    # -- hunks --------------------------------------------------------------------------------------------------

    def _hunks(self, head: _Head) -> tuple[Hunk, ...]:
        hunks: list[Hunk] = []
        while self.at < len(self.lines) and (match := _HUNK.match(self.lines[self.at])):
            hunks.append(self._hunk(match, head.is_crlf))
            if len(hunks) > 1 and hunks[-1].first < hunks[-2].first + len(hunks[-2].old):
                self.at = hunks[-1].line - 1
                self._fail("this hunk overlaps the one before it, or stands before it")
        if self.at < len(self.lines) and hunks:
            line = self._bare()
            if line[:1] in (b"+", b" ", b"-") and line.rstrip() != b"--" and not self._starts_plain_header():
                self._fail("the hunk holds more lines than its header says")
        if head.old and not hunks:
            self._fail("a file header without a hunk", at=head.line - 1)
        return tuple(hunks)

    def _hunk(self, match: re.Match[bytes], is_crlf: bool) -> Hunk:
        start = self.at
        old_start, old_left, new_start, new_left = (
            int(match.group(i)) if match.group(i) is not None else 1 for i in (1, 2, 3, 4)
        )
        if (old_left and not old_start) or (new_left and not new_start):
            self._fail("a hunk with lines starts at line 1 or later")
        lines: list[Line] = []
        self.at += 1
        while old_left or new_left:
            raw = self.lines[self.at] if self.at < len(self.lines) else b""
            sign, body = (b" ", raw) if raw in (b"\n", b"\r\n") else (raw[:1], raw[1:])
            takes_old, takes_new = sign in (b" ", b"-"), sign in (b" ", b"+")
            if sign == b"\\" and lines:
                self._unend(lines)
                continue
            if not (takes_old or takes_new) or takes_old > old_left or takes_new > new_left:
                self._fail("the hunk's lines do not add up to what its header says", at=start)
            if is_crlf and body.endswith(b"\r\n"):
                body = body[:-2] + b"\n"
            lines.append(Line(sign, body if body.endswith(b"\n") else body + b"\n"))
            old_left, new_left = old_left - takes_old, new_left - takes_new
            self.at += 1
        if lines and self.at < len(self.lines) and self.lines[self.at].startswith(b"\\"):
            self._unend(lines)
        if all(line.sign == b" " for line in lines):
            self._fail("a hunk that changes nothing", at=start)
        hunk = Hunk(old_start, new_start, tuple(lines), start + 1)
        if not all(text.endswith(b"\n") for side in (hunk.old, hunk.new) for text in side[:-1]):
            self._fail("only the last line of a file can lack its line end", at=start)
        return hunk

    def _unend(self, lines: list[Line]) -> None:
        """`\\ No newline at end of file` speaks of the line before it."""
        lines[-1] = Line(lines[-1].sign, lines[-1].text.removesuffix(b"\n"))
        self.at += 1

    # -- one file -----------------------------------------------------------------------------------------------

    def _file(self, head: _Head, hunks: tuple[Hunk, ...]) -> FileDiff | None:
        try:
            action, source, path = self._names(head, hunks)
            source, path = paths.safe_path(source), paths.safe_path(path)
        except UnsafePath as error:
            self.problems.append(Problem(str(error), Place(self.name, head.line, text=head.text), _HEADER_HINT))
            return None
        is_silent = action in (Action.MODIFY, Action.CREATE, Action.DELETE) and not hunks
        if is_silent and head.old_mode is None and head.new_mode is None:
            self.problems.append(Problem("a file header that changes nothing", Place(self.name, head.line)))
        return FileDiff(action, path, source, hunks, head.line, head.old_mode, head.new_mode, head.is_crlf)

    def _names(self, head: _Head, hunks: tuple[Hunk, ...]) -> tuple[Action, str, str]:
        """Action, path before and path after, stripped but not yet judged safe."""
        if head.action in (Action.RENAME, Action.COPY):
            # `rename from` carries no prefix: what the strip level takes beyond it still applies.
            level = max(0, (1 if self.strip is None else self.strip) - 1)
            if head.source is None or head.target is None:
                raise UnsafePath(f"a {head.action} needs both ends")
            return head.action, paths.strip_prefix(head.source, level), paths.strip_prefix(head.target, level)
        if head.old is None or head.new is None:
            return self._names_without_hunks(head)
        (old, old_stamp), (new, new_stamp) = head.old, head.new
        level = self._level(old, new)
        if old == NOWHERE or (_is_epoch(old_stamp) and _is_empty_side(hunks, old=True)):
            path = paths.strip_prefix(new, level)
            return Action.CREATE, path, path
        if new == NOWHERE or (_is_epoch(new_stamp) and _is_empty_side(hunks, old=False)):
            path = paths.strip_prefix(old, level)
            return Action.DELETE, path, path
        before, after = paths.strip_prefix(old, level), paths.strip_prefix(new, level)
        if before != after:
            raise UnsafePath(f"the two names differ after stripping {level}: {before!r} and {after!r}")
        return head.action or Action.MODIFY, before, after

    def _names_without_hunks(self, head: _Head) -> tuple[Action, str, str]:
        levels = (1, 0) if self.strip is None else (self.strip,)
        for level in levels:
            if (path := paths.shared_name(head.git or b"", level)) is not None:
                return head.action or Action.MODIFY, path, path
        raise UnsafePath("the header names no file that both sides share")

    def _level(self, old: str, new: str) -> int:
        if self.strip is not None:
            return self.strip
        named = [path for path in (old, new) if path != NOWHERE]
        firsts = [path.partition("/")[0] for path in named]
        has_prefixes = all("/" in path for path in named) and set(firsts) <= _PREFIXES
        return 1 if has_prefixes and (len(named) == 1 or firsts[0] != firsts[1]) else 0

    def _bare(self) -> bytes:
        """The current line without its end; a `\\r` before it belongs to the end in a header."""
        return self.lines[self.at].removesuffix(b"\n").removesuffix(b"\r")

    def _fail(self, what: str, at: int | None = None) -> None:
        where = self.at if at is None else at
        text = _text(self.lines[where]) if where < len(self.lines) else None
        raise _Unreadable(Problem(what, Place(self.name, where + 1, text=text)))


class _Unreadable(Exception):
    """A jump out of the parser, never seen outside."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.what)
        self.problem = problem


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode("utf-8", "backslashreplace")


def _is_empty_side(hunks: tuple[Hunk, ...], *, old: bool) -> bool:
    return len(hunks) == 1 and not (hunks[0].old if old else hunks[0].new)


def _is_epoch(stamp: str) -> bool:
    """`diff -N` marks a file that is not there by the time stamp 0, in the zone of whoever made the diff."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.0+)? ([+-]\d\d)(\d\d)", stamp)
    if match is None:
        return False
    try:
        return datetime.fromisoformat(f"{match[1]}{match[2]}:{match[3]}").timestamp() == 0
    except ValueError:
        return False
