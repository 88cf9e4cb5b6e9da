"""The members of a bundle, and changes that are made of some of them. Pure.

A member is the least that is worth leaving out: hunks of a patch that need one another, one variable, one flag, one
file. Part of a diff is named `FILE#1,3`, by its pieces counted from 1; `PartialTexts` reads such names.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.core import patching
from orchestrator.core.model import (
    ArgsChange,
    Change,
    EnvChange,
    FileChange,
    Patch,
    PatchChange,
    Sitecustomize,
    SitecustomizeChange,
    change_kind,
)

_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
CODE = "code"


@dataclass(frozen=True)
class Member:
    """`change`: its place in the hypothesis, from 1. `file`, `pieces`: of a diff; `key`: a variable, flag or edit."""

    name: str
    change: int
    key: str = ""
    file: str = ""
    pieces: tuple[int, ...] = ()


def members_of(changes: Sequence[Change], texts: Mapping[str, bytes]) -> list[Member]:
    """In the order of the changes; names are unique."""
    found = [member for index, change in enumerate(changes, start=1) for member in _members(index, change, texts)]
    often = Counter(member.name for member in found)
    kinds = {index: change_kind(change) for index, change in enumerate(changes, start=1)}
    return [replace(m, name=f"{m.name} ({kinds[m.change]}:{m.change})") if often[m.name] > 1 else m for m in found]


def some_of(changes: Sequence[Change], members: Sequence[Member]) -> tuple[Change, ...]:
    """The changes with these members and no others; a change without any is left out."""
    kept: list[Change] = []
    for index, change in enumerate(changes, start=1):
        mine = [member for member in members if member.change == index]
        if mine:
            kept.append(_reduced(change, mine))
    return tuple(kept)


def _members(index: int, change: Change, texts: Mapping[str, bytes]) -> Iterator[Member]:
    if isinstance(change, PatchChange):
        for file in change.patch.files:
            parsed = patching.parse(texts[file], file, strip=change.patch.strip)
            for name, pieces in _groups(parsed):
                yield Member(name, index, file=file, pieces=pieces)
        for number, edit in enumerate(change.patch.edits):
            yield Member(f"{posixpath.basename(edit.file)} edit {number + 1}", index, key=str(number))
    elif isinstance(change, EnvChange):
        yield from (Member(name, index, key=name) for name in change.env)
    elif isinstance(change, ArgsChange):
        yield from (Member(f"--{name}", index, key=name) for name in change.args)
    elif isinstance(change, SitecustomizeChange):
        yield from (Member(name, index, key=name) for name in change.sitecustomize.env)
        if change.sitecustomize.code.strip():
            yield Member("sitecustomize code", index, key=CODE)
    else:
        yield Member(change.file.path, index, key=change.file.path)


def _reduced(change: Change, members: Sequence[Member]) -> Change:
    keys = {member.key for member in members}
    if isinstance(change, EnvChange):
        return EnvChange(env={n: v for n, v in change.env.items() if n in keys})
    if isinstance(change, ArgsChange):
        return ArgsChange(args={n: v for n, v in change.args.items() if n in keys})
    if isinstance(change, SitecustomizeChange):
        env = {n: v for n, v in change.sitecustomize.env.items() if n in keys}
        code = change.sitecustomize.code if CODE in keys else ""
        return SitecustomizeChange(sitecustomize=Sitecustomize(env=env, code=code))
    if isinstance(change, FileChange):
        return change
    patch = change.patch
    files: list[str] = []
    for file in patch.files:
        pieces = sorted(piece for member in members if member.file == file for piece in member.pieces)
        if pieces:
            files.append(f"{file}#{','.join(map(str, pieces))}")
    edits = tuple(edit for number, edit in enumerate(patch.edits) if str(number) in keys)
    return PatchChange(patch=Patch(files=tuple(files), edits=edits, strip=patch.strip, offset=patch.offset))


# ---------------------------------------------------------------- pieces of a diff


def _groups(patch: patching.Patch) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and pieces: hunks of one file that share a word which only they bring in cannot stand without one another,
    and a file that is created, deleted or renamed is one piece."""
    number = 0
    for file in patch.files:
        base = posixpath.basename(file.path)
        if file.action is not patching.Action.MODIFY or not file.hunks:
            number += 1
            yield f"{base} ({file.action.value})", (number,)
            continue
        numbered = {number + i: hunk for i, hunk in enumerate(file.hunks, start=1)}
        number += len(numbered)
        for group in _linked({i: _new_words(hunk, file.hunks) for i, hunk in numbered.items()}):
            starts = ",".join(str(numbered[i].old_start) for i in group)
            yield f"{base}:{starts}", group


def _new_words(hunk: patching.Hunk, all_hunks: Sequence[patching.Hunk]) -> set[bytes]:
    """Words of the hunk's added lines that no old line of the file's hunks has."""
    old = {word for other in all_hunks for line in other.old for word in _WORD.findall(line)}
    added = {word for line in hunk.lines if line.sign == b"+" for word in _WORD.findall(line.text)}
    return added - old


def _linked(words: Mapping[int, set[bytes]]) -> list[tuple[int, ...]]:
    groups: list[tuple[set[int], set[bytes]]] = []
    for number, brought in words.items():
        joined = [group for group in groups if group[1] & brought]
        groups = [group for group in groups if group not in joined]
        members = {number}.union(*(group[0] for group in joined))
        groups.append((members, brought.union(*(group[1] for group in joined))))
    return sorted(tuple(sorted(members)) for members, _ in groups)


def cut(data: bytes, name: str, pieces: Collection[int]) -> bytes:
    """The diff with these pieces only, counted from 1: hunks of changed files, other files as wholes."""
    lines = data.splitlines(keepends=True) if b"\r" not in data else [x + b"\n" for x in data.split(b"\n")]
    patch = patching.parse(data, name)
    starts = sorted([file.line for file in patch.files] + [h.line for f in patch.files for h in f.hunks])
    ends = dict(zip(starts, [*starts[1:], len(lines) + 1], strict=True))
    kept: list[bytes] = []
    number = 0
    for file in patch.files:
        is_whole = file.action is not patching.Action.MODIFY or not file.hunks
        chosen = []
        for hunk in file.hunks:
            number += 0 if is_whole else 1
            if not is_whole and number in pieces:
                chosen.append(hunk.line)
        if is_whole:
            number += 1
            chosen = [hunk.line for hunk in file.hunks] if number in pieces else []
        if chosen or (is_whole and number in pieces):
            for start in (file.line, *chosen):
                kept += lines[start - 1 : ends[start] - 1]
    return b"".join(kept)


class PartialTexts(Mapping[str, bytes]):
    """The files of a playbook, and parts of its diffs under names such as `fusion.patch#1,3`."""

    def __init__(self, texts: Mapping[str, bytes]) -> None:
        self._texts = texts

    def __getitem__(self, name: str) -> bytes:
        if name in self._texts:
            return self._texts[name]
        file, mark, pieces = name.rpartition("#")
        if not mark or file not in self._texts or not re.fullmatch(r"\d+(,\d+)*", pieces):
            raise KeyError(name)
        return cut(self._texts[file], file, {int(piece) for piece in pieces.split(",")})

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)
