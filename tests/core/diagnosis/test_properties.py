"""What holds for any text, and what reading costs."""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.diagnosis import CATEGORIES, LiveWatch, diagnose
from orchestrator.core.diagnosis.model import OUTCOMES_THAT_ARE_CATEGORIES
from orchestrator.core.diagnosis.signatures import SIGNATURES
from tests.core.diagnosis.kinds import KINDS

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"

_PIECES = st.sampled_from(
    [
        *(line for kind in KINDS for line in kind.text.split("\n")),
        "",
        "Killed",
        "\r",
        "\x1b[0m",
        "    x()",
        "During handling of the above exception, another exception occurred:",
        "Traceback (most recent call last):",
    ]
)
_TEXTS = st.one_of(
    st.text(max_size=400),
    st.lists(st.one_of(_PIECES, st.text(max_size=30)), max_size=30).map("\n".join),
)
_CODES = st.one_of(st.none(), st.integers(-64, 255))


@given(_TEXTS, _CODES)
def test_any_text_gets_a_well_formed_verdict(text: str, exit_code: int | None) -> None:
    """Nothing raises; the category is known; the line named exists and holds the words quoted."""
    found = diagnose(text, exit_code=exit_code)
    assert found.category in CATEGORIES
    if found.outcome in OUTCOMES_THAT_ARE_CATEGORIES:
        assert found.category == found.outcome
    lines = text.split("\n")
    assert (found.cause_lineno is None) == (found.cause_line is None)
    if found.cause_lineno is not None and found.cause_line is not None:
        assert 1 <= found.cause_lineno <= len(lines)
        assert found.cause_line in lines[found.cause_lineno - 1]
    for evidence in found.evidence:
        assert evidence.line in lines[evidence.lineno - 1]


@given(_TEXTS)
def test_any_lines_can_be_watched(text: str) -> None:
    """Nothing raises; every event points at a line that was fed, in order."""
    lines = text.split("\n")
    watch = LiveWatch()
    numbers = [event.lineno for line in lines for event in watch.feed([line])]
    assert watch.lineno == len(lines)
    assert numbers == sorted(numbers)
    assert all(1 <= number <= len(lines) for number in numbers)


def _seconds(text: str) -> float:
    start = time.perf_counter()
    diagnose(text)
    return time.perf_counter() - start


def test_reading_is_far_cheaper_than_trying_every_pattern() -> None:
    """A long healthy log is read in a fraction of the time that one search per signature and line would take."""
    healthy = (LOGS / "G01-start-cuda-graphs-cold.log").read_text("utf-8") * 20
    sample = healthy[: len(healthy) // 20]
    start = time.perf_counter()
    for line in sample.split("\n"):
        for signature in SIGNATURES:
            signature.regex.search(line)
    naive = (time.perf_counter() - start) * 20
    assert min(_seconds(healthy) for _ in range(3)) < naive / 3


def test_cost_grows_with_the_length_and_not_faster() -> None:
    """Ten times the log takes some ten times as long: a cost that grew with the square would take a hundred."""
    once = (LOGS / "G05-graph-capture-failed.log").read_text("utf-8") * 5
    short = min(_seconds(once) for _ in range(5))
    assert min(_seconds(once * 10) for _ in range(3)) < short * 40


def test_a_watch_keeps_no_more_in_mind_however_long_it_reads() -> None:
    """Its memory of lines is bounded."""
    watch = LiveWatch()
    for _ in range(40):
        watch.feed((LOGS / "G05-graph-capture-failed.log").read_text("utf-8").splitlines())
    assert len(watch._scan.layout.writer) <= 401
    assert len(watch._scan.blocks) <= 401
