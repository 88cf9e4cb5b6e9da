"""The life of an arm and of an experiment, as total tables.

    experiment:  connect → recover → probe → snapshot → hold → arm, arm, … → give_back → conclude
    arm:         reap → apply → launch → ready → check → gate → measure → stop → reap_again → revert → verify
                               ↑                                                  │
                               └──────── another launch of the same arm ──────────┘

A baseline arm walks the same road with nothing to apply. Whatever happens, from `launch` on the road passes `stop`,
`reap_again` and `verify`, from `apply` on `revert` and `verify`, and a host whose `verify` fails is quarantined.
An interrupt is a failure of the step it meets: the retreat is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class Outcome(StrEnum):
    """How a step ended. AGAIN is success where the same is wanted once more: another arm, another launch."""

    OK = "ok"
    FAILED = "failed"
    AGAIN = "again"


class ExperimentStep(StrEnum):
    CONNECT = "connect"
    RECOVER = "recover"
    PROBE = "probe"
    SNAPSHOT = "snapshot"
    HOLD = "hold"
    ARM = "arm"  # ends OK when the arm ended clean, whatever it found; FAILED when it ended quarantined
    GIVE_BACK = "give_back"
    CONCLUDE = "conclude"
    QUARANTINE = "quarantine"  # write the finding and what is left on the host; it takes no work from here on
    DONE = "done"
    QUARANTINED = "quarantined"


class ArmStep(StrEnum):
    REAP = "reap"
    APPLY = "apply"
    LAUNCH = "launch"
    READY = "ready"
    CHECK = "check"
    GATE = "gate"
    MEASURE = "measure"
    STOP = "stop"
    REAP_AGAIN = "reap_again"
    REVERT = "revert"
    VERIFY = "verify"  # judges the host, not the history: files, processes, GPU memory
    CLEAN = "clean"
    QUARANTINED = "quarantined"


Step = TypeVar("Step", ExperimentStep, ArmStep)

_E, _A = ExperimentStep, ArmStep

EXPERIMENT_AFTER_SUCCESS: Mapping[ExperimentStep, ExperimentStep] = {
    _E.CONNECT: _E.RECOVER,
    _E.RECOVER: _E.PROBE,
    _E.PROBE: _E.SNAPSHOT,
    _E.SNAPSHOT: _E.HOLD,
    _E.HOLD: _E.ARM,
    _E.ARM: _E.GIVE_BACK,
    _E.GIVE_BACK: _E.CONCLUDE,
    _E.CONCLUDE: _E.DONE,
    _E.QUARANTINE: _E.QUARANTINED,
    _E.DONE: _E.DONE,
    _E.QUARANTINED: _E.QUARANTINED,
}

EXPERIMENT_AFTER_FAILURE: Mapping[ExperimentStep, ExperimentStep] = {
    _E.CONNECT: _E.CONCLUDE,  # nothing was touched
    _E.RECOVER: _E.QUARANTINE,
    _E.PROBE: _E.CONCLUDE,
    _E.SNAPSHOT: _E.CONCLUDE,
    _E.HOLD: _E.GIVE_BACK,  # the service may be half stopped
    _E.ARM: _E.QUARANTINE,  # the service must not start from a tree that is not proved clean
    _E.GIVE_BACK: _E.QUARANTINE,
    _E.CONCLUDE: _E.DONE,  # the host is clean; the next start concludes from what was recorded
    _E.QUARANTINE: _E.QUARANTINED,
    _E.DONE: _E.DONE,
    _E.QUARANTINED: _E.QUARANTINED,
}

ARM_AFTER_SUCCESS: Mapping[ArmStep, ArmStep] = {
    _A.REAP: _A.APPLY,
    _A.APPLY: _A.LAUNCH,
    _A.LAUNCH: _A.READY,
    _A.READY: _A.CHECK,
    _A.CHECK: _A.GATE,
    _A.GATE: _A.MEASURE,
    _A.MEASURE: _A.STOP,
    _A.STOP: _A.REAP_AGAIN,
    _A.REAP_AGAIN: _A.REVERT,
    _A.REVERT: _A.VERIFY,
    _A.VERIFY: _A.CLEAN,
    _A.CLEAN: _A.CLEAN,
    _A.QUARANTINED: _A.QUARANTINED,
}

ARM_AFTER_FAILURE: Mapping[ArmStep, ArmStep] = {
    _A.REAP: _A.VERIFY,  # nothing was applied
    _A.APPLY: _A.REVERT,  # it may be applied in part
    _A.LAUNCH: _A.STOP,  # it may have started
    _A.READY: _A.STOP,
    _A.CHECK: _A.STOP,
    _A.GATE: _A.STOP,
    _A.MEASURE: _A.STOP,
    _A.STOP: _A.REAP_AGAIN,
    _A.REAP_AGAIN: _A.REVERT,  # the files come back even while a process lingers; verify will say that it does
    _A.REVERT: _A.VERIFY,
    _A.VERIFY: _A.QUARANTINED,
    _A.CLEAN: _A.CLEAN,
    _A.QUARANTINED: _A.QUARANTINED,
}

EXPERIMENT_AGAIN: Mapping[ExperimentStep, ExperimentStep] = {**EXPERIMENT_AFTER_SUCCESS, _E.ARM: _E.ARM}
ARM_AGAIN: Mapping[ArmStep, ArmStep] = {**ARM_AFTER_SUCCESS, _A.REAP_AGAIN: _A.LAUNCH}

_EXPERIMENT = {
    Outcome.OK: EXPERIMENT_AFTER_SUCCESS,
    Outcome.FAILED: EXPERIMENT_AFTER_FAILURE,
    Outcome.AGAIN: EXPERIMENT_AGAIN,
}
_ARM = {Outcome.OK: ARM_AFTER_SUCCESS, Outcome.FAILED: ARM_AFTER_FAILURE, Outcome.AGAIN: ARM_AGAIN}

ENDS = frozenset({_E.DONE, _E.QUARANTINED, _A.CLEAN, _A.QUARANTINED})

_WAY_BACK = frozenset({_A.STOP, _A.REAP_AGAIN, _A.REVERT, _A.VERIFY})
_ADOPTED = {
    _A.LAUNCH: _A.READY,  # a server that is still loading is kept, not killed
    _A.READY: _A.READY,
    _A.CHECK: _A.CHECK,
    _A.GATE: _A.CHECK,
    _A.MEASURE: _A.CHECK,  # half a measurement is none: it is taken again, of a server checked again
}


def next_step(step: Step, outcome: Outcome) -> Step:
    """What follows a step. An end follows itself."""
    if isinstance(step, ArmStep):
        return _ARM[outcome][step]
    return _EXPERIMENT[outcome][step]


def is_end(step: ExperimentStep | ArmStep) -> bool:
    return step in ENDS


def pending(step: Step) -> tuple[Step, ...]:
    """The way back from a step that is interrupted now: what is still to be done, in order, the end left out."""
    way: list[Step] = []
    at = next_step(step, Outcome.FAILED)
    while not is_end(at):
        way.append(at)
        at = next_step(at, Outcome.OK)
    return tuple(way)


def after_restart(step: ArmStep, *, may_resume: bool = False) -> ArmStep:
    """Where a controller goes on that finds `step` begun and not ended.

    It retreats; steps of the way back are done once more, since each can be repeated. Only with `may_resume`
    (`--resume`, inside the lease, with the holder's token) a launched server is adopted.
    """
    if step in _WAY_BACK or is_end(step):
        return step
    if may_resume and step in _ADOPTED:
        return _ADOPTED[step]
    return ARM_AFTER_FAILURE[step]


def touches_files(step: ArmStep, *, has_changes: bool) -> bool:
    """Whether the step writes to the tree: in a baseline arm none does, and `verify` is walked all the same."""
    return has_changes and step in (ArmStep.APPLY, ArmStep.REVERT)
