"""The schema and the reference say what the models say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.playbook import check, load, load_inventory, schema

Write = Callable[..., Path]

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "playbook.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", REFERENCE, re.DOTALL | re.MULTILINE)


def test_schema_is_fresh() -> None:
    """docs/playbook.schema.json is what `schema()` gives; write it anew when this fails."""
    assert json.loads((DOCS / "playbook.schema.json").read_text(encoding="utf-8")) == schema()


def _objects() -> Iterator[tuple[str, dict[str, Any]]]:
    whole = schema()
    yield "Playbook", whole
    yield from whole["$defs"].items()


@pytest.mark.parametrize(("name", "node"), list(_objects()), ids=lambda value: value if isinstance(value, str) else "")
def test_every_key_is_described(name: str, node: dict[str, Any]) -> None:
    """Every key has a description in the schema and a row in the reference with its default."""
    for key, item in node["properties"].items():
        assert item.get("description"), f"{name}.{key}"
        if len(node["properties"]) == 1 and name.endswith("Change"):
            assert f"**`{key}`**" in REFERENCE
            continue
        rows = re.findall(rf"^\| `{key}` \|.*$", REFERENCE, re.MULTILINE)
        assert rows, f"{name}.{key}"
        default = item.get("default")
        if isinstance(default, str | int) and not isinstance(default, bool) and default != "":
            assert any(f"`{default}`" in row for row in rows), f"{name}.{key}: {default}"


def test_schema_has_no_leftovers() -> None:
    """Unknown keys are refused everywhere, and defaults are written as a person writes them."""
    for name, node in _objects():
        assert node["additionalProperties"] is False, name
    assert schema()["properties"]["lease"]["default"] == "10m"
    assert schema()["$defs"]["Measure"]["properties"]["min_effect"]["default"] == "2%"


HEAD = "campaign: c\nhosts: {g: {target: {}}}\n"


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n")[0][:30])
def test_examples_are_right(block: str, write: Write, diff: bytes) -> None:
    """Every example of the reference loads: whole playbooks, inventories, contexts and lists of changes."""
    write(diff, "patches/fusion.patch")
    write("{}", "campaigns/tuned.json")
    if block.startswith("changes:"):
        indented = "".join(f"  {line}\n" for line in block.rstrip().split("\n"))
        assert check(write(f"{HEAD}hypotheses:\n- id: a\n  claim: x\n{indented}")) == []
    elif block.startswith(("contexts:", "measure:", "guardrails:", "gate:")):
        assert check(write(HEAD + block + "hypotheses:\n- {id: a, claim: x, changes: [{env: {A: 1}}]}\n")) == []
    elif block.startswith("hosts:"):
        assert set(load_inventory(write(block)).hosts) == {"gpu1", "node7"}
    elif block.startswith("campaign:"):
        assert load(write(block)).host_name == "gpu1"
    else:
        assert block.startswith("# yaml-language-server: $schema=../docs/playbook.schema.json")
