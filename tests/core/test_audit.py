"""What a host can see is said from launches of one configuration."""

from __future__ import annotations

import math
import random

import pytest

from orchestrator.core.audit import audit, pair_noise
from orchestrator.core.launches import LaunchValue


def launches(count: int, cv: float, drift_per_hour: float = 0.0) -> list[LaunchValue]:
    rng = random.Random(4)
    return [LaunchValue(80 * math.exp(rng.gauss(0, cv) + drift_per_hour * i / 6), at_s=600.0 * i) for i in range(count)]


def test_an_audit_tells_noise_drift_and_the_smallest_effect() -> None:
    """Eight equal launches: their noise, no keep among all splits, and what two or more launches of each arm show."""
    said = audit(launches(8, 0.01), [[80, 81, 79]] * 8, direction="higher", min_effect=0.02, max_launches=2)
    assert said.noise.cv == pytest.approx(0.01, rel=0.6)
    assert said.within_cv == pytest.approx(0.0125, rel=0.01)
    assert (said.false_keeps, said.splits) == (0, 70)
    assert said.smallest > 0.02
    assert "0 of 70 splits of equal launches were kept" in said.sentence


def test_drift_is_told_apart_from_noise() -> None:
    """A level that falls by 6 % an hour shows as drift, and hardly as noise."""
    said = audit(launches(12, 0.002, -0.06), direction="higher", min_effect=0.02, max_launches=4)
    assert said.drift_per_hour == pytest.approx(-0.06, abs=0.005)
    assert said.noise.cv < 0.01
    assert pair_noise([100, 100, 50, 50]).cv == 0


def test_three_launches_are_no_audit() -> None:
    """Fewer than two pairs tell nothing, and that is an error; without times there is no drift."""
    with pytest.raises(ValueError, match="four launches"):
        audit(launches(3, 0.01), direction="higher", min_effect=0.02, max_launches=2)
    bare = [LaunchValue(launch.value) for launch in launches(4, 0.01)]
    assert audit(bare, direction="higher", min_effect=0.02, max_launches=2).drift_per_hour is None
