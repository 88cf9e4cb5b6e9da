"""Files that a playbook names: diffs, and the content of files it creates."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.core.patching import Patch, parse
from orchestrator.errors import Place, PlaybookError, Problem
from orchestrator.playbook.document import Document, KeyPath
from orchestrator.playbook.references import names_at
from orchestrator.playbook.source import read_bytes

_MOST_BYTES = 16 << 20


@dataclass
class Attachments:
    """Name as written → content, and what is wrong with those that are absent."""

    texts: dict[str, bytes] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_attachments(document: Document, folder: Path) -> Attachments:
    """Every diff and `from` file of the playbook. Names are relative to `folder`, or absolute.

    A diff must be what its name says: it is refused where a symbolic link leads out of the folder the name points to,
    and where it is no diff, or one whose paths leave the source tree.
    """
    found = Attachments()
    for path, name, strip in _named(document.data):
        try:
            content = _content(document, path, name, folder, is_patch=strip is not None)
            found.texts[name] = content
            if strip is not None:
                file = os.path.normpath(folder / name)
                found.problems += _absolute(parse(content, file, strip=strip), content)
        except PlaybookError as error:
            found.problems += [one for one in error.problems if one not in found.problems]
    return found


def _absolute(patch: Patch, content: bytes) -> Iterator[Problem]:
    """Paths from the root, which stripping would turn into paths of the tree."""
    lines = content.split(b"\n")
    for file in patch.files:
        head = lines[file.line - 1 : file.hunks[0].line - 1] if file.hunks else []
        for number, line in enumerate(head, file.line):
            if re.match(rb'(---|\+\+\+) "?/(?!dev/null)', line):
                text = line.decode("utf-8", "backslashreplace").rstrip("\r")
                yield Problem("the path is absolute", Place(patch.name, number, 5, text), "make the diff in the tree")


def _named(data: dict[str, Any]) -> Iterator[tuple[KeyPath, str, int | None]]:
    """Path in the document, name, and for diffs the leading parts to strip."""
    hypotheses = data.get("hypotheses")
    for i, hypothesis in enumerate(hypotheses if isinstance(hypotheses, list) else []):
        changes = hypothesis.get("changes") if isinstance(hypothesis, dict) else None
        for j, change in enumerate(changes if isinstance(changes, list) else []):
            if isinstance(change, dict):
                yield from _named_in(change, ("hypotheses", i, "changes", j))


def _named_in(change: dict[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, str, int | None]]:
    patch, file = change.get("patch"), change.get("file")
    strip = 1
    where = (*path, "patch")
    if isinstance(patch, dict):
        written = patch.get("strip", 1)
        strip = written if isinstance(written, int) and written >= 0 else 1
        patch, where = patch.get("files"), (*where, "files")
    yield from ((place, name, strip) for place, name in names_at(patch, where))
    if isinstance(file, dict):
        for key in ("from", "source"):
            yield from ((place, name, None) for place, name in names_at(file.get(key), (*path, "file", key)))


def _content(document: Document, path: KeyPath, name: str, folder: Path, *, is_patch: bool) -> bytes:
    def refuse(what: str, hint: str | None = None) -> PlaybookError:
        return PlaybookError([document.problem(what, path, hint=hint)])

    if not name or "\0" in name:
        raise refuse("the name of a file is missing")
    base = os.path.realpath(folder)
    file = os.path.normpath(Path(base) / name)
    if is_patch and not _leads_inside(file, base):
        hint = "name the file itself, or copy it here"
        raise refuse(f"`{name}` is a symbolic link to {os.path.realpath(file)}, outside of where it lies", hint)
    content = read_bytes(Path(file), document.place(path), _MOST_BYTES)
    if is_patch and not content.strip():
        raise refuse(f"`{name}` is empty")
    return content


def _leads_inside(file: str, folder: str) -> bool:
    """Whether the file is really below the folder that it shares with the playbook.

    `../patches/x.diff` may lie anywhere below the parent, a link there may point to a neighbour; an absolute name that
    shares only the root with the playbook may not be a link at all.
    """
    shared = os.path.commonpath([file, folder])
    inside = os.path.realpath(Path(file).parent) if shared == os.sep else shared
    return os.path.commonpath([os.path.realpath(file), inside]) == inside
