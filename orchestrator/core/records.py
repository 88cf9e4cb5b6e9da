"""What was done and what was learned: the records that the ledger gives out and everything else reads.

All are frozen. Times are UTC text (`2026-03-01T12:00:00.000000Z`), which sorts as it reads. Ids are small integers for
people: `#41` is experiment 41. Effects are relative gains, positive is better whatever the metric: 0.09 is +9 %.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from orchestrator.core.model import Hypothesis, Model

Timestamp = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]
Facts = dict[str, Any]
Direction = Literal["higher", "lower"]

RunState = Literal["running", "done", "interrupted", "failed", "dirty"]
ExperimentState = Literal["running", "done", "aborted", "quarantined"]
ArmKind = Literal["baseline", "treatment"]
TodoStatus = Literal["open", "running", "done", "skipped"]
TodoOrigin = Literal["playbook", "person", "isolation", "combination"]
HostState = Literal["clean", "kept", "quarantined"]
EventKind = Literal["intent", "outcome", "info"]


class Verdict(StrEnum):
    improved = "improved"
    regressed = "regressed"
    no_effect = "no_effect"
    inconclusive = "inconclusive"
    crashed = "crashed"
    hung = "hung"
    wrong_output = "wrong_output"
    not_effective = "not_effective"  # the change was not live in the process that answered
    not_applicable = "not_applicable"  # a precondition is unmet; nothing was launched
    invalid = "invalid"  # the measurement is contaminated
    aborted = "aborted"

    @property
    def is_measured(self) -> bool:
        """Rests on samples, so it may carry an effect. A failure carries none: it is never the number 0."""
        return self in _MEASURED


_MEASURED = frozenset({Verdict.improved, Verdict.regressed, Verdict.no_effect, Verdict.inconclusive})


class LaunchOutcome(StrEnum):
    """How a launch ended for us; the states of readiness that are failures keep their names."""

    measured = "measured"
    ready = "ready"  # came up, nothing was to be measured
    exited = "exited"
    hung = "hung"
    timeout = "timeout"
    stranger = "stranger"
    wrong_server = "wrong_server"
    auth_required = "auth_required"
    generation_failed = "generation_failed"
    wrong_output = "wrong_output"
    not_effective = "not_effective"
    invalid = "invalid"
    aborted = "aborted"
    lost = "lost"  # the controller or the host went away; what happened is not known


class Sample(Model):
    """One request as the agent measured it. Seconds and token counts; None where the server gave no number."""

    repetition: int = Field(ge=0)
    stream: int = Field(0, ge=0)
    ok: bool = True
    error: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    ttft_s: float | None = None
    decode_s: float | None = Field(None, description="from the first to the last chunk")
    decode_tokens: int | None = Field(None, description="without those of the first chunk")
    total_s: float | None = None
    itl_p50_s: float | None = None
    itl_p99_s: float | None = None
    accept_length: float | None = None
    finish_reason: str | None = None
    text_sha256: str | None = None
    text: str | None = None


class LaunchRecord(Model):
    """One start of the server. Its outcome is None only while it lives."""

    id: int
    arm_id: int
    number: int = Field(ge=1, description="counts the launches of its arm")
    launch_id: str = Field(description="the name the agent knows it by")
    argv: tuple[str, ...] = ()
    started_at: Timestamp
    ended_at: Timestamp | None = None
    outcome: LaunchOutcome | None = None
    ready_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    cause: str | None = Field(None, description="the line that shows why it failed")
    facts: Facts = Field(default_factory=dict, description="diagnosis, checks of the treatment, timings")
    log_artifact: int | None = None
    samples: tuple[Sample, ...] = ()


class RevertProof(Model):
    """What the host's manifest said after the revert, against the one taken before the first change."""

    clean: bool
    found_digest: str
    now_digest: str
    files: int = Field(ge=0)
    differences: tuple[Facts, ...] = ()
    seconds: float | None = None

    @model_validator(mode="after")
    def _clean_has_no_difference_of_ours(self) -> Self:
        if self.clean and any(d.get("ours", True) for d in self.differences):
            raise ValueError("a clean proof lists a difference of ours")
        return self


