"""What validation found, at its place in the file and in our own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.errors import Problem
from orchestrator.playbook.document import Document, KeyPath
from orchestrator.playbook.schema import Shape, suggest

CHANGE_KINDS = ("patch", "env", "sitecustomize", "args", "file")

_UNION_TAGS_AFTER = ("changes", "hops")
"""Lists whose items are told apart by a tag: it stands in an error's location and nowhere in the file."""

_NAME = "begin with a letter or digit, then letters, digits, dots, dashes and underscores"
_PATTERNS = {
    "^[A-Za-z0-9][A-Za-z0-9._-]*$": ("is not a name", _NAME),
    "^[A-Za-z_][A-Za-z0-9_]*$": ("is not the name of a variable", "use letters, digits and underscores"),
    "^0?[0-7]{3}$": ("is not a file mode", "write three octal digits, such as '644'"),
}
_RANK = ("value_error", "literal_error", "string_pattern_mismatch")
"""Of several errors at one value – one for each way it could have been read – the first of these is shown."""


@dataclass(frozen=True)
class _Complaint:
    """An error with its path in the file. `name` is a key that is absent."""

    path: KeyPath
    is_key: bool
    error: ErrorDetails
    name: str = ""

    @property
    def at(self) -> KeyPath:
        return (*self.path, self.name) if self.name else self.path

    @property
    def rank(self) -> int:
        kind = self.error["type"]
        return _RANK.index(kind) if kind in _RANK else len(_RANK)


def problems_in(error: ValidationError, document: Document, shape: Shape) -> list[Problem]:
    """One problem for each thing to mend; errors that only follow from others are left out."""
    complaints = [_located(e, document.data) for e in error.errors(include_url=False)]
    chosen: dict[KeyPath, _Complaint] = {}
    for one in complaints:
        if one.at not in chosen or one.rank < chosen[one.at].rank:
            chosen[one.at] = one
    return [_Writer(document, shape).problem(one) for one in chosen.values() if not _follows(one, chosen)]


