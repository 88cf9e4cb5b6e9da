"""What one look over all experiments tells: baselines over time, where the time went, what was lost to failures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean, stdev

from orchestrator.core.records import CampaignView, ExperimentRecord, LaunchOutcome, LaunchRecord

Place = tuple[str, str]
"""Host and context."""

FINE = frozenset({LaunchOutcome.measured, LaunchOutcome.ready})


@dataclass(frozen=True)
class BaselinePoint:
    at_s: float
    value: float
    experiment_id: int


@dataclass(frozen=True)
class Span:
    """One experiment in time. `lost_s`: of its launches that came to nothing."""

    experiment_id: int
    run_id: int
    name: str
    mark: str
    start_s: float
    end_s: float
    lost_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass
class Overview:
    baselines: dict[Place, list[BaselinePoint]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    lost_s: dict[str, float] = field(default_factory=dict)  # outcome of a launch → seconds
    launches: int = 0
    samples: int = 0

    @property
    def seconds(self) -> float:
        return sum(span.seconds for span in self.spans)


def overview(view: CampaignView) -> Overview:
    """Reads every experiment once; what it keeps of each is a few numbers."""
    seen = Overview()
    for experiment in view.experiments:
        _take(seen, experiment)
    return seen


def _take(seen: Overview, e: ExperimentRecord) -> None:
    lost = 0.0
    ends = [e.started_at]
    for arm in e.arms:
        for launch in arm.launches:
            seen.launches += 1
            seen.samples += len(launch.samples)
            ends.append(launch.ended_at or launch.started_at)
            value = value_of(launch)
            if arm.kind == "baseline" and value is not None and launch.outcome in FINE:
                point = BaselinePoint(epoch(launch.started_at), value, e.id)
                seen.baselines.setdefault((e.host, e.context), []).append(point)
            if launch.outcome is not None and launch.outcome not in FINE and launch.ended_at is not None:
                seconds = epoch(launch.ended_at) - epoch(launch.started_at)
                lost += seconds
                seen.lost_s[launch.outcome.value] = seen.lost_s.get(launch.outcome.value, 0.0) + seconds
    end = e.ended_at or max(ends)
    mark = e.verdict.value if e.verdict else ("baseline" if e.hypothesis_id is None and e.state == "done" else e.state)
    name = e.hypothesis_id or "baseline"
    seen.spans.append(Span(e.id, e.run_id, name, mark, epoch(e.started_at), epoch(end), lost))


def value_of(launch: LaunchRecord) -> float | None:
    """The launch's metric as it was decided on."""
    value = launch.facts.get("value")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def epoch(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


@dataclass(frozen=True)
class Band:
    """Mean and noise of launches: `low` and `high` are two standard deviations away, None for a single launch."""

    mean: float
    low: float | None
    high: float | None
    launches: int


def band(points: Sequence[BaselinePoint]) -> Band:
    """At least one point."""
    values = [p.value for p in points]
    mean = fmean(values)
    if len(values) < 2:
        return Band(mean, None, None, 1)
    wide = 2 * stdev(values)
    return Band(mean, mean - wide, mean + wide, len(values))


def by_run(spans: Iterable[Span]) -> dict[int, list[Span]]:
    runs: dict[int, list[Span]] = {}
    for span in spans:
        runs.setdefault(span.run_id, []).append(span)
    return runs


def duration(seconds: float) -> str:
    """`48 s`, `2 min 30 s`, `12 min`, `3 h 05 min`."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"
    if seconds < 600:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"