class ArmRecord(Model):
    id: int
    experiment_id: int
    number: int = Field(ge=1, description="counts the arms of its experiment, in order of launching")
    kind: ArmKind
    changes: tuple[Facts, ...] = ()
    started_at: Timestamp
    ended_at: Timestamp | None = None
    proof: RevertProof | None = None
    launches: tuple[LaunchRecord, ...] = ()


class ExperimentRecord(Model):
    """One hypothesis on one host in one context. `hypothesis_id` None: the baseline alone was measured."""

    id: int
    run_id: int
    campaign: str
    host: str
    context: str
    hypothesis_id: str | None = None
    changes: tuple[Facts, ...] = ()
    fingerprint_id: int | None = None
    state: ExperimentState = "running"
    phase: str = Field("", description="where in its life it is, or was when it ended")
    verdict: Verdict | None = None
    cause: str | None = None
    started_at: Timestamp
    ended_at: Timestamp | None = None
    arms: tuple[ArmRecord, ...] = ()

    @property
    def is_proved_reverted(self) -> bool:
        """Every arm that changed something has a clean proof. True where nothing was changed."""
        return all(a.proof is not None and a.proof.clean for a in self.arms if a.changes)

    def __repr__(self) -> str:
        doing = self.verdict or self.phase or self.state
        return f"<Experiment #{self.id} {self.hypothesis_id or 'baseline'} {doing} on {self.host}>"


class Conclusion(Model):
    """What statistics or diagnosis said of one hypothesis. `closes` makes it a dead end until a fact changes."""

    verdict: Verdict
    summary: str = Field("", description="one sentence for people")
    metric: str = "output_tps"
    direction: Direction = "higher"
    effect: float | None = None
    low: float | None = Field(None, description="lower end of the interval of the effect")
    high: float | None = None
    confidence: float | None = Field(None, gt=0, lt=1)
    baseline: float | None = Field(None, description="centre of the baseline, in the metric's unit")
    treatment: float | None = None
    baseline_launches: int = Field(0, ge=0)
    treatment_launches: int = Field(0, ge=0)
    cause: str | None = None
    evidence: tuple[str, ...] = ()
    closes: bool = False
    depends_on: dict[str, str] = Field(
        default_factory=dict, description="fact → its value when this was found; a change reopens the hypothesis"
    )

    @model_validator(mode="after")
    def _effect_fits_the_verdict(self) -> Self:
        problem = effect_problem(self.verdict, self.effect, self.low, self.high)
        if problem:
            raise ValueError(problem)
        return self


def effect_problem(verdict: Verdict, effect: float | None, low: float | None, high: float | None) -> str | None:
    """Why this effect cannot stand beside this verdict, or None."""
    if not verdict.is_measured:
        return None if effect is None else f"{verdict} carries an effect of {effect}"
    if effect is None:
        return None if verdict is Verdict.inconclusive else f"{verdict} has no effect"
    if low is not None and high is not None and not low <= effect <= high:
        return f"effect {effect} lies outside its interval {low} to {high}"
    if (verdict is Verdict.improved and effect <= 0) or (verdict is Verdict.regressed and effect >= 0):
        return f"{verdict} with an effect of {effect}"
    return None


class FindingRecord(Conclusion):
    id: int
    experiment_id: int
    campaign: str
    host: str
    context: str
    hypothesis_id: str | None = None
    family: str = ""
    created_at: Timestamp
    reopened_at: Timestamp | None = None
    reopened_because: str | None = None

    @property
    def is_dead_end(self) -> bool:
        return self.closes and self.reopened_at is None


class DecisionRecord(Model):
    id: int
    campaign: str
    text: str
    author: str = ""
    finding_ids: tuple[int, ...] = ()
    created_at: Timestamp


class InsightRecord(DecisionRecord):
    """What was understood, where a decision is what will be done about it."""


class FingerprintRecord(Model):
    """The facts of a host: GPU, driver, boot id, package versions, source digest, limits."""

    id: int
    host: str
    digest: str
    facts: Facts
    first_seen: Timestamp
    last_seen: Timestamp


class ArtifactRecord(Model):
    """A file kept beside the ledger. `pruned_at` set: the bytes are gone, the digest stays."""

    id: int
    kind: str = Field(description="found, patched, log, report or another word")
    name: str
    sha256: str
    size: int = Field(ge=0, description="bytes before compression")
    stored_size: int = Field(ge=0)
    path: str = Field(description="below the artifact folder")
    keep: Literal["always", "until_reverted", "until_old"]
    experiment_id: int | None = None
    launch_id: int | None = None
    created_at: Timestamp
    pruned_at: Timestamp | None = None


