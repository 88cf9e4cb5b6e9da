"""Where the server was last known good, and what is not as it was there. It is said beside every failure: the commonest
cause of a crash nobody can explain is a variable or a package that changed since it last worked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.differences import differences

if TYPE_CHECKING:
    from orchestrator.ledger import Ledger

KEY = "environment"
"""Under which a launch's own variables are kept among its facts; secrets are masked there."""
_OF_ONE_LAUNCH = ("PYTHONPATH",)
_SHOWN = 12


@dataclass(frozen=True)
class Good:
    """A baseline that was measured. `host`: the host's fingerprint then; `environment`: what it was launched with."""

    where: str
    host: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def last_good(ledger: Ledger, host: str, context: str, *, before: int | None = None) -> Good | None:
    """The last baseline measured on this host in this context, of any campaign; None where there was none. `before`:
    only experiments older than this one."""
    done = [
        e
        for e in ledger.experiments(host=host, context=context, state="done")
        if e.hypothesis_id is None and (before is None or e.id < before)
    ]
    if not done:
        return None
    experiment = ledger.experiment(done[-1].id)
    launches = [launch for arm in experiment.arms for launch in arm.launches if launch.outcome == "measured"]
    environment = launches[-1].facts.get(KEY) if launches else None
    return Good(f"#{experiment.id}", facts_of(ledger, host, experiment.fingerprint_id), environment or {})


def facts_of(ledger: Ledger, host: str, fingerprint_id: int | None) -> Mapping[str, Any]:
    return next((f.facts for f in ledger.fingerprints(host) if f.id == fingerprint_id), {})


def since(good: Good, now: Good, *, treated: Collection[str] = ()) -> list[str]:
    """A sentence for each thing that differs, at most a dozen; one that says so where nothing does. Pure.

    `treated`: variables that the treatment itself sets. What was not recorded then is not compared.
    """
    ignored = {*_OF_ONE_LAUNCH, *treated}
    found = [f"host: {one}" for one in differences(good.host, now.host, ignore=ignored)] if good.host else []
    if good.environment:
        found += [f"environment: {one}" for one in differences(good.environment, now.environment, ignore=ignored)]
    more = [f"{len(found) - _SHOWN} more differences"] if len(found) > _SHOWN else []
    compared = [name for name, was in (("host", good.host), ("environment", good.environment)) if was]
    if compared and not found:
        return [f"as at the last good launch ({good.where}): {' and '.join(compared)}"]
    return [f"since the last good launch ({good.where}) {one}" for one in (*found[:_SHOWN], *more)]
