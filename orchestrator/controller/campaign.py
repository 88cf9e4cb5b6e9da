"""The hypotheses of one campaign on one open host: baseline, treatment, verdict, finding, next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.controller.arm import Arm, ArmResult
from orchestrator.controller.book import ArmBook
from orchestrator.controller.conclude import conclude_failure, conclude_measured, conclude_not_applicable
from orchestrator.controller.resume import Adoptable, Past
from orchestrator.controller.treatment import Treatment, untouched
from orchestrator.core import planning
from orchestrator.core.lifecycle import ArmStep
from orchestrator.core.noise import Noise, learn_noise
from orchestrator.core.records import LaunchOutcome, Verdict
from orchestrator.core.stats import LaunchValue, judge
from orchestrator.errors import Dirty, Interrupted, OrchestratorError, Refused
from orchestrator.serving.configuration import baseline_configuration
from orchestrator.serving.metrics import totals_differ, within_cv

if TYPE_CHECKING:
    from orchestrator.controller.book import Book
    from orchestrator.controller.session import HostSession
    from orchestrator.core.model import Context, Hypothesis, Playbook, Workload
    from orchestrator.core.records import (
        ArmKind,
        Conclusion,
        ExperimentRecord,
        ExperimentState,
        FindingRecord,
        TodoStatus,
    )


PRIOR_CV = 0.03
"""Noise between launches that is assumed until it is measured; never less than what one launch shows within itself."""


@dataclass(frozen=True)
class Trial:
    """One hypothesis in one context, ready to be carried out. `unmet`: why it is not applicable, or None."""

    hypothesis: Hypothesis
    context: str
    treatment: Treatment | None
    unmet: str | None = None


@dataclass
class _Baseline:
    """What is known of the known-good configuration in one context during this run."""

    results: list[ArmResult] = field(default_factory=list)
    is_stale: bool = True

    @property
    def capacity(self) -> int | None:
        """Tokens that the cache of its first launch held: what every later launch is held against."""
        return next((r.capacity for r in self.results if r.capacity is not None), None)

    def values(self) -> list[LaunchValue]:
        return _values(self.results)


class CampaignRun:
    """Carries trials out in the order given. The host is open, recovered and snapshotted."""

    def __init__(
        self, session: HostSession, book: Book, playbook: Playbook, *, fingerprint_id: int, facts: Mapping[str, str]
    ) -> None:
        self._session = session
        self._book = book
        self._playbook = playbook
        self._fingerprint_id = fingerprint_id
        self._facts = facts
        self._baselines = {name: _Baseline() for name in playbook.contexts}
        self._past = Past()
        self.findings: list[FindingRecord] = []

    # ---------------------------------------------------------------- trials

    def carry_out(self, trials: Iterable[Trial]) -> None:
        """Raises `Dirty`, `Interrupted`, or `Refused` when the baseline itself does not serve."""
        for trial in trials:
            self._session.interrupts.check()
            self.findings.append(self._carry_out(trial))
        self.confirm_baselines()

    def go_on(self, past: Past, adoptable: Adoptable | None) -> None:
        """Take in what a run that was cut off has measured, and finish the launch it left. The files are as found
        afterwards."""
        for context, results in past.results.items():
            if context in self._baselines:
                self._baselines[context].results = results
                self._baselines[context].is_stale = context in past.stale
        self._past = past
        past.goes_on = adoptable is not None
        if adoptable is None:
            self._book.ledger.abort_open(self._book.run_id, "its controller ended without a word")
            return
        left = adoptable.left
        book = ArmBook(self._book, left.experiment, left.arm)
        book.go_on(left.launch)
        result = self._walk(book, left.arm.kind, left.experiment.context, adoptable.treatment, adopted=True)
        if left.arm.kind == "treatment":
            past.measured.append(result)
        elif result.is_measured:
            self._take_baseline(left.experiment.context, left.experiment, result)
        if left.experiment.hypothesis_id is None:
            verdict = None if result.is_measured else Verdict.aborted
            state: ExperimentState = "done" if result.is_measured else "aborted"
            self._book.ledger.end_experiment(left.experiment.id, state, verdict, cause=result.reason or None)
            past.experiment = None

    def _resumed(self, trial: Trial) -> tuple[ExperimentRecord | None, list[ArmResult]]:
        """The experiment that was under way for this trial, and its launches; given out once."""
        experiment = self._past.experiment
        if experiment is None or (experiment.hypothesis_id, experiment.context) != (trial.hypothesis.id, trial.context):
            return None, []
        self._past.experiment = None
        return (experiment if self._past.goes_on else None), self._past.measured

    def measure_baselines(self) -> None:
        """Only the known-good configuration, in every context."""
        for context in self._playbook.contexts:
            self._measure_baseline(context)

    def confirm_baselines(self) -> None:
        """After a failure the known-good configuration is measured again, not assumed."""
        for context, baseline in self._baselines.items():
            if baseline.is_stale and baseline.results:
                self._measure_baseline(context)

    def baseline_value(self, context: str) -> float | None:
        values = self._baselines[context].values()
        return sum(v.value for v in values) / len(values) if values else None

    def _carry_out(self, trial: Trial) -> FindingRecord:
        hypothesis, context = trial.hypothesis, trial.context
        resumed, recorded = self._resumed(trial)
        if trial.treatment is not None and self._baselines[context].is_stale:
            self._measure_baseline(context)
        changes = [c.model_dump(mode="json", by_alias=True, exclude_unset=True) for c in hypothesis.changes]
        experiment = resumed or self._start(hypothesis.id, context, changes)
        try:
            if trial.treatment is None:
                conclusion = conclude_not_applicable(hypothesis, trial.unmet or "", self._facts)
            else:
                remarks = trial.treatment.remarks
                for remark in remarks:
                    self._session.narrator.warn(f"{hypothesis.id}: {remark}")
                conclusion = self._judge(experiment, trial, trial.treatment, changes, recorded)
                conclusion = conclusion.model_copy(update={"evidence": (*conclusion.evidence, *remarks)})
        except OrchestratorError as error:
            self._break_off(experiment, error)
            raise
        return self._record(experiment, conclusion)

    def _start(self, hypothesis_id: str | None, context: str, changes: Sequence[Mapping[str, Any]]) -> ExperimentRecord:
        return self._book.ledger.start_experiment(
            self._book.run_id,
            hypothesis_id,
            self._session.name,
            context,
            changes=changes,
            fingerprint_id=self._fingerprint_id,
        )

    def _break_off(self, experiment: ExperimentRecord, error: OrchestratorError) -> None:
        state: ExperimentState = "quarantined" if isinstance(error, Dirty) else "aborted"
        self._book.ledger.end_experiment(experiment.id, state, Verdict.aborted, cause=error.what)

    def _record(self, experiment: ExperimentRecord, conclusion: Conclusion) -> FindingRecord:
        ledger = self._book.ledger
        with ledger.batch():
            finding = ledger.add_finding(experiment.id, conclusion)
            ledger.end_experiment(experiment.id, "done", conclusion.verdict, cause=conclusion.cause)
            if experiment.hypothesis_id is not None:
                status: TodoStatus = "open" if conclusion.verdict in planning.OPEN_VERDICTS else "done"
                ledger.set_status(self._playbook.campaign, experiment.hypothesis_id, status, conclusion.summary)
        self._session.narrator.note(
            f"#{experiment.id} {experiment.hypothesis_id} ({experiment.context}): {conclusion.summary}"
        )
        return finding

    # ---------------------------------------------------------------- verdicts

    def _judge(
        self,
        experiment: ExperimentRecord,
        trial: Trial,
        treatment: Treatment,
        changes: Sequence[Mapping[str, Any]],
        recorded: list[ArmResult],
    ) -> Conclusion:
        """`recorded`: launches of this experiment that an earlier process carried out; they are not done again."""
        measure, baseline = self._playbook.measure, self._baselines[trial.context]
        results: list[ArmResult] = []
        while True:
            if recorded:
                result = recorded.pop(0)
            else:
                result = self._run_arm(experiment, "treatment", trial.context, treatment, changes)
            if not result.is_measured:
                for known in self._baselines.values():
                    known.is_stale = True
                return conclude_failure(trial.hypothesis, result, self._facts)
            results.append(result)
            unequal = totals_differ(baseline.results[-1].samples, result.samples)
            if unequal is not None:
                result.outcome, result.reason = LaunchOutcome.invalid, unequal
                return conclude_failure(trial.hypothesis, result, self._facts)
            judgement = judge(
                baseline.values(),
                _values(results),
                direction=measure.direction,
                min_effect=measure.min_effect,
                max_launches=measure.launches,
                stored=self._stored_noise(trial.context),
                prior_between_cv=max(
                    PRIOR_CV, *(within_cv(r.samples, measure.metric) for r in (*baseline.results, *results))
                ),
            )
            if not judgement.needs_more:
                launches = len(baseline.results), len(results)
                return conclude_measured(trial.hypothesis, judgement, measure, launches, result, self._facts)
            if len(baseline.results) <= len(results):
                self._measure_baseline(trial.context, experiment)

    def _stored_noise(self, context: str) -> Noise | None:
        """Between launches of the baseline, from earlier runs on this host in this context. A run is one group: what
        lies between two runs is another day."""
        groups: dict[str, list[float]] = {}
        for launch in self._book.ledger.launches(
            host=self._session.name, campaign=self._playbook.campaign, context=context, kind="baseline"
        ):
            value, run = launch.facts.get("value"), launch.launch_id.rsplit("-", 2)[0]
            if isinstance(value, float) and run != self._book.name_prefix:
                groups.setdefault(run, []).append(value)
        return learn_noise(groups.values())

    def _measure_baseline(self, context: str, experiment: ExperimentRecord | None = None) -> None:
        """One launch of the known-good configuration, in an experiment of its own unless one is given."""
        own = experiment is None
        within = experiment if experiment is not None else self._start(None, context, [])
        session = self._session
        configuration = baseline_configuration(session.target, self._context(context))
        try:
            result = self._run_arm(within, "baseline", context, untouched(configuration, session.layout), [])
            if not result.is_measured:
                raise Refused(
                    f"the baseline of {session.name} does not serve in context {context}: {result.reason}",
                    facts={"experiment": f"#{within.id}", "outcome": str(result.outcome)},
                    hint=f"orchestrator experiment show {within.id}",
                )
        except OrchestratorError as error:
            if own:
                self._break_off(within, error)
            raise
        if own:
            self._book.ledger.end_experiment(within.id, "done", None)
        self._take_baseline(context, within, result)

    def _take_baseline(self, context: str, within: ExperimentRecord, result: ArmResult) -> None:
        self._baselines[context].results.append(result)
        self._baselines[context].is_stale = False
        self._session.narrator.note(
            f"#{within.id} baseline ({context}): {result.value:.2f} {self._playbook.measure.metric}"
        )

    def _run_arm(
        self,
        experiment: ExperimentRecord,
        kind: ArmKind,
        context: str,
        treatment: Treatment,
        changes: Sequence[Mapping[str, Any]],
    ) -> ArmResult:
        return self._walk(self._book.arm(experiment, kind, changes), kind, context, treatment)

    def _walk(
        self, book: ArmBook, kind: ArmKind, context: str, treatment: Treatment, *, adopted: bool = False
    ) -> ArmResult:
        """Raises `Dirty` when the host is not proved clean after it, `Interrupted` when a person asked to stop."""
        answers = [r.answers for r in self._baselines[context].results if r.answers is not None]
        arm = Arm(
            self._session,
            treatment,
            book,
            workload=self._workload(context),
            measure=self._playbook.measure,
            baseline_answers=answers if kind == "treatment" else (),
            baseline_capacity=self._baselines[context].capacity,
        )
        result = arm.run(adopted=adopted)
        if result.end is ArmStep.QUARANTINED:
            raise _as_dirty(result, self._session.name)
        if self._session.interrupts.requested or isinstance(result.error, Interrupted):
            raise Interrupted("stopped on request")
        if result.error is not None and result.outcome is LaunchOutcome.aborted:
            raise result.error
        return result

    def _context(self, name: str) -> Context:
        return self._playbook.contexts[name]

    def _workload(self, context: str) -> Workload:
        return self._context(context).workload or self._playbook.workload


def _values(results: Sequence[ArmResult]) -> list[LaunchValue]:
    return [LaunchValue(r.value, at_s=r.measured_at) for r in results if r.value is not None]


def _as_dirty(result: ArmResult, host: str) -> Dirty:
    error = result.error
    if isinstance(error, Dirty):
        return error
    return Dirty(
        f"{host} is not proved clean",
        facts={"cause": error.what if error else result.reason},
        hint=f"orchestrator host recover {host}",
    )
