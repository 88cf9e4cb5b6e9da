"""Limits that a better metric may not break."""

from __future__ import annotations

import pytest

from orchestrator.core.guardrails import arm_values, breaches, hold
from orchestrator.core.measures import Guard
from orchestrator.core.records import Conclusion, Verdict

WON = Conclusion(
    verdict=Verdict.improved, summary="improved +8.0%", effect=0.08, low=0.05, high=0.11, confidence=0.95,
    baseline=100.0, treatment=108.0, baseline_launches=2, treatment_launches=2, evidence=("two launches",),
)  # fmt: skip
LATE = {"ttft_p99_ms": 420.0}


def test_a_win_that_breaks_a_limit_has_regressed_in_its_metric() -> None:
    """Verdict, metric, effect, values and reason are those of the guardrail; the win stands in the evidence."""
    broken, said = breaches({"ttft_p99_ms": Guard(limit=500)}, LATE, {"ttft_p99_ms": 630.0})
    held = hold(WON, broken, said)
    assert (held.verdict, held.metric, held.direction) == (Verdict.regressed, "ttft_p99_ms", "lower")
    assert held.effect == pytest.approx(-1 / 3)
    assert (held.baseline, held.treatment, held.low, held.closes) == (420.0, 630.0, None, True)
    assert held.cause == "ttft_p99_ms is 420 → 630, at most 500 is allowed"
    assert "improved +8.0%" in held.evidence and "improved +8.0%" in held.summary


@pytest.mark.parametrize(
    ("name", "guard", "before", "now", "is_broken"),
    [
        ("ttft_p99_ms", Guard(worse=0.1), 100.0, 111.0, True),
        ("ttft_p99_ms", Guard(worse=0.1), 100.0, 109.0, False),
        ("accept_length", Guard(limit=2.0), 2.5, 1.9, True),
        ("accept_length", Guard(limit=2.0), 2.5, 2.1, False),
        ("requests_per_s", Guard(worse=0.05), 10.0, 9.0, True),
        ("error_rate", Guard(limit=0.0), 0.0, 0.01, True),
        ("memory_mib", Guard(limit=90000), None, 91000.0, True),
    ],
)
def test_limits_are_absolute_or_relative_and_know_which_way_is_worse(
    name: str, guard: Guard, before: float | None, now: float, is_broken: bool
) -> None:
    baseline = {} if before is None else {name: before}
    broken, _ = breaches({name: guard}, baseline, {name: now})  # type: ignore[dict-item]
    assert bool(broken) is is_broken
    assert all(breach.gain < 0 for breach in broken)
    assert hold(WON, broken, []).verdict is (Verdict.regressed if is_broken else Verdict.improved)


def test_a_limit_that_the_baseline_breaks_as_much_is_said_and_takes_nothing() -> None:
    broken, said = breaches({"ttft_p99_ms": Guard(limit=400)}, LATE, {"ttft_p99_ms": 410.0})
    assert not broken and "as the baseline's 420 does" in said[0]
    assert hold(WON, broken, said).verdict is Verdict.improved
    assert breaches({"ttft_p99_ms": Guard(limit=400)}, LATE, {"ttft_p99_ms": 450.0})[0]


def test_what_was_not_measured_is_said() -> None:
    """Silence is no proof that a limit holds."""
    broken, said = breaches({"memory_mib": Guard(limit=1), "itl_ms": Guard(worse=0.1)}, {}, {"itl_ms": 3.0})
    assert not broken
    assert [s.split(",")[0] for s in said] == [
        "guardrail memory_mib: not measured in the treatment", "guardrail itl_ms: not measured in the baseline"
    ]  # fmt: skip


def test_other_verdicts_keep_themselves_and_name_the_breach() -> None:
    """A regression stays one; that it also breaks a limit is evidence."""
    lost = WON.model_copy(update={"verdict": Verdict.regressed, "effect": -0.05, "low": -0.08, "high": -0.02})
    broken, said = breaches({"ttft_p99_ms": Guard(limit=500)}, LATE, {"ttft_p99_ms": 630.0})
    held = hold(lost, broken, said)
    assert (held.verdict, held.metric, held.effect) == (Verdict.regressed, "output_tps", -0.05)
    assert "at most 500 is allowed" in held.evidence[-1]


def test_of_several_launches_the_mean_counts_and_of_memory_the_most() -> None:
    launches = [{"ttft_p99_ms": 400.0, "memory_mib": 80.0}, {"ttft_p99_ms": 600.0, "memory_mib": 90.0}, {}]
    assert arm_values(launches) == {"ttft_p99_ms": 500.0, "memory_mib": 90.0}
