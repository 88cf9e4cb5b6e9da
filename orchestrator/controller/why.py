"""Answers to why: why a row is ranked where it is, why a verdict, why two findings on the same thing differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.controller.todo import known_row
from orchestrator.core import planning, todo
from orchestrator.core.differences import Difference, differences
from orchestrator.core.records import Verdict

if TYPE_CHECKING:
    from orchestrator.core.records import ExperimentRecord, FindingRecord
    from orchestrator.ledger import Ledger

VOLATILE = ("port", "nccl_port", "weight_version", "random_seed", "boot_id")
"""Settings that are others at every launch and decide nothing."""


@dataclass
class Answer:
    """Sentences under headings, in order; `data` is the same for programs."""

    title: str
    parts: list[tuple[str, list[str]]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def say(self, heading: str, lines: Sequence[str]) -> None:
        if lines:
            self.parts.append((heading, list(lines)))


def why_ranked(ledger: Ledger, campaign: str, hypothesis_id: str) -> Answer:
    """Its place in the todo, the reckoning behind it, its family, what it waits for, and what would reopen it."""
    row = known_row(ledger, campaign, hypothesis_id)
    rows, findings = ledger.todo(campaign), ledger.findings(campaign)
    ranked = todo.rank_rows(rows, findings, ledger.mean_cost_s(campaign))
    everyone = todo.members(rows, findings)
    place = next(n for n, r in enumerate(ranked, start=1) if r.id == row.id)
    mine = ranked[place - 1]
    answer = Answer(f"{row.id}: {row.status}, place {place} of {len(ranked)}")
    answer.say("ranked here", [mine.reason, *_by_whom(ledger, row.decision_id)])
    if row.family:
        others = [m for m in everyone if m.family == row.family and m.id != row.id]
        wins, losses = todo.record_without(everyone, row.id, row.family)
        told = [f"{m.id}: {m.verdict or 'open'}" for m in others]
        answer.say(f"family {row.family}", [f"{wins} won, {losses} lost among the others", *told])
    closed = [f.sentence for f in todo.announcements(rows, findings) if f.family == row.family]
    answer.say("announced", closed)
    answer.say("waits for", list(mine.waits_for))
    answer.say("stands", [todo.standings([row], findings)[0].sentence])
    answer.data = {"place": place, "of": len(ranked), "score": mine.score, "reason": mine.reason,
                   "waits_for": mine.waits_for, "row": row}  # fmt: skip
    return answer


def _by_whom(ledger: Ledger, decision_id: int | None) -> list[str]:
    return [f"decision {d.id} by {d.author}: {d.text}" for d in ledger.decisions() if d.id == decision_id]


def why_verdict(ledger: Ledger, finding: FindingRecord) -> Answer:
    """The evidence, the values of every launch behind it, the facts it hangs on, and what rests on it."""
    experiment = ledger.experiment(finding.experiment_id)
    answer = Answer(f"finding {finding.id}: {finding.hypothesis_id} in {finding.context} on {finding.host}")
    answer.say("verdict", [finding.summary, *_number(finding), *finding.evidence])
    answer.say("launches", _launches(experiment))
    baselines = [f"{launch.launch_id}: {_value(launch.facts)}" for launch in ledger.launches(
        host=finding.host, campaign=finding.campaign, context=finding.context, kind="baseline"
    ) if launch.started_at <= finding.created_at][-5:]  # fmt: skip
    answer.say("baselines before it", baselines)
    if finding.closes:
        answer.say("dead end", [todo.until(finding.depends_on), *([f"reopened: {finding.reopened_because}"]
                                if finding.reopened_at else [])])  # fmt: skip
    resting = [f"decision {d.id}: {d.text}" for d in ledger.decisions(finding.campaign) if finding.id in d.finding_ids]
    resting += [f"insight {i.id}: {i.text}" for i in ledger.insights(finding.campaign) if finding.id in i.finding_ids]
    answer.say("rests on it", resting)
    answer.data = {"finding": finding, "decisions_and_insights": resting}
    return answer


def _number(finding: FindingRecord) -> list[str]:
    if finding.effect is None:
        return []
    interval = (
        f", {finding.low:+.1%} to {finding.high:+.1%}" if finding.low is not None and finding.high is not None else ""
    )
    sure = f" at {finding.confidence:.0%}" if finding.confidence is not None else ""
    launches = f"{finding.baseline_launches} + {finding.treatment_launches} launches"
    return [f"effect {finding.effect:+.1%}{interval}{sure}, from {launches} of baseline and treatment"]


def _launches(experiment: ExperimentRecord) -> list[str]:
    lines = []
    for arm in experiment.arms:
        for launch in arm.launches:
            lines.append(f"{arm.kind} {launch.launch_id}: {launch.outcome}, {_value(launch.facts)}")
            lines += [f"  cause: {launch.cause}"] if launch.cause else []
            lines += [
                f"  {c['what']}: found {c['found']}" for c in launch.facts.get("checks", []) if c["holds"] is False
            ]
    return lines


def _value(facts: Mapping[str, Any]) -> str:
    value = facts.get("value")
    return f"{value:.4g}" if isinstance(value, float) else "no value"


# ---------------------------------------------------------------- two findings


@dataclass(frozen=True)
class Comparison:
    """Two findings side by side. `sentence` says whether they agree; the differences say why they may not."""

    first: FindingRecord
    second: FindingRecord
    sentence: str
    host: Sequence[Difference]
    settings: Sequence[Difference]
    changes: Sequence[Difference]
    server: Sequence[Difference]


def compare(ledger: Ledger, first: FindingRecord, second: FindingRecord) -> Comparison:
    """Fingerprints, settings and changes that the findings rest on, and the configuration that the servers had."""
    one, other = ledger.experiment(first.experiment_id), ledger.experiment(second.experiment_id)
    prints = {f.id: f.facts for f in ledger.fingerprints()}
    facts = [prints.get(e.fingerprint_id or 0, {}) for e in (one, other)]
    return Comparison(
        first,
        second,
        _agreement(first, second),
        host=differences(*facts),
        settings=differences(first.depends_on, second.depends_on),
        changes=differences(list(one.changes), list(other.changes)),
        server=differences(_resolved(one), _resolved(other), ignore=VOLATILE),
    )


def _resolved(experiment: ExperimentRecord) -> Mapping[str, Any]:
    """What the treatment's last server said of its own configuration."""
    launches = [launch for arm in experiment.arms if arm.kind == "treatment" for launch in arm.launches]
    return next((launch.facts["resolved"] for launch in reversed(launches) if launch.facts.get("resolved")), {})


