"""What the dashboard shows, read from the ledger: values only, made off the event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from orchestrator.core.records import ExperimentRecord, FindingRecord, HostRecord, RunRecord, TodoRow
from orchestrator.ledger.live import is_alive
from orchestrator.ledger.watching import Watch
from orchestrator.tui.words import epoch


@dataclass(frozen=True)
class HostLine:
    """`word`: clean, kept, busy, QUARANTINED, or `cut off` where a run ended without a word."""

    name: str
    word: str
    why: str
    since: float
    may_write: bool
    run_id: int | None = None


@dataclass(frozen=True)
class Now:
    """A run that lives, and where it is. Times are epoch seconds."""

    run: RunRecord
    experiment: ExperimentRecord | None
    arm: str
    since: float
    phase_since: float
    usual_s: float | None
    left: int

    def experiment_left_s(self, now: float) -> float | None:
        return None if self.usual_s is None or self.experiment is None else max(self.usual_s - (now - self.since), 0.0)

    def campaign_left_s(self, now: float) -> float | None:
        """The one under way, and those behind it at the usual pace."""
        rest = self.experiment_left_s(now)
        is_counted = self.experiment is not None and self.experiment.hypothesis_id is not None
        waiting = max(self.left - (1 if is_counted else 0), 0)
        return None if self.usual_s is None else (rest or 0.0) + waiting * self.usual_s


@dataclass(frozen=True)
class Filters:
    todo: str = ""
    findings: str = ""
    diff: str = ""
    commands: str = ""


@dataclass(frozen=True)
class Picture:
    campaign: str | None
    hosts: Sequence[HostLine]
    now: Sequence[Now]
    todo: Sequence[TodoRow]
    findings: Sequence[FindingRecord]
    changed: Sequence[ExperimentRecord]
    proofs: Mapping[int, bool]
    commands: Sequence[Mapping[str, Any]]
    filters: Filters = field(default_factory=Filters)


def take(watch: Watch, filters: Filters) -> Picture:
    """Everything at once; bounded, whatever the ledger holds."""
    campaign = watch.latest_campaign()
    runs = watch.last_runs()
    alive = {host for host, run in runs.items() if run.ended_at is None and is_alive(watch.state_dir, run.id)}
    known = watch.inventory().get("hosts", {})
    changed = watch.changed_experiments(filters.diff)
    return Picture(
        campaign=campaign,
        hosts=_hosts(watch.hosts(), runs, alive, known),
        now=[_now(watch, runs[host]) for host in sorted(alive)],
        todo=watch.todo(campaign, filters.todo) if campaign else (),
        findings=watch.findings(campaign, filters.findings) if campaign else (),
        changed=changed,
        proofs=watch.proofs([e.id for e in changed]),
        commands=watch.commands(filters.commands),
        filters=filters,
    )


def _hosts(
    hosts: Sequence[HostRecord], runs: Mapping[str, RunRecord], alive: set[str], known: Mapping[str, Any]
) -> list[HostLine]:
    lines = [_host(host, runs.get(host.name), host.name in alive, known.get(host.name, {})) for host in hosts]
    order = {"QUARANTINED": 0, "cut off": 1, "busy": 2}
    return sorted(lines, key=lambda line: (order.get(line.word, 3), line.name))


def _host(host: HostRecord, run: RunRecord | None, is_busy: bool, entry: Mapping[str, Any]) -> HostLine:
    may_write = bool(entry.get("write", True))
    since = epoch(host.since)
    if host.state == "quarantined":
        return HostLine(host.name, "QUARANTINED", host.reason, since, may_write, run.id if run and is_busy else None)
    if run is not None and is_busy:
        return HostLine(host.name, "busy", f"run {run.id} of {run.campaign}", epoch(run.started_at), may_write, run.id)
    if run is not None and run.ended_at is None:
        why = f"run {run.id} ended without a word; not proved clean: v puts it back"
        return HostLine(host.name, "cut off", why, epoch(run.started_at), may_write)
    if host.state == "kept":
        return HostLine(host.name, "kept", host.kept or host.reason, since, may_write)
    ended = f"run {run.id} {run.state}" if run is not None else "never used"
    return HostLine(host.name, "clean", ended, epoch(run.ended_at) if run and run.ended_at else since, may_write)


def _now(watch: Watch, run: RunRecord) -> Now:
    experiment = watch.current(run.id)
    took = watch.durations(run.campaign, run.host)
    arm = watch.current_arm(experiment.id) if experiment is not None else None
    started = epoch(experiment.started_at if experiment is not None else run.started_at)
    phase_at = watch.phase_since(experiment.id) if experiment is not None else None
    return Now(
        run=run,
        experiment=experiment,
        arm=f"{arm.kind} {arm.number}" if arm is not None else "",
        since=started,
        phase_since=epoch(phase_at) if phase_at else started,
        usual_s=median(took) if took else None,
        left=watch.left(run.campaign),
    )
