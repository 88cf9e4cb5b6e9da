"""An agent's error → ours. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.errors import (
    Bug,
    Busy,
    Dirty,
    Findings,
    OrchestratorError,
    PatchConflict,
    Refused,
    Unreachable,
    UsageError,
)

_CLASSES: Mapping[str, type[OrchestratorError]] = {
    cls.kind: cls for cls in (Busy, Refused, PatchConflict, Dirty, Findings, Unreachable, UsageError, Bug)
}
_HINTS = {  # by errno as Linux numbers it: the host is one, the controller may be something else
    "28": "its filesystem is full: free some space there and try again",
    "122": "a disk quota there is used up",
    "30": "that filesystem is mounted read-only",
    "13": "the agent's user may not do that: log in as the tree's owner, or put `sudo: true` into the route",
    "1": "the agent's user may not do that, or the file is immutable (`lsattr`)",
    "2": "is the path right, as the end of the route sees it?",
    "5": "the disk reports an error: see `dmesg` there",
    "24": "raise the limit of open files there (`ulimit -n`)",
    "23": "that host is at its limit of open files",
}


def error_of(reply: Mapping[str, Any], host: str) -> OrchestratorError:
    """The exception for an `error` reply. An operating-system error (`failed`) is a `Refused`: nothing was changed,
    and a person must make room, rights or a mount before it can go on; facts say errno, path and call."""
    kind = str(reply.get("kind"))
    facts = {"host": host, **{str(k): str(v) for k, v in (reply.get("facts") or {}).items()}}
    what = str(reply.get("what"))
    hint = reply.get("hint")
    if kind == "failed":
        return Refused(what, facts=facts, hint=hint or _HINTS.get(facts.get("errno", "")))
    if kind in _CLASSES:
        return _CLASSES[kind](what, facts=facts, hint=hint)
    return Bug(f"the agent answered with an unknown kind of error: {kind}", facts={**facts, "what": what})
