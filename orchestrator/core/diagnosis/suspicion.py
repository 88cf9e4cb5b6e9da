"""Which changes the cause touches: a frame in a changed file, or a changed variable or flag that brings this about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.core.diagnosis.blocks import Block
from orchestrator.core.diagnosis.reading import Hit, Reading

_PATH = re.compile(r"[\w.+/-]*\w\.\w+")

Changes = Mapping[str, Sequence[str] | str]
"""Change id to what it changed: paths, or names of variables and flags. One string counts as one item."""


@dataclass(frozen=True, slots=True)
class Touched:
    """A traceback with a frame in a changed file, and how near that frame is to the error (0 is the innermost)."""

    block: Block
    changes: tuple[str, ...]
    distance: int


def items(changes: Changes) -> Iterable[tuple[str, str]]:
    """(change id, changed thing), one by one."""
    for change, things in changes.items():
        for thing in (things,) if isinstance(things, str) else things:
            yield change, thing


def _is_same_file(frame_path: str, changed: str) -> bool:
    """Whether a frame is in a changed file; either path may be relative to some root of the other."""
    frame, change = (path.replace("\\", "/").lstrip("./") for path in (frame_path, changed))
    if not change or not frame:
        return False
    return frame == change or frame.endswith("/" + change) or change.endswith("/" + frame)


def touched_by(block: Block, changed_paths: Changes) -> Touched | None:
    """The innermost frame of a traceback that lies in a changed file."""
    pairs = list(items(changed_paths))
    for distance, file in enumerate(reversed(block.files)):
        changes = tuple(dict.fromkeys(change for change, path in pairs if _is_same_file(file, path)))
        if changes:
            return Touched(block, changes, distance)
    return None


def quoted_suspects(text: str, changed_paths: Changes) -> tuple[str, ...]:
    """Changes of a file that a line names, as a compiler does."""
    named = _PATH.findall(text)
    return tuple(
        dict.fromkeys(
            change for change, path in items(changed_paths) if any(_is_same_file(file, path) for file in named)
        )
    )


def named_suspects(reading: Reading, hit: Hit, changed_names: Changes) -> tuple[str, ...]:
    """Changes of a variable or flag that the signature is known for, or that the cause itself names."""
    words = hit.line.text
    if hit.block is not None:
        words += "\n" + "\n".join(reading.line(n).text for n in hit.block.exceptions)
    found: dict[str, None] = {}
    for change, name in items(changed_names):
        bare = name.split("=", 1)[0].strip()
        if bare and (bare in hit.signature.knobs or bare in words):
            found[change] = None
    return tuple(found)
