"""The campaign's goal, judged on the best configuration that was measured in each context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from orchestrator.core.distributions import t_quantile
from orchestrator.core.goal import GoalStatus, Interval, Key, break_even, judge_goal, parse_condition
from orchestrator.core.noise import STORED_DF, learn_noise, shrink
from orchestrator.report.best import best_of, is_screened
from orchestrator.serving.metrics import launch_value

if TYPE_CHECKING:
    from orchestrator.core.model import Goal, Playbook
    from orchestrator.core.records import ExperimentRecord, FindingRecord
    from orchestrator.ledger import Ledger

METRICS = ("output_tps", "ttft_ms", "itl_ms")
SIDE = 0.975
STATED_CV = 0.03

Launches = Sequence[Sequence[Mapping[str, Any]]]
"""For each launch its samples."""


@dataclass(frozen=True)
class GoalReport:
    """`is_reached` None: not to be told yet. `rests_on`: screened wins that it would be reached by."""

    is_reached: bool | None
    sentences: tuple[str, ...]
    rests_on: tuple[FindingRecord, ...] = ()

    @property
    def headline(self) -> str:
        word = {True: "reached", False: "not reached", None: "not decided"}[self.is_reached]
        return f"goal {word}"


def judge_campaign(
    ledger: Ledger, playbook: Playbook, host: str, baselines: Mapping[str, Launches]
) -> GoalReport | None:
    """None without a goal. `baselines`: context → the launches of the known-good configuration."""
    if playbook.goal is None:
        return None
    findings = ledger.findings(playbook.campaign, host=host)
    best = {b.context: b.finding for b in best_of(findings) if b.finding is not None}
    arms = dict(baselines)
    for context, finding in best.items():
        arms[context] = samples_of(ledger.experiment(finding.experiment_id))
    measured: dict[Key, Interval] = {}
    for context, launches in arms.items():
        measured |= {(context, name): value for name, value in intervals(launches, playbook.goal).items()}
    status = judge_goal([parse_condition(text) for text in playbook.goal.conditions], measured)
    sentences = (*status.sentences, *_break_even(measured, best))
    return GoalReport(status.is_reached, sentences, _resting(status, best))


def _resting(status: GoalStatus, best: Mapping[str, FindingRecord]) -> tuple[FindingRecord, ...]:
    return tuple(f for f in best.values() if is_screened(f)) if status.is_reached else ()


def _break_even(measured: Mapping[Key, Interval], best: Mapping[str, FindingRecord]) -> list[str]:
    """For each context that speculates, against the fastest one that does not."""
    speculating = {c for c, name in measured if name == "accept_length"}
    plain = [measured[c, "output_tps"].value for c, name in measured if name == "output_tps" and c not in speculating]
    if not plain:
        return []
    return [
        f"{context}{f' with {best[context].hypothesis_id}' if context in best else ''}: "
        + break_even(max(plain), measured[context, "output_tps"].value, measured[context, "accept_length"].value)
        for context in sorted(speculating)
        if (context, "output_tps") in measured
    ]


def intervals(launches: Launches, goal: Goal) -> dict[str, Interval]:
    """Every metric that these launches of one configuration tell. Pure."""
    told: dict[str, Interval] = {}
    for metric in METRICS:
        values = [value for samples in launches if (value := launch_value(samples, metric)) is not None]
        if values:
            told[metric] = _interval(values)
    accepted = [s["accept_length"] for samples in launches for s in samples if s.get("accept_length")]
    if accepted and "output_tps" in told:
        length, speed = fmean(accepted), told["output_tps"]
        told["accept_length"] = Interval(length, length, length)
        cycle = Interval(*(1000 * length / tps for tps in (speed.value, speed.high, speed.low)))
        told["cycle_ms"] = cycle
        if goal.verify_share is not None:
            share = goal.verify_share
            told["verify_ms"] = Interval(cycle.value * share, cycle.low * share, cycle.high * share)
    return told


def _interval(values: Sequence[float]) -> Interval:
    """The mean, and where it lies for all that is known of the noise between launches."""
    noise = shrink(learn_noise([values]), None, stated_cv=STATED_CV, weight_df=STORED_DF)
    value = fmean(values)
    half = t_quantile(SIDE, noise.own_df or float("inf")) * noise.cv / len(values) ** 0.5
    return Interval(value, value * (1 - min(half, 1.0)), value * (1 + half))


def samples_of(experiment: ExperimentRecord) -> Launches:
    """Of the measured launches of its treatment."""
    return [
        [sample.model_dump(mode="json") for sample in launch.samples]
        for arm in experiment.arms
        if arm.kind == "treatment"
        for launch in arm.launches
        if launch.outcome == "measured"
    ]