def _located(error: ErrorDetails, data: Mapping[str, Any]) -> _Complaint:
    loc = error["loc"]
    path: list[str | int] = []
    value: Any = data
    is_tag = False
    for part in loc:
        is_there = not is_tag and (
            part in value
            if isinstance(value, dict)
            else isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        if is_there:
            value = value[part]
            path.append(part)
        is_tag = is_there and isinstance(part, int) and len(path) > 1 and path[-2] in _UNION_TAGS_AFTER
    is_key = loc[-1:] == ("[key]",) or error["type"] == "extra_forbidden"
    return _Complaint(tuple(path), is_key, error, str(loc[-1]) if error["type"] == "missing" else "")


def _follows(one: _Complaint, chosen: Mapping[KeyPath, _Complaint]) -> bool:
    """A list is "too short" because its item was refused; a mapping "is not text" although its keys are the trouble."""
    if one.is_key or one.error["type"] == "value_error":
        return False
    depth = len(one.at)
    return any(len(path) > depth and path[:depth] == one.at for path in chosen)


class _Writer:
    def __init__(self, document: Document, shape: Shape) -> None:
        self.document = document
        self.shape = shape

    def problem(self, one: _Complaint) -> Problem:
        what, hint = self._say(one)
        path = one.path
        if one.error["type"] == "change_kind" and isinstance(one.error["input"], dict) and one.error["input"]:
            path, is_key = (*path, next(iter(one.error["input"]))), True
        else:
            is_key = one.is_key
        return self.document.problem(what, path, key=is_key, hint=hint)

    def _say(self, one: _Complaint) -> tuple[str, str | None]:
        kind, context = one.error["type"], one.error.get("ctx", {})
        label = f"`{one.name}`" if one.name else _label(one.path)
        match kind:
            case "missing":
                return f"{label} is missing here", f"{one.name}: {self.shape.keys(one.path).get(one.name)}"
            case "extra_forbidden":
                return self._unknown(one.path)
            case "change_kind":
                return self._no_change(one.error["input"])
            case "value_error":
                return _sentence(str(context["error"])), None
            case "literal_error":
                return self._no_choice(one)
            case "string_pattern_mismatch":
                what, hint = _PATTERNS[context["pattern"]]
                return f"{_shown(one.error['input'])} {what}", hint
            case "string_too_long":
                return f"{label} is longer than {context['max_length']} characters", None
            case "string_too_short" | "too_short":
                return f"{label} is empty", "it needs an entry" if kind == "too_short" else "write something"
            case "greater_than_equal":
                return f"{label} is {_shown(one.error['input'])}; it must be at least {context['ge']}", None
            case "less_than_equal":
                return f"{label} is {_shown(one.error['input'])}; it must be at most {context['le']}", None
        return self._wrong_kind(label, one)

    def _unknown(self, path: KeyPath) -> tuple[str, str]:
        key, parent = str(path[-1]), path[:-1]
        if len(parent) >= 2 and parent[-2] == "changes" and key in CHANGE_KINDS:
            return f"one change has one kind; `{key}` is a second", f"make it an item of its own: `- {key}:`"
        if len(parent) == 2 and parent[0] == "hypotheses" and key in CHANGE_KINDS:
            return f"`{key}` does not stand here", f"move it below `changes:`, as an item: `- {key}:`"
        return f"unknown key `{key}`", suggest(key, self.shape.keys(parent), "keys here")

    def _no_change(self, value: object) -> tuple[str, str]:
        if isinstance(value, dict) and value:
            key = next(iter(value))
            return f"`{key}` is no kind of change", suggest(key, CHANGE_KINDS, "kinds of change")
        return "a change is a mapping with one key", f"kinds of change: {', '.join(CHANGE_KINDS)}"

    def _no_choice(self, one: _Complaint) -> tuple[str, str]:
        choices = self.shape.choices(one.path)
        value = one.error["input"]
        also = [kind for kind in self.shape.kinds(one.path) if kind == "a list"]
        hint = suggest(str(value), choices, "choose one of") if isinstance(value, str) else None
        listed = " or ".join([", ".join(choices), *also])
        return f"{_label(one.path)} must be {listed}, not {_kind(value)}", hint or f"choose one of: {listed}"

    def _wrong_kind(self, label: str, one: _Complaint) -> tuple[str, str | None]:
        value = one.error["input"]
        kinds = [kind for kind in self.shape.kinds(one.path) if kind != "null"]
        if not kinds:
            return f"{label} does not fit: {one.error['msg']}", None
        listed = " or ".join(kinds)
        if value is None:
            return f"{label} has no value; it must be {listed}", _hint_for_nothing(kinds)
        return f"{label} must be {listed}, not {_kind(value)}", self._rewritten(one.path, kinds, value)

    def _rewritten(self, path: KeyPath, kinds: Sequence[str], value: object) -> str | None:
        """How the same thing is written rightly, where that is plain."""
        written = self.document.written.get(path, value)
        if kinds == ["text"] and isinstance(value, bool | int | float):
            return f'put it in quotes: "{written}"'
        if kinds == ["a list"] and isinstance(value, bool | int | float | str):
            return f"write [{written}]"
        if kinds == ["a list"] and isinstance(value, dict):
            return "begin each item with a dash"
        return None


def _hint_for_nothing(kinds: Sequence[str]) -> str | None:
    if "a mapping" in kinds:
        return "write {}, or keys below it with more indentation"
    return "write [], or items below it that begin with a dash" if "a list" in kinds else None


def _label(path: KeyPath) -> str:
    """The last key, with the indices behind it: `gpus[1]`."""
    last = max((i for i, part in enumerate(path) if isinstance(part, str)), default=None)
    if last is None:
        return "the file"
    return f"`{path[last]}{''.join(f'[{part}]' for part in path[last + 1 :])}`"


def _kind(value: object) -> str:
    if isinstance(value, str):
        return f"the text {_shown(value)}"
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return f"the number {value}"
    return "a list" if isinstance(value, list) else "a mapping"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _sentence(text: str) -> str:
    """`shlex` says "No closing quotation"."""
    return "a quote is not closed" if text == "No closing quotation" else text
