"""The tables of life are total, and no history avoids the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.lifecycle import (
    ARM_AFTER_FAILURE,
    ARM_AFTER_SUCCESS,
    ARM_AGAIN,
    EXPERIMENT_AFTER_FAILURE,
    EXPERIMENT_AFTER_SUCCESS,
    EXPERIMENT_AGAIN,
    ArmStep,
    ExperimentStep,
    Outcome,
    after_restart,
    is_end,
    next_step,
    pending,
    touches_files,
)

HISTORY = st.lists(st.sampled_from(Outcome), max_size=120)


def walk_arm(outcomes: list[Outcome], start: ArmStep = ArmStep.REAP) -> list[tuple[ArmStep, Outcome]]:
    """Every step with its outcome until the end; when the history runs out, all goes well."""
    way, step, left = [], start, iter(outcomes)
    while not is_end(step):
        way.append((step, next(left, Outcome.OK)))
        step = next_step(*way[-1])
        assert len(way) < 500
    return [*way, (step, Outcome.OK)]


def walk_experiment(outcomes: list[Outcome]) -> list[tuple[ExperimentStep, Outcome]]:
    way, step, left = [], ExperimentStep.CONNECT, iter(outcomes)
    while not is_end(step):
        way.append((step, next(left, Outcome.OK)))
        step = next_step(*way[-1])
        assert len(way) < 500
    return [*way, (step, Outcome.OK)]


@pytest.mark.parametrize("table", [ARM_AFTER_SUCCESS, ARM_AFTER_FAILURE, ARM_AGAIN])
def test_the_tables_of_an_arm_are_total(table: dict[ArmStep, ArmStep]) -> None:
    """Every step has a successor in every table."""
    assert set(table) == set(ArmStep)


@pytest.mark.parametrize("table", [EXPERIMENT_AFTER_SUCCESS, EXPERIMENT_AFTER_FAILURE, EXPERIMENT_AGAIN])
def test_the_tables_of_an_experiment_are_total(table: dict[ExperimentStep, ExperimentStep]) -> None:
    """Every step has a successor in every table."""
    assert set(table) == set(ExperimentStep)


def test_the_good_road_is_the_one_in_the_picture() -> None:
    """All going well, an arm and an experiment walk their steps in the stated order, each once."""
    good = list(ArmStep)[: list(ArmStep).index(ArmStep.CLEAN) + 1]
    assert [step for step, _ in walk_arm([])] == good
    assert [step.value for step in good[3:7]] == ["ready", "check", "gate", "measure"]
    assert [step.value for step, _ in walk_experiment([])] == (
        ["connect", "recover", "probe", "snapshot", "hold", "arm", "give_back", "conclude", "done"]
    )


@given(HISTORY)
def test_no_road_from_apply_to_the_end_avoids_the_way_back(outcomes: list[Outcome]) -> None:
    """After any launch come stop, reap_again, revert and verify; after any apply revert and verify; always verify."""
    steps = [step for step, _ in walk_arm(outcomes)]
    assert ArmStep.VERIFY in steps
    for at, step in enumerate(steps):
        rest = steps[at + 1 :]
        if step is ArmStep.APPLY:
            assert rest.index(ArmStep.REVERT) < rest.index(ArmStep.VERIFY)
        if step is ArmStep.LAUNCH:
            assert ArmStep.STOP in rest
            assert rest.index(ArmStep.STOP) < rest.index(ArmStep.REAP_AGAIN) < rest.index(ArmStep.VERIFY)
            assert ArmStep.LAUNCH not in rest[: rest.index(ArmStep.REAP_AGAIN)]


@given(HISTORY)
def test_an_arm_is_clean_exactly_when_verify_says_so(outcomes: list[Outcome]) -> None:
    """The end of an arm is decided by verify alone: failing, it is quarantined, whatever went well before."""
    way = walk_arm(outcomes)
    verdicts = [outcome for step, outcome in way if step is ArmStep.VERIFY]
    assert len(verdicts) == 1
    is_clean = way[-1][0] is ArmStep.CLEAN
    assert is_clean == (verdicts[0] is not Outcome.FAILED)


@given(HISTORY)
def test_every_experiment_ends_and_gives_back_what_it_held(outcomes: list[Outcome]) -> None:
    """Every history ends; what was held is given back, except that nothing starts on a host not proved clean."""
    way = walk_experiment(outcomes)
    steps = [step for step, _ in way]
    said = dict(way)
    assert steps[-1] in (ExperimentStep.DONE, ExperimentStep.QUARANTINED)
    if ExperimentStep.HOLD in steps and said.get(ExperimentStep.ARM) is not Outcome.FAILED:
        assert ExperimentStep.GIVE_BACK in steps
    if ExperimentStep.RECOVER in steps and said[ExperimentStep.RECOVER] is Outcome.FAILED:
        assert ExperimentStep.ARM not in steps
    bad = {ExperimentStep.RECOVER, ExperimentStep.ARM, ExperimentStep.GIVE_BACK}
    is_dirty = any(step in bad and outcome is Outcome.FAILED for step, outcome in way)
    assert (steps[-1] is ExperimentStep.QUARANTINED) == is_dirty


@pytest.mark.parametrize("step", [s for s in ArmStep if not is_end(s)])
def test_what_is_pending_is_the_way_a_failure_takes(step: ArmStep) -> None:
    """What a second interrupt prints is exactly what the retreat will walk."""
    walked = [s for s, _ in walk_arm([Outcome.FAILED], start=step)][1:-1]
    assert list(pending(step)) == walked


def test_a_restart_retreats_and_repeats_the_way_back() -> None:
    """Without the right to resume every step leads to the way back, and a step of it is done once more."""
    for step in ArmStep:
        again = after_restart(step)
        if is_end(step):
            assert again is step
        else:
            assert again in (ArmStep.STOP, ArmStep.REAP_AGAIN, ArmStep.REVERT, ArmStep.VERIFY)
    assert after_restart(ArmStep.LAUNCH) is ArmStep.STOP
    assert after_restart(ArmStep.APPLY) is ArmStep.REVERT
    assert after_restart(ArmStep.REVERT) is ArmStep.REVERT


def test_a_resume_adopts_a_loading_server_and_never_half_a_measurement() -> None:
    """With the right to resume a launched server is waited for; a measurement is taken again after its checks."""
    assert after_restart(ArmStep.LAUNCH, may_resume=True) is ArmStep.READY
    assert after_restart(ArmStep.READY, may_resume=True) is ArmStep.READY
    assert after_restart(ArmStep.MEASURE, may_resume=True) is ArmStep.CHECK
    assert after_restart(ArmStep.APPLY, may_resume=True) is ArmStep.REVERT
    assert after_restart(ArmStep.STOP, may_resume=True) is ArmStep.STOP


def test_neighbouring_launches_share_one_apply() -> None:
    """Another launch of the same arm goes from reap_again to launch, with no revert and apply between."""
    outcomes = [Outcome.OK] * 8 + [Outcome.AGAIN]
    steps = [step for step, _ in walk_arm(outcomes)]
    assert steps.count(ArmStep.LAUNCH) == 2
    assert steps.count(ArmStep.APPLY) == steps.count(ArmStep.REVERT) == 1


def test_a_baseline_arm_touches_no_file() -> None:
    """Without changes apply and revert have nothing to do; with them they alone write."""
    assert not any(touches_files(step, has_changes=False) for step in ArmStep)
    assert [s for s in ArmStep if touches_files(s, has_changes=True)] == [ArmStep.APPLY, ArmStep.REVERT]
