"""What is carried out next: the todo as it stands, ranked anew after every finding."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.controller.campaign import Trial
from orchestrator.controller.choose import (
    build_all,
    choose_trials,
    contexts_of,
    due_trials,
    refuse_unknown_words,
    unmet_requirements,
)
from orchestrator.controller.neighbours import refuse_neighbours
from orchestrator.controller.weighing import weigh_rows
from orchestrator.core import planning
from orchestrator.core.records import Verdict

if TYPE_CHECKING:
    from orchestrator.controller.prepare import Prepared
    from orchestrator.controller.session import HostSession
    from orchestrator.core.model import Hypothesis
    from orchestrator.core.records import FindingRecord, TodoRow

FAMILY = "family"
"""Phase of the event that announces a closed family."""

NOT_DUE = frozenset({"combination"})
"""Origins of rows that are measured when their turn comes at the end, not because they are due."""

SEARCH = "search"
"""Parent of the rows that a search has proposed."""


class Agenda:
    """Of one run. `runs`: this run and those it continues; what has a finding of theirs is not carried out again."""

    def __init__(
        self,
        prepared: Prepared,
        session: HostSession,
        facts: Mapping[str, str],
        only: Sequence[str],
        *,
        run_id: int,
        runs: Collection[int],
        yes: bool = False,
    ) -> None:
        self._prepared = prepared
        self._session = session
        self._facts = facts
        self._only = tuple(only)
        self._run_id = run_id
        self._runs = set(runs) | {run_id}
        self._yes = yes
        self._ready: dict[tuple[str, str], Trial] = {}

    @property
    def campaign(self) -> str:
        return self._prepared.playbook.campaign

    def prepare(self) -> list[Trial]:
        """Everything that is due, planned against the bytes on the host. Raises one `PatchConflict` with every patch
        that does not fit."""
        trials = choose_trials(self._prepared, self._session, self._facts, self._only)
        self._ready = {(trial.hypothesis.id, trial.context): trial for trial in trials}
        if any(trial.treatment is not None and trial.treatment.changes_files for trial in trials):
            refuse_neighbours(self._session, yes=self._yes)
        return trials

    def next(self) -> Trial | None:
        """The best of what is due. Facts do not change while a run lasts; findings do."""
        ledger, playbook = self._prepared.ledger, self._prepared.playbook
        rows = [row for row in ledger.todo(self.campaign) if self._may_be_due(row)]
        hypotheses = {row.id: row.as_hypothesis() for row in rows} | {
            h.id: h for h in playbook.hypotheses if any(row.id == h.id for row in rows)
        }
        ranked = planning.rank(
            weigh_rows(ledger, playbook, self._session.name, hypotheses, {r.id: r.pin for r in rows}),
            decided=self._decided(hypotheses),
        )
        with ledger.batch():
            open_ids = {row.id for row in rows if row.status == "open"}
            for place in ranked:
                if place.id in open_ids:
                    ledger.set_rank(self.campaign, place.id, place.score, place.reason)
        order = [hypotheses[place.id] for place in ranked]
        done = {(f.hypothesis_id, f.context) for f in self.findings_of_run()}
        due = due_trials(ledger, playbook, order, self._session.name, self._facts, self._known(order))
        place_of = {hypothesis.id: number for number, hypothesis in enumerate(order)}
        due.sort(key=lambda pair: (place_of[pair[0].id], contexts_of(pair[0], playbook).index(pair[1])))
        for hypothesis, context in due:
            if (hypothesis.id, context) not in done:
                return self._trial(hypothesis, context)
        return None

    def findings_of_run(self) -> list[FindingRecord]:
        """Of this run and those it continues, oldest first."""
        ledger = self._prepared.ledger
        mine = {e.id for e in ledger.experiments(self.campaign, host=self._session.name) if e.run_id in self._runs}
        return [f for f in ledger.findings(self.campaign, host=self._session.name) if f.experiment_id in mine]

    def make_ready(self, wanted: Sequence[tuple[Hypothesis, str]]) -> list[Trial]:
        """Plan hypotheses that came up while the run lasts. Raises `PatchConflict`."""
        session = self._session
        unmet = unmet_requirements(session, self._facts, [h for h, _ in wanted])
        treatments = build_all(self._prepared, session, [(h, c) for h, c in wanted if h.id not in unmet])
        strange = refuse_unknown_words(session, treatments)
        return [Trial(h, c, treatments.get((h.id, c)), unmet.get(h.id) or strange.get((h.id, c))) for h, c in wanted]

    def announce(self) -> Iterator[str]:
        """Families that are closed by now and were not announced yet, each with its sentence, which is written down."""
        ledger, playbook = self._prepared.ledger, self._prepared.playbook
        said = {str(event.data["family"]) for run in self._runs for event in ledger.events(run_id=run, phase=FAMILY)}
        rows = [row for row in ledger.todo(self.campaign) if self._may_be_due(row, also_decided=True)]
        findings = ledger.findings(self.campaign, host=self._session.name)
        members = [planning_member(row, contexts_of(row.as_hypothesis(), playbook), findings) for row in rows]
        undecided = {member.id for member in members if member.verdict is None}
        for closed in planning.closed_families(members, [row.id for row in rows if row.id in undecided]):
            if closed.family not in said:
                ledger.note(FAMILY, {"family": closed.family, "sentence": closed.sentence}, run_id=self._run_id)
                yield closed.sentence

    def _trial(self, hypothesis: Hypothesis, context: str) -> Trial:
        key = (hypothesis.id, context)
        if key not in self._ready:
            (self._ready[key],) = self.make_ready([(hypothesis, context)])
        return self._ready[key]

    def _may_be_due(self, row: TodoRow, *, also_decided: bool = False) -> bool:
        if self._only and not also_decided:
            return row.id in self._only
        is_ours = row.origin not in NOT_DUE and row.parent != SEARCH
        return is_ours and (also_decided or row.status != "skipped")

    def _known(self, order: Sequence[Hypothesis]) -> list[str]:
        """`--only`, without rows that are none any more."""
        return [h.id for h in order if h.id in self._only]

    def _decided(self, hypotheses: Mapping[str, Hypothesis]) -> set[str]:
        """Those with a finding in every context that they name: what waits for them need not wait."""
        have = {
            (f.hypothesis_id, f.context) for f in self._prepared.ledger.findings(self.campaign, host=self._session.name)
        }
        playbook = self._prepared.playbook
        return {h.id for h in hypotheses.values() if all((h.id, c) in have for c in contexts_of(h, playbook))}


def planning_member(row: TodoRow, contexts: Sequence[str], findings: Sequence[FindingRecord]) -> planning.Member:
    """A row in its family: its verdict once it has one in every context, a win as soon as it has one in any."""
    last: dict[str, FindingRecord] = {}
    for finding in findings:
        if finding.hypothesis_id == row.id and finding.reopened_at is None:
            last[finding.context] = finding
    known = [last[context] for context in contexts if context in last]
    won = next((f for f in known if f.verdict is Verdict.improved), None)
    told = won or (known[-1] if len(known) == len(contexts) else None)
    if told is None:
        return planning.Member(row.id, row.family)
    why = told.cause or "" if told.verdict is Verdict.not_applicable else ""
    return planning.Member(row.id, row.family, told.verdict, why, told.depends_on)
