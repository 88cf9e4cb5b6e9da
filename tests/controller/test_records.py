"""Findings are found by what stands on the screen: their number, their experiment's, or the hypothesis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.controller.records import named_finding, number_of
from orchestrator.errors import UsageError
from orchestrator.ledger import open_ledger
from tests.ledger.ledger_story import Clock, Story


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with open_ledger(tmp_path / "state", clock=Clock()) as ledger:
        yield Story(ledger)


def test_a_finding_is_named_by_number_experiment_or_hypothesis(story: Story) -> None:
    """After a baseline the two counts differ; each spelling leads to its row, a hypothesis to its last finding."""
    baseline = story.begin(None)
    story.ledger.end_experiment(baseline.id, "done", None)
    first = story.finish(story.begin())
    last = story.finish(story.begin())
    assert first.experiment_id != first.id
    assert named_finding(story.ledger, str(first.id)) == first
    assert named_finding(story.ledger, f"#{first.experiment_id}") == first
    assert named_finding(story.ledger, "fewer-channels") == last
    with pytest.raises(UsageError) as missing:
        named_finding(story.ledger, f"#{baseline.id}")
    assert missing.value.hint == f"orchestrator experiment show {baseline.id}"


def test_a_misspelled_hypothesis_gets_a_suggestion(story: Story) -> None:
    """A near name is suggested, a far one answered with what there is."""
    story.finish(story.begin())
    with pytest.raises(UsageError) as near:
        named_finding(story.ledger, "fewer-chanels")
    assert near.value.hint == "did you mean 'fewer-channels'?"
    with pytest.raises(UsageError) as far:
        named_finding(story.ledger, "zzz")
    assert "fewer-channels" in str(far.value.hint)


@pytest.mark.parametrize("text", ["", "#", "x", "-1", "1.5", "²"])
def test_what_is_no_number_is_refused(text: str) -> None:
    """Only digits, with or without the mark, are a number."""
    assert number_of("#12") == number_of("12") == 12
    with pytest.raises(UsageError):
        number_of(text)
