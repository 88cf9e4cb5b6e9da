"""Owns stdout: data for people, or JSON. Narration belongs to `diagnostics`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def emit_json(value: Any) -> None:  # noqa: ANN401 - anything JSON can hold
    """One JSON document. Records (pydantic) are dumped, Infinity and NaN are refused by `allow_nan`."""
    json.dump(value, sys.stdout, default=_plain, ensure_ascii=False, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def emit(text: str = "") -> None:
    """One line or block of text, escaped: what a host printed never reaches the terminal raw."""
    sys.stdout.write(printable(text) + "\n")


def emit_text(text: str) -> None:
    """A whole document, its line ends as they are, escaped like the rest."""
    sys.stdout.write(printable(text))


def emit_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns padded to their widest cell. On a terminal a line ends at its edge; elsewhere nothing is cut."""
    table = [[_cell(c) for c in row] for row in rows]
    widths = [max([len(header[i]), *(len(row[i]) for row in table)]) for i in range(len(header))]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in ([*header], *table):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        emit(line if edge is None or len(line) <= edge else line[: edge - 1] + "…")


def printable(text: str) -> str:
    """Control characters except newline and tab become visible escapes."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def _cell(value: object) -> str:
    return "–" if value is None else printable(str(value)).replace("\n", " ")


def _plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Iterable):
        return list(value)
    return str(value)
