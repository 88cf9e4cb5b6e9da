"""The hypotheses of one campaign on one open host: what is due, its verdict, its finding, next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.controller.book import ArmBook
from orchestrator.controller.conclude import conclude_not_applicable
from orchestrator.controller.judging import judge_treatment
from orchestrator.controller.resume import Adoptable, Past
from orchestrator.controller.treatment import Treatment
from orchestrator.core import planning
from orchestrator.core.records import Verdict
from orchestrator.errors import OrchestratorError

if TYPE_CHECKING:
    from orchestrator.controller.launcher import Launcher
    from orchestrator.core.model import Hypothesis
    from orchestrator.core.records import Conclusion, ExperimentRecord, ExperimentState, FindingRecord, TodoStatus


@dataclass(frozen=True)
class Trial:
    """One hypothesis in one context, ready to be carried out. `unmet`: why it is not applicable, or None."""

    hypothesis: Hypothesis
    context: str
    treatment: Treatment | None
    unmet: str | None = None


class CampaignRun:
    """Carries trials out in the order given. The host is open, recovered and snapshotted."""

    def __init__(self, launcher: Launcher, *, facts: Mapping[str, str]) -> None:
        self.launcher = launcher
        self.facts = facts
        self.findings: list[FindingRecord] = []

    def carry_out(self, trials: Iterable[Trial]) -> None:
        """Raises `Dirty`, `Interrupted`, `OutOfBudget`, or `Refused` when the baseline does not serve or drifts."""
        for trial in trials:
            self.launcher.session.interrupts.check()
            self.judge(trial)

    def measure_baselines(self, launches: int = 1) -> None:
        """Only the known-good configuration, so many times in a row in every context."""
        for context in self.launcher.playbook.contexts:
            for _ in range(launches):
                self.launcher.measure_baseline(context)

    def judge(self, trial: Trial, *, in_full: bool = False) -> FindingRecord:
        """One experiment, from the baseline to the finding."""
        launcher, hypothesis, context = self.launcher, trial.hypothesis, trial.context
        changes = as_kept(hypothesis)
        resumed, recorded = launcher.resumed(hypothesis.id, context, changes)
        if trial.treatment is not None and not recorded:
            launcher.refresh(context)
        experiment = resumed or launcher.start(hypothesis.id, context, changes)
        try:
            if trial.treatment is None:
                conclusion = conclude_not_applicable(hypothesis, trial.unmet or "", self.facts)
            else:
                for remark in trial.treatment.remarks:
                    launcher.session.narrator.warn(f"{hypothesis.id}: {remark}")
                conclusion = judge_treatment(
                    launcher,
                    experiment,
                    hypothesis,
                    trial.treatment,
                    changes,
                    self.facts,
                    recorded=recorded,
                    in_full=in_full,
                )
                evidence = (*conclusion.evidence, *trial.treatment.remarks)
                conclusion = conclusion.model_copy(update={"evidence": evidence})
                launcher.count_experiment()
        except OrchestratorError as error:
            launcher.break_off(experiment, error)
            raise
        return self._record(experiment, conclusion)

    def _record(self, experiment: ExperimentRecord, conclusion: Conclusion) -> FindingRecord:
        ledger = self.launcher.book.ledger
        with ledger.batch():
            finding = ledger.add_finding(experiment.id, conclusion)
            ledger.end_experiment(experiment.id, "done", conclusion.verdict, cause=conclusion.cause)
            if experiment.hypothesis_id is not None:
                status: TodoStatus = "open" if conclusion.verdict in planning.OPEN_VERDICTS else "done"
                ledger.set_status(self.launcher.playbook.campaign, experiment.hypothesis_id, status, conclusion.summary)
        self.launcher.session.narrator.note(
            f"#{experiment.id} {experiment.hypothesis_id} ({experiment.context}): {conclusion.summary}"
        )
        self.findings.append(finding)
        return finding

    # ---------------------------------------------------------------- going on with a run that was cut off

    def go_on(self, past: Past, adoptable: Adoptable | None) -> None:
        """Take in what a run that was cut off has measured, and finish the launch it left. The files are as found
        afterwards."""
        launcher = self.launcher
        for context, baseline in launcher.baselines.items():
            if context in past.results:
                baseline.results = past.results[context]
                baseline.is_stale = context in past.stale
                baseline.experiments = past.since.get(context, 0)
                baseline.level = past.level.get(context, 0)
        launcher.past = past
        past.goes_on = adoptable is not None
        if adoptable is None:
            launcher.book.ledger.abort_open(launcher.book.run_id, "its controller ended without a word")
            return
        left = adoptable.left
        book = ArmBook(launcher.book, left.experiment, left.arm)
        book.go_on(left.launch)
        result = launcher.walk(book, left.arm.kind, left.experiment.context, adoptable.treatment, adopted=True)
        if left.arm.kind == "treatment":
            past.measured.append(result)
        elif result.is_measured:
            launcher.take_baseline(left.experiment.context, left.experiment, result)
        if left.experiment.hypothesis_id is None:
            verdict = None if result.is_measured else Verdict.aborted
            state: ExperimentState = "done" if result.is_measured else "aborted"
            launcher.book.ledger.end_experiment(left.experiment.id, state, verdict, cause=result.reason or None)
            past.experiment = None


def as_kept(hypothesis: Hypothesis) -> list[dict[str, object]]:
    """Its changes as the ledger keeps them."""
    return [c.model_dump(mode="json", by_alias=True, exclude_unset=True) for c in hypothesis.changes]
