"""Goals across contexts, the latency budget of the bottleneck, and what a run may spend."""

from __future__ import annotations

from functools import partial

import pytest

from orchestrator.core.budget import Budget, Spent, experiment_cost_s, launch_cost_s, may_launch
from orchestrator.core.goal import (
    Interval,
    break_even,
    break_even_cycle_ms,
    break_even_length,
    judge_goal,
    parse_condition,
)
from orchestrator.core.latency import Effect, LatencyBudget, after_probe, cap_gain, lever_odds, most_gain, refit

VERIFY = LatencyBudget(calls=122, cost_ms=0.2, rest_ms=6)

# ---------------------------------------------------------------- goal


def test_the_campaigns_goal_is_judged_across_contexts() -> None:
    """Speculation above plain decoding and a verify pass under 15 ms: reached only when both surely hold."""
    goal = [parse_condition("speculative.output_tps > plain.output_tps"), parse_condition("speculative.verify_ms < 15")]
    measured = {
        ("speculative", "output_tps"): Interval(95, 92, 98),
        ("plain", "output_tps"): Interval(82, 81, 83),
        ("speculative", "verify_ms"): Interval(14.2, 14.0, 14.4),
    }
    assert judge_goal(goal, measured).is_reached is True
    slow = judge_goal(goal, {**measured, ("speculative", "output_tps"): Interval(60, 59, 61)})
    assert slow.is_reached is False
    assert slow.sentences[0] == "speculative.output_tps > plain.output_tps: does not hold (60.0 against 82.0)"
    near = judge_goal(goal, {**measured, ("speculative", "output_tps"): Interval(83, 80, 86)})
    assert near.is_reached is None
    assert "too close to tell" in near.sentences[0]
    del measured["speculative", "verify_ms"]
    open_ = judge_goal(goal, measured)
    assert open_.is_reached is None
    assert "speculative.verify_ms not measured" in open_.sentences[1]
    assert judge_goal([], {}).is_reached is None


@pytest.mark.parametrize("text", ["faster", "plain.output_tps", "a.b > ", "a.b == 3"])
def test_a_goal_that_cannot_be_read_is_refused(text: str) -> None:
    """A condition compares a measured value with another one or with a number."""
    with pytest.raises(ValueError, match="no condition"):
        parse_condition(text)


def test_the_break_even_of_speculation() -> None:
    """82 tok/s and a cycle of 31 ms need 2.5 accepted tokens; 1.88 of them allow a cycle of 23 ms."""
    assert break_even_length(82, 31.3) == pytest.approx(2.57, abs=0.01)
    assert break_even_cycle_ms(82, 1.88) == pytest.approx(22.9, abs=0.1)
    said = break_even(82, 60, 1.88)
    assert said.startswith("speculation loses: a cycle of 31.3 ms needs 2.57 accepted tokens and yields 1.88")
    assert break_even(82, 100, 1.88).startswith("speculation pays")


# ---------------------------------------------------------------- latency budget


def test_a_latency_budget_bounds_each_hypothesis() -> None:
    """122 calls of 200 µs beside 6 ms: half the calls make +67 % at most, free calls +407 %, free arithmetic +25 %."""
    assert VERIFY.sentence == "122 × 200 µs + 6 ms = 30.4 ms, 80% of it in calls"
    assert most_gain(VERIFY, Effect(calls=61)).gain == pytest.approx(0.67, abs=0.01)
    assert most_gain(VERIFY, Effect(lever="cost")).gain == pytest.approx(4.07, abs=0.01)
    assert most_gain(VERIFY, Effect(lever="rest")).sentence == "30.4 → 24.4 ms: +25% at most"
    exchanged = most_gain(VERIFY, Effect(calls=61, extra_ms=61 * 0.095))
    assert exchanged.after_ms == pytest.approx(24.0, abs=0.01)
    with pytest.raises(ValueError, match="no lever"):
        most_gain(VERIFY, Effect(lever="luck"))
    with pytest.raises(ValueError, match="no negative part"):
        LatencyBudget(-1, 1, 1)


def test_expectations_are_capped_by_the_budget() -> None:
    """Who expects 80 % where 67 % is possible plans with 67 %; who says nothing plans with half of what is possible."""
    ceiling = most_gain(VERIFY, Effect(calls=61))
    assert cap_gain(0.8, ceiling) == ceiling.gain
    assert cap_gain(0.1, ceiling) == 0.1
    assert cap_gain(None, ceiling) == ceiling.gain / 2


def test_measured_effects_update_the_odds_of_a_lever() -> None:
    """A lever that never pays is believed less, one that pays in full more, and an untried one is even."""
    assert lever_odds([]) == 0.5
    assert lever_odds([(0.0, 0.5), (-0.1, 0.5), (0.02, 0.5)]) < 0.25
    assert lever_odds([(0.5, 0.5), (0.6, 0.5)]) == 0.75


def test_a_probe_may_demote_and_never_promote() -> None:
    """A micro-benchmark that shows a tenth of the promise leaves a tenth of the odds; twice the promise leaves them."""
    assert after_probe(0.5, 0.8, 0.08) == pytest.approx(0.05)
    assert after_probe(0.5, 0.8, 1.6) == 0.5
    assert after_probe(0.5, 0.8, -0.2) == 0.0


def test_the_budget_is_refitted_from_measured_passes() -> None:
    """Two passes with different numbers of calls tell cost and rest; one does where the rest is known."""
    fitted = refit([(122, 30.4), (61, 18.2)])
    assert (fitted.calls, round(fitted.cost_ms, 6), round(fitted.rest_ms, 6)) == (122, 0.2, 6.0)
    assert refit([(122, 30.4)], rest_ms=6).cost_ms == pytest.approx(0.2)
    with pytest.raises(ValueError, match="different numbers of calls"):
        refit([(122, 30.4), (122, 30.5)])
    with pytest.raises(ValueError, match="no pass with calls"):
        refit([], rest_ms=6)


# ---------------------------------------------------------------- spending


def test_no_launch_is_started_that_would_not_finish() -> None:
    """Half an hour is left, a launch takes twenty minutes and giving back five: one fits, two do not."""
    budget = Budget(until_s=1800.0)
    fits = may_launch(budget, Spent(), now_s=0.0, cost_s=1200.0, give_back_s=300.0)
    late = may_launch(budget, Spent(), now_s=0.0, cost_s=1200.0, give_back_s=300.0, wanted=2)
    assert fits.is_allowed
    assert (late.is_allowed, late.reason) == (False, "a launch and giving the host back take 45 min, 30 are left")


def test_launches_and_gpu_hours_are_limits_too() -> None:
    """Either limit ends launching, with what was spent of it; without limits everything is allowed."""
    half_an_hour = partial(may_launch, now_s=0.0, cost_s=1800.0, give_back_s=0.0)
    assert half_an_hour(Budget(), Spent(99, 99.0)).is_allowed
    assert half_an_hour(Budget(launches=4), Spent(4)).reason == "4 of 4 launches are spent"
    said = half_an_hour(Budget(gpu_hours=10), Spent(3, 7.0), gpus=8)
    assert said.reason == "4.0 more GPU-hours do not fit: 7.0 of 10 spent"


def test_costs_are_what_was_measured() -> None:
    """The longest of the last launches bounds the next one; the usual one ranks; without any the stated one stands."""
    assert launch_cost_s([], 1800) == 1800
    assert launch_cost_s([900, 100, 100, 100, 100, 120], 1800) == pytest.approx(138)
    assert experiment_cost_s([100, 120, 110], 1800, launches=4) == 440
    assert experiment_cost_s([], 1800, launches=2) == 3600
