"""Whether a launch is gone on with, and what a run remembers of itself: both pure."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.controller.resume import Left, as_result, remember, why_retreat
from orchestrator.core.records import ArmRecord, ExperimentRecord, LaunchRecord, RunRecord

AT = "2026-01-02T03:04:05.000000Z"
RUN = RunRecord(id=1, campaign="c", host="h", playbook_digest="d", started_at=AT)
REPLY = {"launch": {"launch_id": "l", "alive": True}, "open": {"txn": "l", "state": "applied"}}


def launch(number: int, outcome: str | None = "measured", value: float | None = 80.0) -> LaunchRecord:
    facts = {"value": value, "answers": {"first": {"p": "a"}, "second": {"p": "a"}}, "capacity_tokens": 100}
    return LaunchRecord(
        id=number, arm_id=1, number=1, launch_id="l", started_at=AT, ended_at=AT if outcome else None,
        outcome=outcome, facts=facts,
    )  # fmt: skip


def experiment(kind: str, *launches: LaunchRecord, phase: str = "launch") -> ExperimentRecord:
    arm = ArmRecord(id=1, experiment_id=1, number=1, kind=kind, started_at=AT, launches=launches)
    return ExperimentRecord(
        id=1, run_id=1, campaign="c", host="h", context="plain", phase=phase, started_at=AT, arms=(arm,)
    )


def left(kind: str = "treatment", phase: str = "launch") -> Left:
    found = experiment(kind, launch(1, None), phase=phase)
    return Left(found, found.arms[0], found.arms[0].launches[0])


def test_a_living_launch_of_the_same_playbook_is_gone_on_with() -> None:
    assert why_retreat(left(), REPLY, RUN, "d") is None
    assert why_retreat(left("baseline"), {**REPLY, "open": None}, RUN, "d") is None


@pytest.mark.parametrize(
    ("given", "reply", "digest"),
    [
        (left(), {**REPLY, "launch": None}, "d"),
        (None, REPLY, "d"),
        (left(), {**REPLY, "launch": {"launch_id": "other", "alive": True}}, "d"),
        (left(), {**REPLY, "launch": {"launch_id": "l", "alive": False}}, "d"),
        (left(), REPLY, "another"),
        (left(phase="stop"), REPLY, "d"),
        (left(phase="revert"), REPLY, "d"),
        (left(phase=""), REPLY, "d"),
        (left(), {**REPLY, "open": {"txn": "l", "state": "held"}}, "d"),
        (left(), {**REPLY, "open": {"txn": "other", "state": "applied"}}, "d"),
        (left("baseline"), REPLY, "d"),
    ],
)
def test_anything_else_is_taken_back_with_a_reason(given: Left | None, reply: dict[str, Any], digest: str) -> None:
    assert why_retreat(given, reply, RUN, digest)


def test_a_measured_launch_comes_back_as_it_was() -> None:
    """Value, answers, capacity and time; one that measured nothing is none."""
    result = as_result(launch(1))
    assert result is not None
    assert (result.value, result.capacity) == (80.0, 100)
    assert result.answers is not None
    assert result.answers.first == {"p": "a"}
    assert as_result(launch(1, "exited", None)) is None


def test_a_failed_treatment_makes_the_baselines_before_it_stale() -> None:
    """As in the run itself; a launch that was lost with its controller does not."""
    base, failed, lost = experiment("baseline", launch(1)), launch(2, "exited", None), launch(3, "lost", None)
    assert remember([base, experiment("treatment", failed)]).stale == {"plain"}
    assert remember([base, experiment("treatment", lost)]).stale == set()
    assert remember([base, experiment("treatment", failed), base]).stale == set()
    assert len(remember([base, base]).results["plain"]) == 2
