"""Exports are what their schema says, and the schema in the documentation is the one of the code."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.records import CampaignView
from orchestrator.report import export
from orchestrator.report.schema import schema
from tests.report.report_story import EVIL, finding, view

FILE = Path(__file__).parents[2] / "docs" / "ledger-export.schema.json"
TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip
KNOWN = {
    "type", "properties", "required", "items", "anyOf", "allOf", "$ref", "$defs", "enum", "const", "pattern", "minimum",
    "additionalProperties", "exclusiveMinimum", "exclusiveMaximum", "default", "description", "$schema", "$id", "title",
    "prefixItems", "minItems", "maxItems",
}  # fmt: skip


def misfits(value: Any, node: Any, root: Mapping[str, Any], at: str = "") -> list[str]:
    """Where a value is not what a schema says: as much of JSON Schema as ours uses, and no word that is not known."""
    if node is True:
        return []
    assert not set(node) - KNOWN, set(node) - KNOWN
    found: list[str] = []
    if "$ref" in node:
        found += misfits(value, root["$defs"][node["$ref"].removeprefix("#/$defs/")], root, at)
    if "anyOf" in node and all(misfits(value, one, root, at) for one in node["anyOf"]):
        found.append(f"{at}: none of the choices fits {value!r}")
    for one in node.get("allOf", ()):
        found += misfits(value, one, root, at)
    wanted = node.get("type")
    if wanted and (not isinstance(value, TYPES[wanted]) or (isinstance(value, bool) and wanted != "boolean")):
        return [*found, f"{at}: {value!r} is no {wanted}"]
    found += [f"{at}: {value!r}"] if "const" in node and value != node["const"] else []
    found += [f"{at}: {value!r}"] if "enum" in node and value not in node["enum"] else []
    found += [f"{at}: {value!r}"] if "pattern" in node and not re.search(node["pattern"], value) else []
    found += [f"{at}: {value!r}"] if "minimum" in node and value < node["minimum"] else []
    if isinstance(value, dict):
        found += [f"{at}: no {name}" for name in node.get("required", ()) if name not in value]
        rest = node.get("additionalProperties", True)
        for name, part in value.items():
            found += misfits(part, node.get("properties", {}).get(name, rest), root, f"{at}.{name}")
    if isinstance(value, list) and "items" in node:
        for number, part in enumerate(value):
            found += misfits(part, node["items"], root, f"{at}[{number}]")
    return found


def written(of: CampaignView, form: str) -> str:
    out = io.StringIO()
    export(of, form, out)
    return out.getvalue()


VIEWS = [
    view(),
    view(findings=[finding(1, EVIL, "crashed", cause=EVIL, depends_on={"driver": EVIL})]),
    view(runs=[], todo=[], findings=[], decisions=[], insights=[], fingerprints=[], experiments=[], events=[]),
]


@pytest.mark.parametrize("of", VIEWS, ids=["campaign", "evil", "empty"])
def test_json_is_what_the_schema_says(of: CampaignView) -> None:
    """The whole object, with every record in it."""
    assert misfits(json.loads(written(of, "json")), schema(), schema()) == []


@pytest.mark.parametrize("of", VIEWS, ids=["campaign", "evil", "empty"])
def test_a_line_of_jsonl_is_what_the_schema_says(of: CampaignView) -> None:
    """Each line is a known type with its record."""
    for line in written(of, "jsonl").splitlines():
        assert misfits(json.loads(line), schema()["$defs"]["line"], schema()) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [(("version",), 99), (("findings", 0, "verdict"), "wonderful"), (("experiments", 0, "arms", 0, "number"), "one"),
     (("runs", 0, "started_at"), "yesterday"), (("campaign",), None), (("events", 0, "seq"), None)],
)  # fmt: skip
def test_the_schema_notices_what_is_wrong(path: tuple[str | int, ...], value: Any) -> None:
    """A wrong value anywhere is a misfit there, so that a test that finds none says something."""
    whole = json.loads(written(view(), "json"))
    place: Any = whole
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    assert misfits(whole, schema(), schema())


def test_the_documented_schema_is_the_real_one() -> None:
    """docs/ledger-export.schema.json is what `schema()` gives: `orchestrator ledger schema` writes it anew."""
    assert json.loads(FILE.read_text(encoding="utf-8")) == schema()
