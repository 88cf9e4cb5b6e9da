"""Durations, sizes and percentages: what is read, what is refused, and that both directions agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.core.model import Limits, Measure
from orchestrator.core.units import (
    AS_WRITTEN,
    parse_duration,
    parse_percent,
    parse_size,
    show_duration,
    show_percent,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("200ms", 0.2), ("45s", 45), ("1.5m", 90), ("1h30m", 5400), ("2d", 172800), (" 5s ", 5), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    """A duration is the sum of its parts, in seconds."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "30", "s", "30 s", "30x", "-5s", "1h 30m", "1e3s", "5sec", True, None, 5, 5.0])
def test_no_durations(text: object) -> None:
    """What has no unit, or more than units, is refused with an example."""
    with pytest.raises(ValueError, match="such as 30m"):
        parse_duration(text)


@given(st.integers(0, 10**12))
def test_durations_survive(milliseconds: int) -> None:
    """What is shown reads back to the millisecond."""
    assert round(parse_duration(show_duration(milliseconds / 1000)) * 1000) == milliseconds


@pytest.mark.parametrize(("text", "number"), [("16MiB", 16 << 20), ("2GB", 2 * 10**9), ("1.5 KiB", 1536), ("7B", 7)])
def test_sizes(text: str, number: int) -> None:
    """A size is bytes, with decimal and binary units told apart."""
    assert parse_size(text) == number


@pytest.mark.parametrize("text", ["16", "16 mb", "MiB", "-1B", 16, None])
def test_no_sizes(text: object) -> None:
    """A size without a unit is refused with an example."""
    with pytest.raises(ValueError, match="such as 16MiB"):
        parse_size(text)


@pytest.mark.parametrize(("text", "fraction"), [("2%", 0.02), ("+5 %", 0.05), ("-0.5%", -0.005)])
def test_percentages(text: str, fraction: float) -> None:
    """A percentage is a fraction."""
    assert parse_percent(text) == pytest.approx(fraction)
    assert parse_percent(show_percent(fraction)) == pytest.approx(fraction)


@pytest.mark.parametrize("text", ["2", "0.02", "%", 0.02, 2, None, True])
def test_no_percentages(text: object) -> None:
    """A bare number is refused, since nobody knows whether 2 is 2 % or 200 %."""
    with pytest.raises(ValueError, match="such as 2%"):
        parse_percent(text)


def test_numbers_need_units_only_where_they_were_written() -> None:
    """Python passes seconds and fractions; a file must name the unit, also of a fraction."""
    assert Limits(limit=3.0).limit == 3.0
    assert Measure(min_effect=0.5).min_effect == 0.5
    with pytest.raises(ValidationError):
        Limits.model_validate({"limit": 3.0}, context=AS_WRITTEN)
    assert Limits.model_validate({"limit": "3s"}, context=AS_WRITTEN).limit == 3.0
