"""The course of a run: what is due, bundles that failed, a search, and the end of the campaign."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.controller.agenda import Agenda
from orchestrator.controller.campaign import CampaignRun, Trial
from orchestrator.controller.finishing import Finishing
from orchestrator.controller.goals import GoalReport, judge_campaign
from orchestrator.controller.isolating import Isolating, pending_isolation
from orchestrator.controller.searching import Searching
from orchestrator.controller.weighing import run_probes
from orchestrator.report.best import latest

if TYPE_CHECKING:
    from orchestrator.controller.prepare import Prepared
    from orchestrator.core.model import Hypothesis
    from orchestrator.core.records import FindingRecord


class Course:
    """Of one run. Everything it decides follows from the ledger, so that a run that was cut off decides the same."""

    def __init__(self, prepared: Prepared, campaign: CampaignRun, agenda: Agenda, *, is_part: bool) -> None:
        """`is_part`: only some hypotheses were asked for; the campaign goes on after them."""
        self._prepared = prepared
        self._campaign = campaign
        self._agenda = agenda
        self._is_part = is_part
        self._launcher = campaign.launcher
        self.families: list[str] = []
        self.notes: list[str] = []
        self.returned: list[str] = []
        self.columns: dict[str, list[float | None]] = {}

    def run(self, *, wants_best: bool) -> FindingRecord | None:
        """Returns the finding on the configuration that won, where the campaign came to its end. Raises what
        `CampaignRun.carry_out` raises."""
        ledger, playbook = self._prepared.ledger, self._prepared.playbook
        due = [trial.hypothesis.id for trial in self._agenda.prepare()]
        run_probes(self._launcher.session, ledger, playbook, due, self._launcher.book.run_id)
        self._work_off()
        if playbook.search is not None and not self._is_part and not self._is_reached():
            searching = Searching(self._campaign, self._agenda, playbook.search)
            searching.run()
            self.columns = searching.columns()
        won = self.finish() if wants_best or not self._is_part else None
        self._launcher.confirm_baselines()
        return won

    def finish(self) -> FindingRecord | None:
        finishing = Finishing(self._campaign, self._agenda, self._prepared.loaded.texts)
        won = finishing.run()
        self.notes += finishing.sentences
        return won

    def goal(self) -> GoalReport | None:
        baselines = {c: [r.samples for r in b.current] for c, b in self._launcher.baselines.items() if b.results}
        return judge_campaign(self._prepared.ledger, self._prepared.playbook, self._launcher.session.name, baselines)

    # ---------------------------------------------------------------- one after the other

    def _work_off(self) -> None:
        for trial in self._trials():
            self._launcher.session.interrupts.check()
            self._campaign.judge(trial)
            self._announce()

    def _trials(self) -> Iterator[Trial]:
        """What is due, a bundle that failed taken apart before anything else is tried."""
        self._announce()
        while not self._is_reached():
            bundle = pending_isolation(self._prepared.ledger, self._hypotheses(), self._failed())
            if bundle is not None:
                hypothesis, finding = bundle
                isolating = Isolating(self._campaign, self._agenda, hypothesis, finding, self._prepared.loaded.texts)
                self.notes.append(f"{hypothesis.id} ({finding.context}): {isolating.run().sentence}")
                self.returned += isolating.returned
                continue
            trial = self._agenda.next()
            if trial is None:
                return
            yield trial

    def _failed(self) -> list[FindingRecord]:
        """Findings of this run, and of those it continues, that still stand."""
        return latest(self._agenda.findings_of_run())

    def _hypotheses(self) -> dict[str, Hypothesis]:
        return {h.id: h for h in self._prepared.playbook.hypotheses}

    def _is_reached(self) -> bool:
        """The goal ends the campaign; wins that were only screened are measured in full before that is believed."""
        goal = self.goal()
        if self._is_part or goal is None or not goal.is_reached:
            return False
        if goal.rests_on:
            Finishing(self._campaign, self._agenda, self._prepared.loaded.texts).confirm_wins()
            goal = self.goal()
        return goal is not None and bool(goal.is_reached)

    def _announce(self) -> None:
        for sentence in self._agenda.announce():
            self._launcher.session.narrator.note(sentence)
            self.families.append(sentence)
