"""The form of a signature: one kind of line that engines, libraries and kernels print, and what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from orchestrator.core.diagnosis.model import Certainty, Outcome


class Role(Enum):
    """How much a matching line may decide.

    ROOT can be the cause. SYMPTOM is what the victim of a cause somewhere else prints: it decides only where no
    ROOT stands. HINT wraps or follows a cause. NOISE appears in healthy logs too. WARN leaves the server alive.
    """

    ROOT = "root"
    SYMPTOM = "symptom"
    HINT = "hint"
    NOISE = "noise"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Signature:
    """One kind of line.

    `literals`: at least one of them is part of every matching line; they are what the text is searched for first.
    `pattern` is then searched in the message of the line, without the prefix of the logger.
    `frames`, if given, must match the frames of the traceback the line belongs to.
    `weight` orders hits within one traceback, and 2 or less yields to a later line of weight 3 or more.
    `loud` signatures keep their role in INFO and WARNING records. `sticky` ones stand even if the server answers
    later. `knobs` are variables and flags that are known to bring this about.
    `example` and `counter` are texts that must and must not match.
    """

    id: str
    role: Role
    category: str
    literals: tuple[str, ...]
    pattern: str
    cause: str
    remedy: str
    example: str
    counter: str
    frames: str | None = None
    weight: int = 3
    loud: bool = False
    sticky: bool = False
    outcome: Outcome = "failed"
    certainty: Certainty = "likely"
    knobs: tuple[str, ...] = ()
    regex: re.Pattern[str] = field(init=False, repr=False, compare=False)
    frames_regex: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regex", re.compile(self.pattern))
        object.__setattr__(self, "frames_regex", re.compile(self.frames) if self.frames else None)


def root(
    id: str,
    category: str,
    literals: tuple[str, ...],
    pattern: str,
    cause: str,
    remedy: str,
    example: str,
    counter: str,
    *,
    frames: str | None = None,
    weight: int = 3,
    loud: bool = False,
    sticky: bool = False,
    outcome: Outcome = "failed",
    certainty: Certainty = "likely",
    knobs: tuple[str, ...] = (),
) -> Signature:
    """A line that can be the cause."""
    return Signature(
        id,
        Role.ROOT,
        category,
        literals,
        pattern,
        cause,
        remedy,
        example,
        counter,
        frames,
        weight,
        loud,
        sticky,
        outcome,
        certainty,
        knobs,
    )


def symptom(
    id: str,
    category: str,
    literals: tuple[str, ...],
    pattern: str,
    cause: str,
    remedy: str,
    example: str,
    counter: str,
    *,
    weight: int = 3,
    loud: bool = False,
    outcome: Outcome = "failed",
    certainty: Certainty = "likely",
    frames: str | None = None,
) -> Signature:
    """A line by which a victim shows that something else failed."""
    return Signature(
        id,
        Role.SYMPTOM,
        category,
        literals,
        pattern,
        cause,
        remedy,
        example,
        counter,
        frames,
        weight,
        loud,
        False,
        outcome,
        certainty,
    )


def aside(
    role: Role,
    id: str,
    literals: tuple[str, ...],
    pattern: str,
    cause: str,
    example: str,
    counter: str,
) -> Signature:
    """A line that never decides: a HINT that wraps or follows the cause, or NOISE that healthy servers print."""
    return Signature(id, role, role.value, literals, pattern, cause, "", example, counter)


def warn(
    id: str,
    outcome: Outcome,
    literals: tuple[str, ...],
    pattern: str,
    cause: str,
    remedy: str,
    example: str,
    counter: str,
    *,
    weight: int = 3,
    knobs: tuple[str, ...] = (),
) -> Signature:
    """A line of a living server that says the run is not what was asked for. Outcome "healthy" only informs."""
    return Signature(
        id,
        Role.WARN,
        outcome,
        literals,
        pattern,
        cause,
        remedy,
        example,
        counter,
        None,
        weight,
        True,
        False,
        outcome,
        "likely",
        knobs,
    )
