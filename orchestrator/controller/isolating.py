"""A bundle that failed is taken apart: which of its members make it fail, and which only stood beside them.

Each question is an experiment row of its own, with an event that names its members; each answer is an event too. A run
that was cut off goes on with the question it was at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.controller.arm import ArmResult
from orchestrator.controller.campaign import CampaignRun, as_kept
from orchestrator.controller.conclude import conclude_failure
from orchestrator.controller.judging import judge_treatment
from orchestrator.controller.members import Member, members_of, some_of
from orchestrator.core.isolation import Answer, Isolated, Isolation, Question, ask, result, tell
from orchestrator.core.records import LaunchOutcome, Verdict
from orchestrator.errors import OrchestratorError, PatchConflict

if TYPE_CHECKING:
    from orchestrator.controller.agenda import Agenda
    from orchestrator.controller.treatment import Treatment
    from orchestrator.core.model import Hypothesis
    from orchestrator.core.records import ExperimentRecord, FindingRecord, LaunchRecord
    from orchestrator.ledger import Ledger

STATE, QUESTION, ISOLATED = "isolation", "question", "isolated"
"""Phases of the events: everything asked so far; the members of one question; what came out."""

CRASH = frozenset({Verdict.crashed, Verdict.hung, Verdict.wrong_output, Verdict.not_effective})
"""A launch tells these; the others take a measurement."""

FAILED = CRASH | {Verdict.regressed}
MOST_CRASH_QUESTIONS, MOST_VERDICT_QUESTIONS = 40, 20
"""Launches that a bundle is worth; a verdict takes several of them."""

WRONG_VERDICTS = 0.02
"""Chance that one measured answer is wrong."""


@dataclass(frozen=True)
class Failure:
    """How a bundle or a part of it failed. Two failures are the same where verdict and kind of cause are."""

    verdict: Verdict
    category: str = ""
    suspects: tuple[str, ...] = ()

    def is_like(self, other: Failure) -> bool:
        return self.verdict is other.verdict and self.category == other.category


class Isolating:
    """One failed bundle. `finding` is the one that says so."""

    def __init__(
        self,
        campaign: CampaignRun,
        agenda: Agenda,
        hypothesis: Hypothesis,
        finding: FindingRecord,
        texts: Mapping[str, bytes],
    ) -> None:
        self._campaign = campaign
        self._launcher = campaign.launcher
        self._ledger: Ledger = campaign.launcher.book.ledger
        self._agenda = agenda
        self._hypothesis = hypothesis
        self._finding = finding
        self._members = members_of(hypothesis.changes, texts)
        self._failure = failure_of(self._ledger, finding)
        self.returned: list[str] = []

    def run(self) -> Isolated:
        """Ask until the culprits are known; innocent changes that were never measured alone return to the todo."""
        state = self._recall() or self._begin()
        while (question := ask(state)) is not None:
            self._launcher.session.interrupts.check()
            self._say(f"launched with {', '.join(question.members)} only ({question.why})")
            state = self._ask(state, question)
        found = result(state)
        assert found is not None
        self._conclude(found)
        return found

    # ---------------------------------------------------------------- questions

    def _begin(self) -> Isolation:
        is_crash = self._finding.verdict in CRASH
        suspected = [m.name for m in self._members if _is_suspected(m, self._failure.suspects)]
        return Isolation(
            members=tuple(m.name for m in self._members),
            oracle="crash" if is_crash else "verdict",
            suspects=tuple(suspected) if len(suspected) < len(self._members) else (),
            error_rate=0.0 if is_crash else WRONG_VERDICTS,
            limit=MOST_CRASH_QUESTIONS if is_crash else MOST_VERDICT_QUESTIONS,
        )

    def _recall(self) -> Isolation | None:
        told = [e for e in events_of(self._ledger, STATE, self._launcher.session.name) if self._is_mine(e.data)]
        return Isolation.model_validate(told[-1].data["state"]) if told else None

    def _is_mine(self, data: Mapping[str, Any]) -> bool:
        return bool(data.get("finding") == self._finding.id)

    def _ask(self, state: Isolation, question: Question) -> Isolation:
        chosen = [m for m in self._members if m.name in question.members]
        part = self._hypothesis.model_copy(
            update={"changes": some_of(self._hypothesis.changes, chosen), "marker": None}
        )
        try:
            (trial,) = self._agenda.make_ready([(part, self._finding.context)])
        except PatchConflict as error:
            self._say(f"{' with '.join(question.members)} cannot be built: {error.what}")
            return self._remember(tell(state, question.members, Answer.unresolved), None)
        if trial.treatment is None:
            return self._remember(tell(state, question.members, Answer.unresolved), None)
        experiment, recorded = self._open(part, question)
        try:
            verdict, answer, cause = self._try(experiment, part, trial.treatment, question, recorded)
        except OrchestratorError as error:
            self._launcher.break_off(experiment, error)
            raise
        self._launcher.count_experiment()
        self._say(f"#{experiment.id} {' with '.join(question.members)}: {answer} ({cause or verdict})")
        with self._ledger.batch():
            self._ledger.end_experiment(experiment.id, "done", verdict, cause=cause)
            return self._remember(tell(state, question.members, answer), experiment)

    def _open(self, part: Hypothesis, question: Question) -> tuple[ExperimentRecord, list[ArmResult]]:
        context = self._finding.context
        resumed, recorded = self._launcher.resumed(part.id, context, as_kept(part))
        if not self._is_crash and not recorded:
            self._launcher.refresh(context)
        if resumed is not None:
            return resumed, recorded
        with self._ledger.batch():
            experiment = self._launcher.start(part.id, context, as_kept(part))
            data = {"finding": self._finding.id, "members": list(question.members)}
            self._ledger.note(QUESTION, data, experiment_id=experiment.id)
            return experiment, recorded

    @property
    def _is_crash(self) -> bool:
        return self._finding.verdict in CRASH

    def _try(
        self,
        experiment: ExperimentRecord,
        part: Hypothesis,
        treatment: Treatment,
        question: Question,
        recorded: list[ArmResult],
    ) -> tuple[Verdict, Answer, str | None]:
        """One launch with a single sample where a launch tells; else a verdict of its own."""
        if not self._is_crash:
            conclusion = judge_treatment(
                self._launcher, experiment, part, treatment, as_kept(part), self._campaign.facts, recorded=recorded
            )
            return conclusion.verdict, _verdict_answer(conclusion.verdict), conclusion.summary
        if recorded:
            launched = recorded.pop(0)
        else:
            short = self._launcher.playbook.measure.model_copy(update={"repetitions": 1})
            launched = self._launcher.run_arm(
                experiment, "treatment", experiment.context, treatment, as_kept(part), measure=short
            )
        if launched.is_measured:
            return Verdict.inconclusive, Answer.passes, "came up and answered; its speed was not judged"
        self._launcher.fail()
        conclusion = conclude_failure(part, launched, self._campaign.facts)
        seen = Failure(conclusion.verdict, launched.diagnosis.category if launched.diagnosis else "")
        return conclusion.verdict, Answer.fails if seen.is_like(self._failure) else Answer.unresolved, conclusion.cause

    def _remember(self, state: Isolation, experiment: ExperimentRecord | None) -> Isolation:
        data = {"finding": self._finding.id, "state": state.model_dump(mode="json")}
        self._ledger.note(
            STATE,
            data,
            experiment_id=experiment.id if experiment else self._finding.experiment_id,
            host=self._launcher.session.name,
            run_id=self._launcher.book.run_id,
        )
        return state

    # ---------------------------------------------------------------- what came out

    def _conclude(self, found: Isolated) -> None:
        with self._ledger.batch():
            self.returned = self._return_innocent(found)
            data = {"finding": self._finding.id, **found.model_dump(mode="json"), "returned": self.returned}
            self._ledger.note(ISOLATED, data, experiment_id=self._finding.experiment_id)
        self._say(found.sentence)
        for name in self.returned:
            self._say(f"{name} was never measured alone: it is on the todo now")

    def _return_innocent(self, found: Isolated) -> list[str]:
        """Changes none of whose members is at fault, and the innocent rest of those that have a culprit."""
        innocent = [m for m in self._members if m.name in found.innocent]
        if not found.culprits or len(innocent) == len(self._members):
            return []
        returned = []
        for number in dict.fromkeys(m.change for m in innocent):
            mine = [m for m in innocent if m.change == number]
            row = alone(self._hypothesis, number, some_of(self._hypothesis.changes, mine), self._finding.context)
            if self._is_known(row):
                continue
            reason = f"only ran in {self._hypothesis.id}, which {self._finding.verdict}; never measured alone"
            self._ledger.add_todo(
                self._agenda.campaign, row, origin="isolation", parent=self._hypothesis.id, reason=reason
            )
            returned.append(row.id)
        return returned

    def _is_known(self, row: Hypothesis) -> bool:
        """A row of that name, or one that makes just these changes in that context."""
        rows = [r.as_hypothesis() for r in self._ledger.todo(self._agenda.campaign)]
        same = [r for r in rows if r.changes == row.changes and set(row.context) <= set(r.context)]
        return bool(same) or any(r.id == row.id for r in rows)

    def _say(self, text: str) -> None:
        self._launcher.session.narrator.note(f"isolating {self._hypothesis.id} ({self._finding.context}): {text}")


def alone(bundle: Hypothesis, number: int, changes: Sequence[Any], context: str) -> Hypothesis:
    """What was only ever tried in a bundle, as a hypothesis of its own. Pure."""
    named = next(((name, part) for name, part in bundle.parts.items() if part.change == number), None)
    common = {"changes": tuple(changes), "requires": bundle.requires, "revisit_when": bundle.revisit_when}
    if named is None:
        claim = f"change {number} of {bundle.id} alone: {bundle.claim}"
        body = {
            "id": f"{bundle.id[:68]}.alone-{number}",
            "claim": claim,
            "family": bundle.family,
            "context": (context,),
        }
    else:
        name, part = named
        told = part.model_dump(exclude={"change", "context"})
        body = {"id": name, **told, "context": part.context or (context,)}
        common.pop("requires")
        common.pop("revisit_when")
    return type(bundle).model_validate({**body, **common})


def pending_isolation(
    ledger: Ledger, hypotheses: Mapping[str, Hypothesis], findings: Sequence[FindingRecord]
) -> tuple[Hypothesis, FindingRecord] | None:
    """The oldest of these findings that says that a bundle failed and whose culprits are not known yet."""
    for finding in findings:
        hypothesis = hypotheses.get(finding.hypothesis_id or "")
        if hypothesis is None or not hypothesis.bundle or not hypothesis.isolate or finding.verdict not in FAILED:
            continue
        if not ledger.events(experiment_id=finding.experiment_id, phase=ISOLATED):
            return hypothesis, finding
    return None


def failure_of(ledger: Ledger, finding: FindingRecord) -> Failure:
    """How the experiment behind a finding failed, from its last launch of the treatment."""
    arms = [arm for arm in ledger.experiment(finding.experiment_id).arms if arm.kind == "treatment"]
    launches: list[LaunchRecord] = [launch for arm in arms for launch in arm.launches if launch.outcome is not None]
    told = next((x.facts.get("diagnosis") for x in reversed(launches) if x.outcome is not LaunchOutcome.lost), None)
    if not told:
        return Failure(finding.verdict)
    return Failure(finding.verdict, str(told.get("category", "")), tuple(told.get("suspects", ())))


def events_of(ledger: Ledger, phase: str, host: str) -> list[Any]:
    """All events of a phase on a host, oldest first."""
    found: list[Any] = []
    while page := ledger.events(after=found[-1].seq if found else 0, host=host, phase=phase):
        found += page
    return found


def _is_suspected(member: Member, suspects: Sequence[str]) -> bool:
    return any(suspect.rpartition(":")[2] == str(member.change) for suspect in suspects)


def _verdict_answer(verdict: Verdict) -> Answer:
    if verdict is Verdict.regressed:
        return Answer.fails
    return Answer.passes if verdict in (Verdict.no_effect, Verdict.improved) else Answer.unresolved