def _agreement(first: FindingRecord, second: FindingRecord) -> str:
    if first.effect is None or second.effect is None:
        same = first.verdict is second.verdict
        return f"both {first.verdict}" if same else f"{first.verdict} and {second.verdict}: one of them is no number"
    gap = second.effect - first.effect
    words = f"{first.effect:+.1%} and {second.effect:+.1%}"
    bounds = (first.low, first.high, second.low, second.high)
    if None in bounds:
        return f"{words}, {gap:+.1%} apart"
    overlap = first.low <= second.high and second.low <= first.high  # type: ignore[operator] # none of them is None
    sentence = f"{words}: their intervals {'overlap' if overlap else 'do not overlap'}"
    undecided = Verdict.inconclusive in (first.verdict, second.verdict)
    return sentence + ("; one of them could not be decided" if undecided else "")


def why_not_reproduced(ledger: Ledger, first: FindingRecord, second: FindingRecord) -> Answer:
    """What is not the same for two findings on the same hypothesis, or that nothing we know of differs."""
    found = compare(ledger, first, second)
    answer = Answer(f"finding {first.id} ({first.created_at[:19]}) and finding {second.id} ({second.created_at[:19]})")
    answer.say("results", [found.sentence])
    kinds = (("host", found.host), ("settings", found.settings), ("changes", found.changes), ("server", found.server))
    for heading, rows in kinds:
        answer.say(f"{heading} differs", [str(row) for row in rows])
    if not any(rows for _, rows in kinds):
        answer.say("differs", ["nothing that we know of: what is left is noise, or what no fact of ours tells"])
    answer.data = {"sentence": found.sentence, **{heading: [vars(r) for r in rows] for heading, rows in kinds}}
    return answer


def last_two(ledger: Ledger, campaign: str, hypothesis_id: str) -> list[FindingRecord]:
    """The last findings on a hypothesis in the place of its last one, at most two, oldest first."""
    found = ledger.findings(campaign, hypothesis_id=hypothesis_id)
    if not found:
        return []
    said = [f for f in found if (f.host, f.context) == (found[-1].host, found[-1].context)]
    return [f for f in said if f.verdict not in planning.OPEN_VERDICTS][-2:] or said[-1:]