class EventRecord(Model):
    """One line of the trail. `settles` is the seq of the intent that an outcome answers."""

    seq: int
    at: Timestamp
    kind: EventKind
    phase: str
    run_id: int | None = None
    experiment_id: int | None = None
    host: str | None = None
    settles: int | None = None
    outcome: str | None = None
    data: Facts = Field(default_factory=dict)


class Intent(EventRecord):
    """What is about to be done, committed before it is."""

    kind: EventKind = "intent"


class TodoRow(Model):
    """A hypothesis and where it stands. `hypothesis` is its playbook row, secrets masked."""

    number: int
    campaign: str
    id: str
    status: TodoStatus = "open"
    origin: TodoOrigin = "playbook"
    parent: str | None = Field(None, description="the bundle it was isolated from, or the row it was combined into")
    family: str = ""
    expect: float | None = None
    rank: float | None = None
    reason: str = Field("", description="why it has this rank or status")
    pin: float | None = Field(None, description="gain × odds by a person's word, in per cent")
    decision_id: int | None = Field(None, description="the decision that says why it was ranked by hand")
    hypothesis: Facts
    added_at: Timestamp

    def as_hypothesis(self) -> Hypothesis:
        return Hypothesis.model_validate(self.hypothesis)


CONTINUES = "continues"
"""Option of a run that goes on where an earlier one ended: that run's number."""


class RunRecord(Model):
    """One process working through a campaign on one host."""

    id: int
    campaign: str
    host: str
    playbook_digest: str
    playbook_text: str = ""
    pid: int | None = None
    options: Facts = Field(default_factory=dict)
    state: RunState = "running"
    started_at: Timestamp
    ended_at: Timestamp | None = None


class CampaignRecord(Model):
    name: str
    description: str = ""
    measure: Facts = Field(default_factory=dict)
    created_at: Timestamp


class HostRecord(Model):
    """A host and whether it may take work. Quarantined: its cleanliness is not proved. Kept: proved to be on a
    configuration that a campaign has left there; `kept` says which, also while it is quarantined."""

    name: str
    state: HostState = "clean"
    reason: str = ""
    since: Timestamp
    kept: str | None = None


@dataclass(frozen=True)
class CampaignView:
    """Everything a report says of one campaign. The long parts are iterables that read page by page, each time anew."""

    campaign: CampaignRecord
    exported_at: Timestamp
    runs: Sequence[RunRecord]
    todo: Sequence[TodoRow]
    findings: Sequence[FindingRecord]
    decisions: Sequence[DecisionRecord]
    insights: Sequence[InsightRecord]
    fingerprints: Sequence[FingerprintRecord]
    experiments: Iterable[ExperimentRecord]
    events: Iterable[EventRecord]
    artifacts: Callable[[int], Sequence[ArtifactRecord]]  # experiment id → its files
    content: Callable[[int], bytes | None] = lambda _: None  # artifact id → its bytes, None when they are gone

    def selection(self, hypothesis_ids: Collection[str]) -> CampaignView:
        """These hypotheses, their findings and experiments, baselines that ran alone, and what rests on them."""
        chosen = frozenset(hypothesis_ids)
        findings = [f for f in self.findings if f.hypothesis_id in chosen]
        kept = {f.id for f in findings}
        return replace(
            self,
            todo=[row for row in self.todo if row.id in chosen],
            findings=findings,
            decisions=[d for d in self.decisions if not d.finding_ids or kept & set(d.finding_ids)],
            insights=[i for i in self.insights if not i.finding_ids or kept & set(i.finding_ids)],
            experiments=_Chosen(self.experiments, lambda e: e.hypothesis_id is None or e.hypothesis_id in chosen),
        )


@dataclass(frozen=True)
class _Chosen:
    """Those of the experiments that are wanted, read anew each time."""

    experiments: Iterable[ExperimentRecord]
    is_wanted: Callable[[ExperimentRecord], bool]

    def __iter__(self) -> Iterator[ExperimentRecord]:
        return filter(self.is_wanted, self.experiments)
