"""What a run may spend, and what it has spent: no launch is started that would not come to its end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.core.budget import Budget, Spent, launch_cost_s, may_launch
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.controller.session import HostSession
    from orchestrator.core.model import Spending
    from orchestrator.core.records import RunRecord
    from orchestrator.ledger import Ledger

GIVE_BACK_S = 15.0
"""The last proof, a service that is started again, and the lease."""


class OutOfBudget(Exception):
    """Nothing went wrong: the run ends here, and `--resume` goes on. `reason` says which limit is reached."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Spender:
    """Of one run. Launches that were cut off by the end of a process count with the others."""

    def __init__(self, ledger: Ledger, run: RunRecord, spending: Spending, until_s: float | None, gpus: int) -> None:
        started_s = datetime.fromisoformat(run.started_at).timestamp()
        ends = [until_s] if until_s is not None else []
        ends += [started_s + spending.time] if spending.time is not None else []
        self.budget = Budget(min(ends, default=None), spending.launches, spending.gpu_hours)
        self._gpus = max(1, gpus)
        experiments = [ledger.experiment(row.id) for row in ledger.experiments(run_id=run.id)]
        launches = [launch for e in experiments for arm in e.arms for launch in arm.launches]
        self._launches = len(launches)
        self._seconds = [
            (datetime.fromisoformat(x.ended_at) - datetime.fromisoformat(x.started_at)).total_seconds()
            for x in launches
            if x.ended_at is not None
        ]
        known = [x.ready_s for x in ledger.launches(host=run.host) if x.ready_s is not None]
        self._stated_s = max(known, default=None)

    @property
    def spent(self) -> Spent:
        return Spent(self._launches, sum(self._seconds) * self._gpus / 3600)

    def count(self, seconds: float) -> None:
        """One more launch was carried out, from reaping to the proof after it."""
        self._launches += 1
        self._seconds.append(seconds)

    def cost_s(self, session: HostSession) -> float:
        """Of one more launch. The longest start that is allowed stands in where none was seen."""
        stated = session.target.ready.limit if self._stated_s is None else self._stated_s * 2
        return launch_cost_s(self._seconds, stated)

    def allow(self, session: HostSession, wanted: int = 1) -> None:
        """Raises `OutOfBudget`."""
        said = may_launch(
            self.budget,
            self.spent,
            now_s=session.clock.now(),
            cost_s=self.cost_s(session),
            give_back_s=GIVE_BACK_S,
            gpus=self._gpus,
            wanted=wanted,
        )
        if not said.is_allowed:
            raise OutOfBudget(said.reason)

    def as_json(self) -> Mapping[str, float]:
        return {"launches": self._launches, "gpu_hours": round(self.spent.gpu_hours, 4)}


def gpus_of(session: HostSession) -> int:
    """How many GPUs a launch takes up."""
    mine = session.target.gpus
    return len(mine) if mine is not None else len(session.facts.gpus)


def until(text: str, now_s: float) -> float:
    """`18:00` of this machine's clock, today or tomorrow, or a date and time → seconds since the epoch.

    Raises `UsageError` for anything else, and for a moment that is past.
    """
    now = datetime.fromtimestamp(now_s).astimezone()
    try:
        if "-" in text:
            at = datetime.fromisoformat(text).astimezone()
        else:
            at = datetime.combine(now.date(), datetime.strptime(text, "%H:%M").time()).astimezone()
            at = at if at > now else at + timedelta(days=1)
    except ValueError as error:
        raise UsageError(f"--until {text}: no time of day", hint="such as 18:00, or 2026-03-01T18:00") from error
    if at <= now:
        raise UsageError(f"--until {text} is past")
    return at.timestamp()
