"""The JSON Schema of a playbook, for editors; the same schema answers what may stand at a place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from orchestrator.core.model import Inventory, Playbook
from orchestrator.core.units import show_duration, show_percent
from orchestrator.playbook.document import KeyPath

_ID = "playbook.schema.json"
_KINDS = {
    "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "a mapping", "null": "null",
}  # fmt: skip


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a playbook, with a description for every key."""
    body = _tidy(Playbook.model_json_schema())
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": _ID,
        "title": "Playbook",
        "description": "One campaign: what is tuned, what is measured, and the hypotheses.",
    }
    return head | {key: value for key, value in body.items() if key not in head}


def _tidy(node: Any, key: str = "") -> Any:  # noqa: ANN401 - any JSON
    """Without generated titles, with defaults as a person writes them, and strict where names have a pattern."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    is_named = key in ("properties", "$defs", "patternProperties")
    tidy = {name: _tidy(item, "" if is_named else name) for name, item in node.items() if is_named or name != "title"}
    if is_named:
        return tidy
    default = tidy.get("default")
    if isinstance(default, float) and tidy.get("type") == "string":
        tidy["default"] = show_percent(default) if "%" in tidy["pattern"] else show_duration(default)
    if "patternProperties" in tidy:
        tidy.setdefault("additionalProperties", False)
    return tidy


class Shape:
    """What a model allows at each place of a file."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._root = model.model_json_schema()

    def keys(self, path: KeyPath) -> dict[str, str]:
        """The keys that may stand at `path`, with their descriptions. Empty where names are free."""
        return {
            name: str(node.get("description", ""))
            for place in self._at(path)
            for name, node in place.get("properties", {}).items()
        }

    def kinds(self, path: KeyPath) -> list[str]:
        """The kinds of value that may stand at `path`, in words."""
        return list(dict.fromkeys(_KINDS[n["type"]] for n in self._at(path) if n.get("type") in _KINDS))

    def choices(self, path: KeyPath) -> list[str]:
        return [str(choice) for node in self._at(path) for choice in node.get("enum", [])]

    def _at(self, path: KeyPath) -> list[dict[str, Any]]:
        nodes = list(self._alternatives(self._root))
        for part in path:
            nodes = [found for node in nodes for child in _children(node, part) for found in self._alternatives(child)]
        return nodes

    def _alternatives(self, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if "$ref" in node:
            name = node["$ref"].removeprefix("#/$defs/")
            yield from self._alternatives(self._root["$defs"][name])
        elif inner := node.get("anyOf") or node.get("oneOf"):
            for one in inner:
                yield from self._alternatives(one)
        else:
            yield node


def _children(node: Mapping[str, Any], part: str | int) -> Iterator[dict[str, Any]]:
    if isinstance(part, int):
        candidates = [node.get("items")]
    elif part in node.get("properties", {}):
        candidates = [node["properties"][part]]
    else:
        candidates = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")]
    yield from (one for one in candidates if isinstance(one, dict))


@cache
def shape_of(model: type[Playbook] | type[Inventory]) -> Shape:
    return Shape(model)


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that was probably meant; case, dashes and underscores make no difference."""
    folded = {_fold(choice): choice for choice in choices}
    found = difflib.get_close_matches(_fold(word), folded, 1, 0.6)
    return folded[found[0]] if found else None


def suggest(word: str, choices: Iterable[str], among: str) -> str:
    """The hint for a word that is none of the choices; `among` names them: "keys here"."""
    known = list(choices)
    meant = nearest(word, known)
    if meant:
        return f"did you mean `{meant}`?"
    return f"{among}: {', '.join(known)}" if known else f"{among}: none"


def _fold(word: str) -> str:
    return word.lower().replace("-", "_").strip("_")
