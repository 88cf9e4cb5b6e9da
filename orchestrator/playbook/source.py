"""Files as a person sees them: characters with line and column, read with every refusal in plain words."""

from __future__ import annotations

import bisect
import re
from pathlib import Path

from orchestrator.core.secrets import MASK, is_secret
from orchestrator.errors import Place, PlaybookError, Problem

MOST_BYTES = 1 << 20

_BREAK = re.compile(r"\r\n|\n|\r")
_SHOWN = 200  # characters of a line that are shown
_ASSIGNMENT = re.compile(r"""(?<![\w-])(?:(--[\w-]+)(?:["']?\s*[,=]\s*|\s+)|([\w-]+)["']?\s*[:=]\s*)(?=\S)""")


class Text:
    """The characters of a file, and the line and column of each."""

    def __init__(self, name: str, content: str) -> None:
        self.name = name
        self.content = content
        self._starts = [0, *(found.end() for found in _BREAK.finditer(content))]
        self._end = len(content.rstrip())

    def end_before(self, index: int) -> int:
        """Behind the last character before `index` that is not blank."""
        while index > 0 and self.content[index - 1].isspace():
            index -= 1
        return index

    def place(self, index: int) -> Place:
        """The place of a character. An index in the blank tail of the file is the end of what is written."""
        index = max(0, min(index, self._end))
        line = bisect.bisect_right(self._starts, index)
        start = self._starts[line - 1]
        stop = self._starts[line] if line < len(self._starts) else len(self.content)
        text = self.content[start:stop].rstrip("\r\n")
        return Place(self.name, line, min(index - start, len(text)) + 1, without_secret(text)[:_SHOWN])


def without_secret(line: str) -> str:
    """The line for display: a complaint about a line must not print what is masked everywhere else."""
    for found in _ASSIGNMENT.finditer(line):
        if is_secret(found[1] or found[2]):
            return line[: found.end()] + MASK
    return line


def read_text(path: Path) -> Text:
    """A UTF-8 file, with or without a byte order mark. Raises `PlaybookError`."""
    where = Place(str(path))
    raw = read_bytes(path, where)
    if b"\0" in raw:
        raise PlaybookError([Problem(f"{path} is not text: it holds NUL bytes", where)])
    try:
        return Text(str(path), raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        where = Place(str(path), raw.count(b"\n", 0, error.start) + 1)
        what = f"{path} is not UTF-8: byte 0x{raw[error.start]:02x} at offset {error.start}"
        raise PlaybookError([Problem(what, where, "save the file as UTF-8")]) from error


def read_bytes(path: Path, blame: Place, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises `PlaybookError` that points at `blame`."""

    def refuse(what: str) -> PlaybookError:
        return PlaybookError([Problem(f"{path} {what}", blame)])

    try:
        if path.is_dir():
            raise refuse("is a directory, not a file")
        if not path.is_file():  # a pipe or a device would block us
            raise refuse("is not a regular file" if path.exists() else "does not exist")
        if path.stat().st_size > most:
            raise refuse(f"is larger than {most >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # a NUL in the name
        raise refuse(f"cannot be read: {error}") from error
