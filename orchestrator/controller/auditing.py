"""What a host can see at all: launches of the known-good configuration against one another, in every context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator.controller.clock import SystemClock
from orchestrator.core.audit import Audit, audit
from orchestrator.core.launches import LaunchValue
from orchestrator.core.measures import HIGHER_IS_BETTER
from orchestrator.core.noise import Noise, which_decides_sooner
from orchestrator.core.records import Direction, LaunchOutcome
from orchestrator.errors import UsageError
from orchestrator.serving.metrics import launch_value

if TYPE_CHECKING:
    from orchestrator.controller.narration import Narrator
    from orchestrator.controller.run import RunRequest
    from orchestrator.core.measures import Measure
    from orchestrator.core.records import LaunchRecord
    from orchestrator.ledger import Ledger

FEWEST = 4
LEAST_SPAN_S = 600.0
"""A slope over less than this is noise, drawn out to an hour."""
_RIVALS = ("output_tps", "total_tps", "requests_per_s", "itl_ms", "ttft_ms", "e2e_ms")
"""Metrics that say much the same of a server, at very different noise."""


@dataclass(frozen=True)
class ContextAudit:
    """Of one context. `values`: what each launch measured. `sooner`: which metric decides with the fewest launches, a
    sentence; `noises`: relative standard deviation between launches, by metric."""

    context: str
    values: tuple[float, ...]
    found: Audit
    noises: Mapping[str, float]
    sooner: str


@dataclass(frozen=True)
class AuditReport:
    campaign: str
    host: str
    metric: str
    contexts: Sequence[ContextAudit] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        rows = [
            {
                "context": c.context,
                "values": list(c.values),
                "noise_between": c.found.noise.cv,
                "noise_within": c.found.within_cv,
                "drift_per_hour": c.found.drift_per_hour,
                "false_keeps": c.found.false_keeps,
                "splits": c.found.splits,
                "smallest_effect": c.found.smallest,
                "wanted_launches": c.found.wanted_launches,
                "noises": dict(c.noises),
                "sooner": c.sooner,
                "sentence": c.found.sentence,
            }
            for c in self.contexts
        ]
        return {"campaign": self.campaign, "host": self.host, "metric": self.metric, "contexts": rows}


def audit_host(request: RunRequest, launches: int, narrator: Narrator) -> AuditReport:
    """Launch the baseline so many times in each context, as a run of its own, and judge the launches. They are kept as
    the host's stored noise. Raises `UsageError` for fewer than four."""
    from orchestrator.controller.prepare import prepare
    from orchestrator.controller.run import run

    if launches < FEWEST:
        raise UsageError(f"an audit needs {FEWEST} launches of each context or more, not {launches}")
    asked = replace(request, baseline_only=True, baseline_launches=launches)
    summary = run(asked, narrator)
    prepared = prepare(request.playbook, request.state, request.hosts, request.host, clock=SystemClock())
    with prepared.ledger as ledger:
        by_context = launches_of(ledger, summary.run_id)
    measure = prepared.playbook.measure
    contexts = [audit_context(name, rows, measure) for name, rows in by_context.items()]
    return AuditReport(summary.campaign, summary.host, measure.metric, contexts)


def launches_of(ledger: Ledger, run_id: int) -> dict[str, list[LaunchRecord]]:
    """Measured launches of a run, by context, in order."""
    found: dict[str, list[LaunchRecord]] = {}
    for row in ledger.experiments(run_id=run_id):
        for arm in ledger.experiment(row.id).arms:
            measured = [one for one in arm.launches if one.outcome is LaunchOutcome.measured]
            found.setdefault(row.context, []).extend(measured)
    return {context: sorted(rows, key=lambda one: one.id) for context, rows in found.items()}


def audit_context(context: str, rows: Sequence[LaunchRecord], measure: Measure) -> ContextAudit:
    """Pure, over what the ledger gave out."""
    values = _values(rows, measure.metric)
    samples = [_repetitions(row, measure.metric) for row in rows]
    whole = audit(
        values, samples,
        direction=measure.direction, min_effect=measure.min_effect, max_launches=max(measure.launches, 1),
    )  # fmt: skip
    whole = replace(whole, drift_per_hour=whole.drift_per_hour if _span_s(values) >= LEAST_SPAN_S else None)
    noises: dict[str, Noise] = {measure.metric: whole.noise}
    for rival in _RIVALS:
        of_rival = _values(rows, rival)
        if len(of_rival) == len(rows) and rival not in noises:
            direction: Direction = "higher" if rival in HIGHER_IS_BETTER else "lower"
            noises[rival] = audit(
                of_rival, direction=direction, min_effect=measure.min_effect, max_launches=max(measure.launches, 1)
            ).noise
    _, sooner = which_decides_sooner(noises, 2 * measure.min_effect)
    numbers = tuple(value.value for value in values)
    return ContextAudit(context, numbers, whole, {name: noise.cv for name, noise in noises.items()}, sooner)


def _span_s(values: Sequence[LaunchValue]) -> float:
    times = [value.at_s for value in values if value.at_s is not None]
    return max(times) - min(times) if times else 0.0


def _values(rows: Sequence[LaunchRecord], metric: str) -> list[LaunchValue]:
    """What each launch measured, with its time; launches without the metric are left out."""
    found = []
    for row in rows:
        told = (row.facts.get("record") or {}).get("values") or {}
        value = told.get(metric)
        if isinstance(value, int | float) and value > 0:
            at_s = datetime.fromisoformat(row.ended_at or row.started_at).timestamp()
            found.append(LaunchValue(float(value), row.launch_id, at_s))
    return found


def _repetitions(row: LaunchRecord, metric: str) -> list[float]:
    """The metric of each repetition of one launch, where the probe measured."""
    if metric not in ("output_tps", "ttft_ms", "itl_ms"):
        return []
    groups: dict[int, list[dict[str, Any]]] = {}
    for sample in row.samples:
        groups.setdefault(sample.repetition, []).append(sample.model_dump(mode="json"))
    return [value for group in groups.values() if (value := launch_value(group, metric)) is not None]
