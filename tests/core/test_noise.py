"""Noise, drift and looks: what an arm shows and what is lent to it, and how many launches a verdict may take."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats  # type: ignore[import-untyped]

from orchestrator.core.boundaries import nominal_error
from orchestrator.core.contrast import Point, contrast, degree_for
from orchestrator.core.distributions import f_tail
from orchestrator.core.launches import interleaved, is_look, launch_order, next_arm
from orchestrator.core.noise import (
    BORROWED_DF,
    Noise,
    detect_drift,
    launches_to_plan,
    learn_noise,
    lend,
    shared_df,
    shrink,
    smallest_effect,
)
from orchestrator.core.records import Verdict
from orchestrator.core.stats import Judgement, LaunchValue, judge


def look(a: list[float], b: list[float], most: int = 4, **options: object) -> Judgement:
    arms = [[LaunchValue(value) for value in values] for values in (a, b)]
    return judge(*arms, direction="higher", min_effect=0.02, max_launches=most, **options)  # type: ignore[arg-type]


# ---------------------------------------------------------------- distributions and bounds


@given(st.floats(0.01, 50), st.floats(0.5, 200), st.floats(0.5, 200))
def test_f_tails_agree_with_scipy(f: float, df1: float, df2: float) -> None:
    """The tail of the ratio of two variances is scipy's."""
    assert f_tail(f, df1, df2) == pytest.approx(scipy_stats.f.sf(f, df1, df2), rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("looks", [1, 2, 5, 12])
def test_bounds_of_all_looks_together_keep_the_error(looks: int) -> None:
    """Simulated Brownian paths cross the bounds of any number of looks with the stated probability."""
    rng = np.random.default_rng(3)
    sums = rng.normal(size=(60_000, looks + 1)).cumsum(axis=1)[:, 1:]
    sizes = np.sqrt(np.arange(2, looks + 2))
    bounds = [-scipy_stats.norm.ppf(nominal_error(k + 1, looks, 0.05)) for k in range(looks)]
    crossed = ((sums / sizes) > np.array(bounds)).any(axis=1).mean()
    assert crossed == pytest.approx(0.05, abs=0.004)


def test_a_single_look_spends_everything() -> None:
    """With two launches of each arm at the most there is one look, and it is an ordinary test."""
    assert nominal_error(1, 1, 0.05) == pytest.approx(0.05, abs=1e-6)
    for look_number in (0, 3):
        with pytest.raises(ValueError, match="no look"):
            nominal_error(look_number, 2, 0.05)


# ---------------------------------------------------------------- noise


def test_a_quiet_true_effect_decides_after_two_launches_of_each() -> None:
    """−4.9 % at 0.3 % of noise, shown and stored: decided, since the stored noise lends the arms certainty."""
    said = look([100.0, 100.3], [95.0, 95.2], stored=Noise(0.003, 6))
    assert said.verdict is Verdict.regressed, said.reason
    assert said.stop == "effect"
    odd = look([100.0, 100.3], [95.8, 94.3], stored=Noise(0.003, 6))
    assert (odd.verdict, odd.more_launches) == (Verdict.inconclusive, 1), "an arm noisier than chance needs one more"


def test_two_lucky_launches_do_not_look_noise_free() -> None:
    """Launches that agree to the last digit are held to the 3 % that the host is known for."""
    said = look([100.0, 100.0], [104.0, 104.0], stored=Noise(0.03, 8))
    assert said.verdict is Verdict.inconclusive, said.reason
    assert said.noise_pct is not None
    assert said.noise_pct > 2


def test_an_arm_that_is_plainly_noisier_keeps_its_own_noise() -> None:
    """4.5 % shown where 0.2 % is stored is the arm's own noise; 0.3 % is luck, and both are weighed."""
    own = shrink(Noise(0.045, 2), Noise(0.002, 6), stated_cv=0.03, weight_df=BORROWED_DF)
    assert (own.cv, own.own_df, own.lent_df) == (0.045, 2, 0.0)
    both = shrink(Noise(0.003, 1), Noise(0.002, 6), stated_cv=0.03, weight_df=BORROWED_DF)
    assert both.cv == pytest.approx(math.sqrt((0.003**2 + 3 * 0.002**2) / 4))
    assert (both.own_df, both.lent_df) == (1, 3)


def test_noise_that_is_lent_to_both_arms_is_one_estimate() -> None:
    """Two single launches that borrow the same noise have its degrees of freedom, not twice as many."""
    lent = [shrink(None, Noise(0.01, 4), stated_cv=0.03, weight_df=BORROWED_DF)] * 2
    assert shared_df([1.0, 1.0], lent) == pytest.approx(4)
    own = [shrink(Noise(0.01, 4), None, stated_cv=0.03, weight_df=BORROWED_DF)] * 2
    assert shared_df([1.0, 1.0], own) == pytest.approx(8)


def test_two_stored_launches_do_not_make_a_clear_effect_doubtful() -> None:
    """Noise of a single pair is worth little: with it a gain of 40 % is as plain as with the stated noise alone."""
    for stored in (None, Noise(0.013, 1), Noise(0.0001, 1), Noise(0.013, 6)):
        said = look([82.0], [115.0], stored=stored)
        assert (said.verdict, said.screened) == (Verdict.improved, True), said.reason
    assert look([82.0], [115.0], stored=Noise(0.2, 1)).verdict is Verdict.inconclusive, "a host that noisy is believed"


def test_the_stated_noise_stands_in_until_more_is_known() -> None:
    """A pair is lent only where it says more than the stated noise; what is known from more launches always is."""
    assert lend(None, 0.03) == Noise(0.03, math.inf)
    assert lend(Noise(0.013, 1), 0.03) == Noise(0.03, math.inf)
    assert lend(Noise(0.05, 1), 0.03) == Noise(0.05, math.inf)
    assert lend(Noise(0.002, 2), 0.03) == Noise(0.002, 2)
    assert lend(Noise(0.05, 3), 0.03) == Noise(0.05, 3)
    assert lend(Noise(0.01, 90), 0.03).df == 20


def test_noise_is_learned_within_groups_only() -> None:
    """What lies between two days is drift; what lies between launches of one go is noise."""
    learned = learn_noise([[100, 101], [120, 121.2], [90]])
    assert learned is not None
    assert learned.cv == pytest.approx(0.00704, rel=0.01)
    assert learned.df == 2
    assert learn_noise([[100]]) is None


def test_the_smallest_effect_shrinks_with_launches_and_grows_with_noise() -> None:
    """What a host can see at all is said before anything is launched, and the plan follows from it."""
    assert smallest_effect(Noise(0.01, 6), 2) > smallest_effect(Noise(0.01, 6), 8) > smallest_effect(Noise(0.002, 6), 8)
    assert launches_to_plan(0.002, 0.04) < launches_to_plan(0.03, 0.04) < launches_to_plan(0.05, 0.04)


# ---------------------------------------------------------------- looks


def test_arms_are_launched_as_a_b_b_a() -> None:
    """Asked launch by launch, the order is the planned one; an arm that lost launches catches up first."""
    counts = {"baseline": 0, "treatment": 0}
    seen = []
    for _ in range(12):
        seen.append(next_arm(counts["baseline"], counts["treatment"]))
        counts[seen[-1]] += 1
    assert tuple(seen) == launch_order(6)
    assert next_arm(1, 4) == "baseline"
    assert next_arm(5, 2) == "treatment"
    assert [is_look(*pair) for pair in ((0, 0), (1, 0), (1, 1), (2, 1), (2, 2))] == [False, False, True, False, True]


def test_a_treatment_is_held_against_the_baseline_launches_around_it() -> None:
    """Of a morning's baseline launches only the last before the treatment counts, and those in between."""
    baseline = [LaunchValue(100.0 + i, at_s=at) for i, at in enumerate((0.0, 3600.0, 9000.0, 9900.0))]
    treatment = [LaunchValue(110.0, at_s=9300.0), LaunchValue(111.0, at_s=9600.0)]
    assert [launch.value for launch in interleaved(baseline, treatment)] == [102.0, 103.0]
    assert len(interleaved([LaunchValue(1.0), LaunchValue(2.0)], treatment)) == 2
    assert interleaved(baseline, []) == baseline


def test_a_hopeless_gain_is_given_up_early() -> None:
    """Launches that show nothing end before their limit, with an interval that excludes a gain worth having."""
    said = look([100, 101, 99.5], [100.4, 99.2, 99.9], most=12, stored=Noise(0.008, 8))
    assert said.stop in ("futility", "equivalence")
    assert not said.needs_more
    assert said.gain_high is not None
    assert said.gain_high < 0.04


def test_nothing_is_given_up_on_a_stated_noise() -> None:
    """One launch of each with nothing stored ends nothing: the noise of the host is not known yet."""
    said = look([100.0], [97.0], most=4)
    assert (said.verdict, said.stop, said.needs_more) == (Verdict.inconclusive, None, True)
    assert "interim" in said.reason


def test_an_inconclusive_end_says_how_many_more_it_would_take() -> None:
    """At the limit the verdict is honest, and the number of further launches stands in the reason."""
    said = look([100, 104, 97], [103, 99, 105], most=3)
    assert (said.verdict, said.stop) == (Verdict.inconclusive, "limit")
    assert said.more_launches is not None
    assert f"about {said.more_launches} more of each arm" in said.reason


# ---------------------------------------------------------------- drift


def test_a_steady_drift_is_taken_out() -> None:
    """Ten launches of each arm on a level that falls by a third: the effect is found to a hundredth of it."""
    rng = random.Random(1)
    arms: dict[str, list[LaunchValue]] = {"baseline": [], "treatment": []}
    for i, kind in enumerate(launch_order(10)):
        level = math.exp(-0.02 * i + rng.gauss(0, 0.004) + (0.05 if kind == "treatment" else 0))
        arms[kind].append(LaunchValue(80 * level, at_s=600.0 * i))
    said = judge(arms["baseline"], arms["treatment"], direction="higher", min_effect=0.02, max_launches=10)
    assert said.verdict is Verdict.improved
    assert said.effect_pct == pytest.approx(5.1, abs=0.5)
    assert said.noise_pct is not None
    assert said.noise_pct < 1


def test_launches_that_were_not_interleaved_are_wide_under_drift() -> None:
    """All of A, then all of B: what may be drift is not called an effect."""
    arms = [
        [LaunchValue(v, at_s=3600.0 * (i + 2 * k)) for i, v in enumerate(vs)]
        for k, vs in enumerate([[100, 101], [106, 107]])
    ]
    options: dict[str, object] = {
        "direction": "higher",
        "min_effect": 0.02,
        "max_launches": 2,
        "stored": Noise(0.005, 8),
    }
    assert judge(*arms, **options).verdict is Verdict.improved  # type: ignore[arg-type]
    assert judge(*arms, drift_per_hour=0.05, **options).verdict is Verdict.inconclusive  # type: ignore[arg-type]


def test_without_a_polynomial_the_contrast_is_the_difference_of_means() -> None:
    """With few launches nothing is fitted, and each arm keeps its own spread."""
    a, b = ([Point(i, x) for i, x in enumerate(xs)] for xs in ([1.0, 2.0, 3.0], [4.0, 8.0]))
    found = contrast(a, b, degree_for(2))
    assert [found.difference, found.level, found.degree] == pytest.approx([4, 2, 0])
    assert found.arms[0].own_cv == pytest.approx(1)
    assert [arm.own_df for arm in found.arms] == pytest.approx([2, 1])
    assert [arm.weight for arm in found.arms] == pytest.approx([1 / 3, 1 / 2])


def test_a_drifted_baseline_is_an_event_and_noise_is_not() -> None:
    """Five per cent under one per cent of noise has drifted; one per cent has not, and both are said."""
    moved = detect_drift([100, 101], [94.5, 95], stored=Noise(0.01, 10))
    assert moved.has_drifted
    assert moved.sentence.startswith("the baseline drifted: -5.7% since it was measured")
    assert not detect_drift([100, 101], [99.2], stored=Noise(0.01, 10)).has_drifted
    assert not detect_drift([100], [95]).has_drifted


def test_a_screened_win_is_measured_in_full_before_it_is_kept() -> None:
    """What one launch of each arm decides by screening stays open when it is to be measured in full."""
    screened = look([100.0], [140.0])
    assert (screened.verdict, screened.screened) == (Verdict.improved, True)
    full = look([100.0], [140.0], screening=False)
    assert (full.verdict, full.stop, full.needs_more) == (Verdict.inconclusive, None, True)
    assert look([100.0, 101.0, 100.5], [140.0, 141.5, 139.0], screening=False).verdict is Verdict.improved
