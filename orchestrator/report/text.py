"""Words of a host in a report: nothing that a terminal, a spreadsheet or Markdown would act on."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~!&])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def plain(text: str) -> str:
    """One line without control characters: they are shown as escapes, line ends as ⏎."""
    lines = re.sub(r"\r\n|\r|\n", "⏎", text.strip("\r\n"))
    return "".join(_visible(c) if _acts(c) else c for c in lines.replace("\t", " "))


def _acts(character: str) -> bool:
    """Control, format (such as a change of writing direction), surrogate, unassigned, separator of lines."""
    return not character.isprintable() and unicodedata.category(character) != "Zs"


def _visible(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def markdown(text: str) -> str:
    """Text inside a paragraph or table cell. Code forges look for `@name` and `#1` after rendering, where a backslash
    no longer counts: an empty comment keeps them from calling people and linking issues."""
    return _MARKDOWN.sub(r"\\\1", plain(text)).replace("@", "@<!-- -->").replace("\\#", "#<!-- -->")


def code(text: str) -> str:
    """A code span, whatever backticks the text has; safe in a table cell."""
    line = plain(text).replace("|", "\\|")
    if not line.strip():
        return "–"
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def cell(value: object) -> str:
    """A CSV cell. Text that a spreadsheet would take for a formula begins with an apostrophe; numbers do not."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = plain(str(value))
    return f"'{text}" if text.startswith(_FORMULA) or str(value).startswith(_FORMULA) else text


def percent(effect: float | None) -> str:
    """0.0931 → `+9.3 %`; None → `–`."""
    return "–" if effect is None else f"{effect * 100:+.1f} %"


def interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{low * 100:+.1f} … {high * 100:+.1f} %"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def change(change: Mapping[str, Any]) -> str:
    """One change in a line: `NCCL_ALGO=Tree`, `--ep-size 8`, `patch fusion.patch`."""
    for kind, body in change.items():
        describe = _CHANGES.get(kind)
        if describe is not None:
            return describe(body)
    return plain(str(dict(change)))


def _env(body: Mapping[str, Any]) -> str:
    return " ".join(f"unset {name}" if value is None else f"{name}={value}" for name, value in body.items())


def _args(body: Mapping[str, Any]) -> str:
    words = []
    for name, value in body.items():
        flag = "--" + name.lstrip("-").replace("_", "-")
        if value is None or value is False:
            words.append(f"without {flag}")
        elif value is True:
            words.append(flag)
        else:
            shown = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            words.append(f"{flag} {shown}")
    return " ".join(words)


def _patch(body: object) -> str:
    if not isinstance(body, Mapping):
        return f"patch {body if isinstance(body, str) else ' '.join(map(str, body))}"  # type: ignore[call-overload]
    edited = dict.fromkeys(str(edit["file"]) for edit in body.get("edits") or ())
    return " ".join(["patch", *map(str, body.get("files") or ()), *(f"edit of {file}" for file in edited)])


def _sitecustomize(body: Mapping[str, Any]) -> str:
    code_lines = len(str(body.get("code") or "").strip().splitlines())
    parts = [_env(body.get("env") or {}), f"{code_lines} lines of code" if code_lines else ""]
    return "sitecustomize " + " and ".join(filter(None, parts))


def _file(body: Mapping[str, Any]) -> str:
    return f"{'delete' if body.get('delete') else 'file'} {body.get('path')}"


_CHANGES = {"env": _env, "args": _args, "patch": _patch, "sitecustomize": _sitecustomize, "file": _file}
