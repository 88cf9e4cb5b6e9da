"""Requests for the agent's `http`, which reaches the server from its own host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.serving.environment import api_key_of

if TYPE_CHECKING:
    from orchestrator.core.model import Target


def get(target: Target, path: str, *, timeout_s: float = 30.0) -> dict[str, Any]:
    url = f"http://127.0.0.1:{target.port}{path}"
    return {"method": "GET", "url": url, "headers": _authorization(target), "timeout_s": timeout_s}


def post(target: Target, path: str, body: Mapping[str, Any], *, timeout_s: float = 300.0) -> dict[str, Any]:
    return {
        "method": "POST",
        "url": f"http://127.0.0.1:{target.port}{path}",
        "headers": {"Content-Type": "application/json", **_authorization(target)},
        "body": json.dumps(body),
        "timeout_s": timeout_s,
    }


def _authorization(target: Target) -> dict[str, str]:
    key = api_key_of(target)
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def json_body(reply: Mapping[str, Any]) -> dict[str, Any] | None:
    """The reply's JSON object, or None when it is an error or something else."""
    if reply.get("status") != 200:
        return None
    try:
        body = json.loads(str(reply.get("body", "")))
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
