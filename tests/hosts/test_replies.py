"""Errors of the agent as errors of ours."""

from __future__ import annotations

import pytest

from orchestrator import errors
from orchestrator.hosts.replies import error_of


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("busy", errors.Busy),
        ("refused", errors.Refused),
        ("conflict", errors.PatchConflict),
        ("dirty", errors.Dirty),
        ("findings", errors.Findings),
        ("unreachable", errors.Unreachable),
        ("usage", errors.UsageError),
        ("failed", errors.Refused),
        ("something new", errors.Bug),
    ],
)
def test_every_kind_has_its_class(kind: str, expected: type[errors.OrchestratorError]) -> None:
    """The protocol's kinds come out as the classes of the error tree, with facts, host and hint."""
    error = error_of({"kind": kind, "what": "w", "facts": {"a": 1}, "hint": "h"}, "gpu1")
    assert type(error) is expected
    assert error.facts["host"] == "gpu1" and error.facts["a"] == "1"


@pytest.mark.parametrize(("number", "word"), [("28", "full"), ("30", "read-only"), ("13", "sudo"), ("1", "immutable")])
def test_an_operating_system_error_gets_a_hint(number: str, word: str) -> None:
    """No space, a read-only mount and missing rights each say what a person can do."""
    error = error_of({"kind": "failed", "what": "w", "facts": {"errno": number, "path": "/x", "call": "open"}}, "h")
    assert error.hint is not None and word in error.hint
