"""The launches of one run on an open host: arms, the known-good configuration of each context, and its drift."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot, sqrt
from typing import TYPE_CHECKING, Any

from orchestrator.controller import lastgood
from orchestrator.controller.arm import Arm, ArmResult
from orchestrator.controller.resume import DRIFT, Past
from orchestrator.controller.treatment import Treatment, untouched
from orchestrator.core.diagnosis import may_pass
from orchestrator.core.lifecycle import ArmStep
from orchestrator.core.noise import STORED_DF, Drift, Noise, detect_drift, learn_noise, lend
from orchestrator.core.records import LaunchOutcome, Verdict
from orchestrator.core.stats import LaunchValue
from orchestrator.errors import Dirty, Interrupted, OrchestratorError, Refused
from orchestrator.serving.configuration import baseline_configuration
from orchestrator.serving.metrics import doubt_cv

if TYPE_CHECKING:
    from orchestrator.controller.book import ArmBook, Book
    from orchestrator.controller.session import HostSession
    from orchestrator.controller.spending import Spender
    from orchestrator.core.model import Measure, Playbook, Workload
    from orchestrator.core.records import ArmKind, ExperimentRecord, ExperimentState

PRIOR_CV = 0.03
"""Noise between launches that is assumed until it is measured; never less than what the repetitions of one
launch leave open of its value."""

Changes = Sequence[Mapping[str, Any]]
"""Changes of a hypothesis as the ledger keeps them."""


@dataclass
class Baseline:
    """What is known of the known-good configuration in one context. `level`: index of the first launch of the present
    level; `experiments`: those with a treatment since it was last measured."""

    results: list[ArmResult] = field(default_factory=list)
    is_stale: bool = True
    level: int = 0
    experiments: int = 0

    @property
    def current(self) -> list[ArmResult]:
        """Launches since it last drifted."""
        return self.results[self.level :]

    @property
    def capacity(self) -> int | None:
        """Tokens that the cache of its first launch held: what every later launch is held against."""
        return next((r.capacity for r in self.results if r.capacity is not None), None)

    def values(self) -> list[LaunchValue]:
        return values_of(self.current)


class Launcher:
    """Carries out arms and baselines, and writes them down. The host is open, recovered and snapshotted."""

    def __init__(
        self,
        session: HostSession,
        book: Book,
        playbook: Playbook,
        *,
        fingerprint_id: int,
        spender: Spender,
        mask: Callable[[Any], Any],
    ) -> None:
        self.session = session
        self.book = book
        self.playbook = playbook
        self._fingerprint_id = fingerprint_id
        self._spender = spender
        self._mask = mask
        self.baselines = {name: Baseline() for name in playbook.contexts}
        self.past = Past()

    # ---------------------------------------------------------------- experiments

    def start(self, hypothesis_id: str | None, context: str, changes: Changes) -> ExperimentRecord:
        return self.book.ledger.start_experiment(
            self.book.run_id,
            hypothesis_id,
            self.session.name,
            context,
            changes=changes,
            fingerprint_id=self._fingerprint_id,
        )

    def resumed(
        self, hypothesis_id: str | None, context: str, changes: Changes
    ) -> tuple[ExperimentRecord | None, list[ArmResult]]:
        """The experiment that was under way for just this when its run was cut off, where its row can be gone on with,
        and the launches of its treatment; given out once."""
        found = self.past.experiment
        if found is None or (found.hypothesis_id, found.context) != (hypothesis_id, context):
            return None, []
        if list(found.changes) != self._mask(list(changes)):
            return None, []
        self.past.experiment = None
        return (found if self.past.goes_on else None), self.past.measured

    def break_off(self, experiment: ExperimentRecord, error: OrchestratorError) -> None:
        state: ExperimentState = "quarantined" if isinstance(error, Dirty) else "aborted"
        self.book.ledger.end_experiment(experiment.id, state, Verdict.aborted, cause=error.what)

    def count_experiment(self) -> None:
        """An experiment with a treatment has come to its end."""
        for baseline in self.baselines.values():
            baseline.experiments += 1

    def fail(self) -> None:
        """A treatment failed: what was known-good is measured again before anything is held against it."""
        for baseline in self.baselines.values():
            baseline.is_stale = True

    # ---------------------------------------------------------------- the baseline

    def refresh(self, context: str) -> None:
        """Measure the baseline of a context where it is due, and hold it against what it was before.

        Raises `Refused` when it has drifted beyond its noise and stays there when it is launched once more."""
        baseline = self.baselines[context]
        if baseline.is_stale or baseline.experiments >= self.playbook.recheck_every:
            before = [v.value for v in baseline.values()]
            self.measure_baseline(context)
            self._watch_drift(context, before)

    def confirm_baselines(self) -> None:
        """After a failure the known-good configuration is measured again, not assumed."""
        for context, baseline in self.baselines.items():
            if baseline.is_stale and baseline.results:
                self.refresh(context)

    def measure_baseline(self, context: str, experiment: ExperimentRecord | None = None) -> None:
        """One launch of the known-good configuration, in an experiment of its own unless one is given."""
        own = experiment is None
        within = experiment if experiment is not None else self.start(None, context, [])
        session = self.session
        configuration = baseline_configuration(session.target, self.playbook.contexts[context])
        try:
            untreated = untouched(configuration, session.layout)
            result = self.run_arm(within, "baseline", context, untreated, [])
            if not result.is_measured and self._may_pass(result):
                session.narrator.warn(f"#{within.id} baseline ({context}): {result.reason}; it is launched once more")
                result = self.run_arm(within, "baseline", context, untreated, [])
            if not result.is_measured:
                raise self._does_not_serve(within, result)
        except OrchestratorError as error:
            if own:
                self.break_off(within, error)
            raise
        if own:
            self.book.ledger.end_experiment(within.id, "done", None)
        self.take_baseline(context, within, result)

    @staticmethod
    def _may_pass(result: ArmResult) -> bool:
        return result.outcome is LaunchOutcome.stranger or may_pass(result.diagnosis)

    def _does_not_serve(self, within: ExperimentRecord, result: ArmResult) -> Refused:
        diagnosis = result.diagnosis
        facts = {"experiment": f"#{within.id}", "outcome": str(result.outcome)}
        if diagnosis is not None and diagnosis.remedy:
            facts["category"], facts["remedy"] = diagnosis.category, diagnosis.remedy
        since_good = self.since_last_good(within, result)
        if since_good:
            facts["differs"] = "; ".join(since_good)
            self.book.ledger.note("since_last_good", {"said": since_good}, experiment_id=within.id)
        what = f"the baseline of {self.session.name} does not serve in context {within.context}: {result.reason}"
        return Refused(what, facts=facts, hint=f"orchestrator experiment show {within.id}")

    def since_last_good(
        self, experiment: ExperimentRecord, result: ArmResult, treated: Collection[str] = ()
    ) -> list[str]:
        """What is not as it was when the baseline last served, in this run or before it; the treatment's own variables
        left out. Nothing for a launch whose log was not asked for a cause."""
        if result.diagnosis is None:
            return []
        environment = result.seen.get(lastgood.KEY, {})
        known = self.baselines[experiment.context].results
        if known:
            good = lastgood.Good("in this run", environment=known[-1].seen.get(lastgood.KEY, {}))
            return lastgood.since(good, lastgood.Good("now", environment=environment), treated=treated)
        ledger, host = self.book.ledger, self.session.name
        before = lastgood.last_good(ledger, host, experiment.context, before=experiment.id)
        if before is None:
            return [f"no baseline was ever measured on {host} in context {experiment.context}"]
        facts = lastgood.facts_of(ledger, host, self._fingerprint_id)
        return lastgood.since(before, lastgood.Good("now", facts, self._mask(environment)), treated=treated)

    def take_baseline(self, context: str, within: ExperimentRecord, result: ArmResult) -> None:
        baseline = self.baselines[context]
        baseline.results.append(result)
        baseline.is_stale, baseline.experiments = False, 0
        self.session.narrator.note(
            f"#{within.id} baseline ({context}): {result.value:.2f} {self.playbook.measure.metric}"
        )

    def baseline_value(self, context: str) -> float | None:
        values = self.baselines[context].values()
        return sum(v.value for v in values) / len(values) if values else None

    def _watch_drift(self, context: str, before: Sequence[float]) -> None:
        if not before or not self._drift(context, before).has_drifted:
            return
        self.session.narrator.warn(f"{context}: {self._drift(context, before).sentence}; it is measured once more")
        self.measure_baseline(context)
        drift = self._drift(context, before)
        baseline = self.baselines[context]
        if not drift.has_drifted:
            return
        baseline.level = len(baseline.results) - 2
        facts = {"context": context, "level": baseline.level, "change": drift.change, "allowed": drift.allowed}
        self.book.ledger.note(DRIFT, facts, host=self.session.name, run_id=self.book.run_id)
        raise Refused(
            f"{self.session.name} ({context}): {drift.sentence}",
            facts={"before": f"{len(before)} launch(es)", "now": "2 launches"},
            hint="run --resume goes on, against the baseline as it is now",
        )

    def _drift(self, context: str, before: Sequence[float]) -> Drift:
        now = [v.value for v in self.baselines[context].values()][len(before) :]
        stated_cv = self.prior_cv(context)
        lent = lend(self.stored_noise(context), stated_cv)
        noise = Noise(lent.cv, min(lent.df, STORED_DF))
        return detect_drift(before, now, stored=noise, stated_cv=stated_cv)

    def prior_cv(self, context: str, results: Sequence[ArmResult] = ()) -> float:
        """The stated noise between launches, or what a launch of either arm leaves open of its own value where that is
        more: of all launches of an arm together, since the largest of many would only grow."""
        metric = self.playbook.measure.metric
        arms = [[doubt_cv(r.samples, metric) for r in arm] for arm in (self.baselines[context].current, results)]
        return max([PRIOR_CV, *(hypot(*doubts) / sqrt(len(doubts)) for doubts in arms if doubts)])

    def stored_noise(self, context: str) -> Noise | None:
        """Between launches of the baseline, from earlier runs on this host in this context. A run is one group: what
        lies between two runs is another day."""
        ledger, campaign = self.book.ledger, self.playbook.campaign
        rows = ledger.experiments(campaign, host=self.session.name, context=context)
        run_of = {str(row.id): row.run_id for row in rows}
        groups: dict[int, list[float]] = {}
        for launch in ledger.launches(host=self.session.name, campaign=campaign, context=context, kind="baseline"):
            value, experiment = launch.facts.get("value"), launch.launch_id.rsplit("-", 2)[1]
            run = run_of.get(experiment)
            if isinstance(value, float) and run is not None and run not in self.past.runs | {self.book.run_id}:
                groups.setdefault(run, []).append(value)
        return learn_noise(groups.values())

    # ---------------------------------------------------------------- arms

    def run_arm(
        self,
        experiment: ExperimentRecord,
        kind: ArmKind,
        context: str,
        treatment: Treatment,
        changes: Changes,
        measure: Measure | None = None,
    ) -> ArmResult:
        """Raises `Spent` where the budget does not allow another launch."""
        self._spender.allow(self.session)
        return self.walk(self.book.arm(experiment, kind, changes), kind, context, treatment, measure=measure)

    def walk(
        self,
        book: ArmBook,
        kind: ArmKind,
        context: str,
        treatment: Treatment,
        *,
        adopted: bool = False,
        measure: Measure | None = None,
    ) -> ArmResult:
        """Raises `Dirty` when the host is not proved clean after it, `Interrupted` when a person asked to stop."""
        baseline = self.baselines[context]
        answers = [r.answers for r in baseline.results if r.answers is not None]
        arm = Arm(
            self.session,
            treatment,
            book,
            workload=self.workload(context),
            measure=measure or self.playbook.measure,
            baseline_answers=answers if kind == "treatment" else (),
            baseline_capacity=baseline.capacity,
            guardrails=self.playbook.guardrails,
            gate=self.playbook.gate,
            baseline_scores=[r.score for r in baseline.results if r.score is not None] if kind == "treatment" else (),
        )
        started = self.session.clock.monotonic()
        result = arm.run(adopted=adopted)
        self._spender.count(self.session.clock.monotonic() - started)
        if result.end is ArmStep.QUARANTINED:
            raise _as_dirty(result, self.session.name)
        if self.session.interrupts.requested or isinstance(result.error, Interrupted):
            raise Interrupted("stopped on request")
        if result.error is not None and result.outcome is LaunchOutcome.aborted:
            raise result.error
        return result

    def workload(self, context: str) -> Workload:
        return self.playbook.contexts[context].workload or self.playbook.workload


def values_of(results: Sequence[ArmResult]) -> list[LaunchValue]:
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
