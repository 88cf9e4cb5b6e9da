"""The JSON Schema of an export: of the one object of `json`, and of a line of `jsonl`."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from orchestrator.core.model import Model
from orchestrator.core.records import (
    ArtifactRecord,
    CampaignRecord,
    DecisionRecord,
    EventRecord,
    ExperimentRecord,
    FindingRecord,
    FingerprintRecord,
    InsightRecord,
    RunRecord,
    TodoRow,
)
from orchestrator.report.machine import SCHEMA, VERSION

KINDS: dict[str, type[Model]] = {
    "run": RunRecord, "todo": TodoRow, "finding": FindingRecord, "decision": DecisionRecord, "insight": InsightRecord,
    "fingerprint": FingerprintRecord, "experiment": ExperimentRecord, "event": EventRecord,
}  # fmt: skip
"""Type of a line → its record. The key of the object is the type with an s, but for the todo."""

_BEST = {
    "type": "object",
    "description": "the best configuration of a place; finding_id null: nothing was better than the baseline",
    "properties": {
        "host": {"type": "string"}, "context": {"type": "string"},
        "finding_id": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["host", "context", "finding_id"],
}  # fmt: skip


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12). Keys that it does not name may come with any version; a change that could break a reader
    raises `version`."""
    models: list[type[Model]] = [CampaignRecord, ArtifactRecord, *KINDS.values()]
    _, whole = models_json_schema([(m, "serialization") for m in models], ref_template="#/$defs/{model}")
    definitions = {name: _tidy(body) for name, body in whole["$defs"].items()}
    artifacts = {"artifacts": {"type": "array", "items": _ref(ArtifactRecord)}}
    definitions["ExperimentRecord"]["properties"] |= artifacts
    definitions["ExperimentRecord"]["required"].append("artifacts")
    head = {
        "schema": {"const": SCHEMA}, "version": {"const": VERSION}, "exported_at": {"type": "string"}
    }  # fmt: skip
    lists = {key_of(kind): {"type": "array", "items": _ref(cls)} for kind, cls in KINDS.items()}
    properties = head | {"campaign": _ref(CampaignRecord), "best": {"type": "array", "items": _BEST}} | lists
    definitions["line"] = {
        "description": "one line of jsonl",
        "anyOf": [
            _line("header", {"type": "object", "properties": head, "required": list(head)}),
            _line("campaign", _ref(CampaignRecord)),
            _line("best", _BEST),
            *(_line(kind, _ref(cls)) for kind, cls in KINDS.items()),
        ],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "ledger-export.schema.json",
        "title": "Export of a campaign",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "$defs": definitions,
    }


def key_of(kind: str) -> str:
    return kind if kind == "todo" else f"{kind}s"


def _ref(cls: type[Model]) -> dict[str, str]:
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _line(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"allOf": [{"properties": {"type": {"const": kind}}, "required": ["type"]}, body]}


def _tidy(node: Any, *, is_named: bool = False) -> Any:  # noqa: ANN401 - any JSON
    """Without generated titles, and open for keys of later versions. Keys of a record may be called `title`."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _tidy(item, is_named=key == "properties" and not is_named)
        for key, item in node.items()
        if is_named or (key != "title" and not (key == "additionalProperties" and item is False))
    }
