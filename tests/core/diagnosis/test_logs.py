"""Real logs: the category, the line and the outcome that a person gave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.diagnosis import CATEGORIES, LiveWatch, diagnose

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
INDEX: list[dict[str, Any]] = [json.loads(line) for line in (LOGS / "index.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["file"])
def test_a_real_log_gets_the_verdict_of_the_person_who_solved_it(entry: dict[str, Any]) -> None:
    """Category, deciding line and whether it is a failure agree with the index."""
    text = (LOGS / entry["file"]).read_text("utf-8")
    found = diagnose(text)
    assert found.category == entry["category"], found.evidence
    assert found.is_failure == entry["is_failure"]
    if not entry["lines"]:
        assert (found.cause_lineno, found.cause_line) == (None, None)
        return
    assert found.cause_lineno in entry["lines"], found.cause_line
    assert found.cause_line is not None
    assert found.cause_line in text.split("\n")[found.cause_lineno - 1]


@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["file"])
def test_reading_along_never_calls_a_living_server_lost(entry: dict[str, Any]) -> None:
    """A healthy log raises no event at all; fed line by line or at once, a log raises the same events."""
    lines = (LOGS / entry["file"]).read_text("utf-8").splitlines()
    at_once = LiveWatch().feed(lines)
    watch = LiveWatch()
    assert [event for line in lines for event in watch.feed([line])] == at_once
    if not entry["is_failure"]:
        assert at_once == []
        assert not watch.is_lost


def test_every_category_of_the_index_is_a_known_one() -> None:
    """No log carries a category that a diagnosis could not name."""
    assert {entry["category"] for entry in INDEX} <= set(CATEGORIES)


def test_a_false_ready_line_does_not_hide_the_port_that_was_taken() -> None:
    """The watch says "lost" at the bind failure, before the false ready line."""
    lines = (LOGS / "cpu-port-taken-false-ready-0.5.10.post1.log").read_text("utf-8").splitlines()
    watch = LiveWatch()
    numbers = [event.lineno for event in watch.feed(lines) if event.kind == "lost"]
    assert numbers == [36]
    assert "ready to roll" in lines[37]
