"""Every error that is raised on purpose.

    OrchestratorError
    ├── Findings       1    diagnose, doctor, check or verify found something that is not ours
    ├── UsageError     2    a command line or playbook with problems
    │   └── PlaybookError
    ├── Unreachable    3    no route to the host, or no agent at its end
    ├── PatchConflict  4    a patch that does not fit; nothing was changed
    ├── Refused        5    we could, and will not without a person's word
    ├── Busy           6    another controller holds the tree, the GPUs or the port
    ├── Dirty          7    a host that is not proved clean; wins over all others
    ├── Bug           70    our own mistake
    └── Interrupted  130    stopped by a person, host proved clean

An error carries what happened, where, and facts; the hint is the last thing shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Place:
    """A position in a file that a person can open. Line and column count from 1."""

    file: str
    line: int | None = None
    column: int | None = None
    text: str | None = None  # the line itself, shown with a caret below the column

    def __str__(self) -> str:
        parts = [self.file, *(str(n) for n in (self.line, self.column) if n is not None)]
        return ":".join(parts)


@dataclass(frozen=True)
class Problem:
    """One complaint about one place; a `PlaybookError` holds all of them."""

    what: str
    where: Place | None = None
    hint: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


class OrchestratorError(Exception):
    """Base of all errors raised on purpose: `kind` names it, `exit_code` is what the process returns."""

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 70

    def __init__(
        self,
        what: str,
        *,
        where: Place | None = None,
        facts: Mapping[str, str] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.facts: dict[str, str] = dict(facts or {})
        self.hint = hint

    @property
    def problems(self) -> Sequence[Problem]:
        """What to show, one block each."""
        return [Problem(self.what, self.where, self.hint, self.facts)]


class Findings(OrchestratorError):
    """The command did its work and found something that is not ours."""

    kind = "findings"
    exit_code = 1


class UsageError(OrchestratorError):
    kind = "usage"
    exit_code = 2


class PlaybookError(UsageError):
    """A playbook or inventory with problems: all of them, each with its place."""

    kind = "playbook"

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        super().__init__(first.what, where=first.where, facts=first.facts, hint=first.hint)
        self._problems = list(problems)

    @property
    def problems(self) -> Sequence[Problem]:
        return self._problems


class Unreachable(OrchestratorError):
    """No route, no login, or nothing of ours answers at its end."""

    kind = "unreachable"
    exit_code = 3


class PatchConflict(OrchestratorError):
    """A patch that does not fit the bytes as they are. Nothing was changed. Several misfits are several problems."""

    kind = "conflict"
    exit_code = 4

    def __init__(
        self,
        what: str,
        *,
        where: Place | None = None,
        facts: Mapping[str, str] | None = None,
        hint: str | None = None,
        problems: Sequence[Problem] = (),
    ) -> None:
        super().__init__(what, where=where, facts=facts, hint=hint)
        self._problems = list(problems)

    @property
    def problems(self) -> Sequence[Problem]:
        return self._problems or super().problems


class Refused(OrchestratorError):
    """A precondition of safety does not hold, or a person must agree first."""

    kind = "refused"
    exit_code = 5


class Busy(OrchestratorError):
    """Somebody else holds it: facts say who, since when and until when."""

    kind = "busy"
    exit_code = 6


class Dirty(OrchestratorError):
    """The host is not proved clean."""

    kind = "dirty"
    exit_code = 7


class Bug(OrchestratorError):
    """A mistake of ours."""

    kind = "bug"
    exit_code = 70


class Interrupted(OrchestratorError):
    """Stopped by a person; the host was proved clean afterwards."""

    kind = "interrupted"
    exit_code = 130


def all_kinds() -> Mapping[str, int]:
    """Kind → exit code of every class above, for the documentation and its test."""
    classes = [OrchestratorError]
    for cls in classes:
        classes.extend(cls.__subclasses__())
    return {cls.kind: cls.exit_code for cls in classes if cls is not OrchestratorError}
