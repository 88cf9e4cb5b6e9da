"""A change set applied in memory: what each file holds before and after, or every reason why it does not fit.

Nothing here touches a host. What travels afterwards is the whole new file and the digest of the old one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.core.patching import blocks
from orchestrator.core.patching.diff import Action, FileDiff, Patch, split_lines
from orchestrator.core.patching.fit import Misfit, Offset, fit, is_applied
from orchestrator.errors import Bug, PatchConflict, Place, Problem


@dataclass(frozen=True)
class TextEdit:
    """Search and replace: `find` must occur exactly `count` times. `where` is its place in the playbook."""

    path: str
    find: bytes
    replace: bytes
    count: int = 1
    where: Place | None = None


@dataclass(frozen=True)
class Block:
    """A guarded block of Python at the end of a `sitecustomize.py`."""

    path: str
    source: str
    marker_id: str
    where: Place | None = None


@dataclass(frozen=True)
class WholeFile:
    """A file with this content, new or in place of the one there, or removed (None). `mode` None keeps the mode."""

    path: str
    content: bytes | None
    mode: int | None = None
    where: Place | None = None


Change = Patch | TextEdit | Block | WholeFile


@dataclass(frozen=True)
class FileEdit:
    """One file of a change set. None as content: there is no file; None as mode: as found.

    `taken_from` names the path whose mode and owner a renamed or copied file takes.
    """

    path: str
    before: bytes | None
    after: bytes | None
    mode_before: int | None = None
    mode_after: int | None = None
    taken_from: str | None = None


def paths_of(changes: Iterable[Change]) -> list[str]:
    """Every path that must be read before the changes can be planned, sorted."""
    named: set[str] = set()
    for change in changes:
        if isinstance(change, Patch):
            named.update(path for diff in change.files for path in (diff.path, diff.source))
        else:
            named.add(change.path)
    return sorted(named)


def plan_files(
    changes: Patch | Sequence[Change], read: Mapping[str, bytes | None], *, offset: Offset = "exact"
) -> list[FileEdit]:
    """Apply the changes in order, in memory.

    `read` holds the content of each of `paths_of(changes)`; None where there is no file. Returns one edit per path
    that ends up different, sorted by path. Raises one `PatchConflict` that holds all misfits. A change that meets a
    file another change already failed on is not judged.
    """
    sequence: Sequence[Change] = [changes] if isinstance(changes, Patch) else changes
    tree = _Tree(read, offset)
    for change in sequence:
        if isinstance(change, Patch):
            tree.patch(change)
        elif isinstance(change, TextEdit):
            tree.edit(change)
        elif isinstance(change, Block):
            tree.block(change)
        else:
            tree.put(change)
    if tree.problems:
        first, count = tree.problems[0], len(tree.problems)
        what = first.what if count == 1 else f"{first.what} (and {count - 1} more)"
        raise PatchConflict(what, where=first.where, facts=first.facts, hint=first.hint, problems=tree.problems)
    return tree.edits()


@dataclass
class _Node:
    content: bytes | None
    mode_before: int | None = None
    mode_after: int | None = None
    taken_from: str | None = None


@dataclass
class _Tree:
    """The files as they are after the changes taken so far."""

    read: Mapping[str, bytes | None]
    offset: Offset
    nodes: dict[str, _Node] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    marker_ids: set[str] = field(default_factory=set)

    def now(self, path: str) -> bytes | None:
        if path in self.nodes:
            return self.nodes[path].content
        if path not in self.read:
            raise Bug(f"{path} was not read before its changes were planned")
        return self.read[path]

    def edits(self) -> list[FileEdit]:
        edits = []
        for path, node in sorted(self.nodes.items()):
            before = self.read[path]
            if before != node.content or node.mode_before != node.mode_after:
                edits.append(FileEdit(path, before, node.content, node.mode_before, node.mode_after, node.taken_from))
        return edits

    def refuse(self, path: str, problem: Problem) -> None:
        self.failed.add(path)
        self.problems.append(problem)

    # -- patches ------------------------------------------------------------------------------------------------

    def patch(self, patch: Patch) -> None:
        """All files of one patch; a rename or copy reads its source as it was before the patch, as git does."""
        before = {path: self.now(path) for path in paths_of([patch])}
        vacated = {diff.source for diff in patch.files if diff.action in (Action.RENAME, Action.DELETE)}
        written: set[str] = set()
        for diff in patch.files:
            if self.failed & {diff.source, diff.path}:
                continue
            is_moved = diff.action in (Action.RENAME, Action.COPY)
            content = before[diff.source] if is_moved else self.now(diff.source)
            if problem := self._misplaced(patch, diff, content, vacated - written):
                self.refuse(diff.path, problem)
                continue
            result = fit(diff, content or b"", self.offset)
            if diff.action is Action.MODIFY and _is_applied(diff, content or b"", result.misfits):
                self.refuse(diff.path, _problem(patch, diff, "the patch is already applied"))
            elif result.misfits:
                self.failed.add(diff.path)
                self.problems += [_misfit_problem(patch, diff, misfit) for misfit in result.misfits]
            elif diff.action is Action.DELETE and result.content:
                what = "the file holds more than the patch deletes"
                self.refuse(diff.path, _problem(patch, diff, what))
            else:
                self._take(diff, result.content, written)

    def _take(self, diff: FileDiff, content: bytes, written: set[str]) -> None:
        if diff.action in (Action.RENAME, Action.DELETE) and diff.source not in written:
            self.nodes[diff.source] = _Node(None, diff.mode_before, None)
        if diff.action is Action.DELETE:
            return
        taken_from = diff.source if diff.action in (Action.RENAME, Action.COPY) else None
        earlier = self.nodes.get(diff.path)
        mode_before, mode_after = diff.mode_before, diff.mode_after
        if earlier is not None and earlier.content is not None:
            mode_before = earlier.mode_before if earlier.mode_before is not None else mode_before
            mode_after = mode_after if mode_after is not None else earlier.mode_after
            taken_from = taken_from or earlier.taken_from
        self.nodes[diff.path] = _Node(content, mode_before, mode_after, taken_from)
        written.add(diff.path)

    def _misplaced(self, patch: Patch, diff: FileDiff, content: bytes | None, vacated: set[str]) -> Problem | None:
        """Is the file where the patch needs it, and is the place free where it puts one?"""
        target = self.now(diff.path)
        if diff.action is Action.CREATE:
            if target is None:
                return None
            is_same = target == fit(diff, b"", "exact").content
            return _problem(
                patch, diff, "the patch is already applied" if is_same else "the file to create is already there"
            )
        if content is None:
            is_done = diff.action is Action.DELETE or (diff.action is Action.RENAME and target is not None)
            what = "the patch is already applied" if is_done else "the file to patch is not there"
            return _problem(patch, diff, what)
        if diff.action in (Action.RENAME, Action.COPY) and target is not None and diff.path not in vacated:
            is_done = diff.action is Action.COPY and target == fit(diff, content).content
            what = "the patch is already applied" if is_done else "the file it makes is already there"
            return _problem(patch, diff, what)
        return None

    # -- other changes ------------------------------------------------------------------------------------------

    def edit(self, edit: TextEdit) -> None:
        if edit.path in self.failed:
            return
        content = self.now(edit.path)
        problem = _judge_edit(edit, content)
        if problem is not None or content is None:
            self.refuse(edit.path, problem or Problem("the file to edit is not there", edit.where))
            return
        self._keep(edit.path, content.replace(edit.find, edit.replace))

    def block(self, block: Block) -> None:
        if block.path in self.failed:
            return
        try:
            content = blocks.with_block(self.now(block.path), block.source, block.marker_id, beside=self.marker_ids)
        except PatchConflict as error:
            facts = {"file": block.path, **error.facts}
            self.refuse(block.path, Problem(error.what, block.where, error.hint, facts))
            return
        self.marker_ids.add(block.marker_id)
        self._keep(block.path, content)

    def put(self, file: WholeFile) -> None:
        if file.path in self.failed:
            return
        if self.now(file.path) == file.content and file.mode is None:
            what = "the file is already gone" if file.content is None else "the file already holds this content"
            self.refuse(file.path, Problem(what, file.where, None, {"file": file.path}))
            return
        self._keep(file.path, file.content, file.mode)

    def _keep(self, path: str, content: bytes | None, mode: int | None = None) -> None:
        node = self.nodes.setdefault(path, _Node(None))
        node.content = content
        node.mode_after = mode if mode is not None else node.mode_after


def _is_applied(diff: FileDiff, content: bytes, misfits: Sequence[Misfit]) -> bool:
    """Where the patch still fits, only its exact trace counts; where it does not, a moved one explains why."""
    return is_applied(diff, content) or (bool(misfits) and is_applied(diff, content, "unique"))


def _problem(patch: Patch, diff: FileDiff, what: str) -> Problem:
    return Problem(what, Place(patch.name, diff.line), None, {"file": diff.path, "action": diff.action.value})


def _misfit_problem(patch: Patch, diff: FileDiff, misfit: Misfit) -> Problem:
    hint = None
    what = "the patch does not apply"
    expected, found = misfit.expected, misfit.found
    if found == expected:
        what = "the hunk stands where it says, but an earlier one had to be moved"
    elif found is not None and expected is not None and found.split() == expected.split():
        hint = "the lines differ only in white space or line ends"
    elif expected is None:
        hint = "a hunk without context after its change belongs at the end of the file"
    elif len(misfit.elsewhere) == 1:
        hint = "its old lines stand at one other place; `offset: unique` accepts that"
    looks_alike = found is not None and expected is not None and show(found) == show(expected)
    facts = {
        "file": diff.source,
        "line": str(misfit.line),
        "hunk": f"{misfit.number} of {len(diff.hunks)}",
        "expected": repr(expected) if looks_alike else _show_or_end(expected),
        "found": repr(found) if looks_alike else _show_or_end(found),
        "elsewhere": ", ".join(f"line {line}" for line in misfit.elsewhere) or "nowhere",
    }
    return Problem(what, Place(patch.name, misfit.hunk.line), hint, facts)


def _show_or_end(line: bytes | None) -> str:
    return "the end of the file" if line is None else show(line)


def _judge_edit(edit: TextEdit, content: bytes | None) -> Problem | None:
    def refuse(what: str, **facts: str) -> Problem:
        return Problem(what, edit.where, None, {"file": edit.path, **facts})

    if content is None:
        return refuse("the file to edit is not there")
    if not edit.find or edit.find == edit.replace or edit.count < 1:
        return refuse("an edit needs something to find, something else in its place, and a count of 1 or more")
    starts = [match.start() for match in re.finditer(b"(?=" + re.escape(edit.find) + b")", content)]
    done = _starts(content, edit.replace) if edit.replace else []
    if inside := [s for s in starts if any(d <= s and s + len(edit.find) <= d + len(edit.replace) for d in done)]:
        part = "" if len(inside) == len(starts) else " in part"
        return refuse(f"the edit is already applied{part}", lines=_lines_at(content, done))
    if not starts and len(done) == edit.count:
        return refuse("the edit is already applied", lines=_lines_at(content, done))
    if len(starts) != content.count(edit.find):
        return refuse("the occurrences of the text to find overlap", lines=_lines_at(content, starts))
    if len(starts) != edit.count:
        near = {} if starts else {"similar": _near_misses(content, edit.find) or "nothing"}
        return refuse(
            "the text to find does not occur as often as expected",
            expected=str(edit.count),
            found=str(len(starts)),
            lines=_lines_at(content, starts) or "none",
            **near,
        )
    return None


def _starts(content: bytes, text: bytes) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(text), content)]


def _lines_at(content: bytes, starts: Sequence[int]) -> str:
    return ", ".join(str(content.count(b"\n", 0, start) + 1) for start in starts)


def _near_misses(content: bytes, find: bytes, most: int = 3) -> str:
    """Lines that resemble the first line of the text: equal but for white space first, else the closest ones."""
    wanted = next((line for line in find.splitlines() if line.strip()), b"").split()
    lines = split_lines(content)
    same = [n for n, line in enumerate(lines, start=1) if wanted and line.split() == wanted]
    if not same:
        texts = {show(line).strip(): n for n, line in reversed(list(enumerate(lines, start=1)))}
        close = difflib.get_close_matches(show(b" ".join(wanted)), list(texts), n=most, cutoff=0.75)
        same = [texts[text] for text in close]
    return "; ".join(f"line {n}: {show(lines[n - 1]).strip()}" for n in same[:most])


def show(line: bytes) -> str:
    """A line for people: without its end, odd bytes escaped."""
    return line.rstrip(b"\r\n").decode("utf-8", "backslashreplace")
