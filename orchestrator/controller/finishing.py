"""The end of a campaign: wins are measured in full, combined, and the best configuration is measured once more."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from orchestrator.controller.agenda import SEARCH
from orchestrator.controller.judging import IN_FULL
from orchestrator.controller.members import members_of
from orchestrator.core.combination import Measured, Step, Win, interaction, next_across, next_step
from orchestrator.core.model import ArgsChange, EnvChange, PatchChange, SitecustomizeChange
from orchestrator.core.planning import changed_facts
from orchestrator.core.records import FindingRecord, Verdict
from orchestrator.errors import PatchConflict
from orchestrator.report.best import is_screened, latest

if TYPE_CHECKING:
    from orchestrator.controller.agenda import Agenda
    from orchestrator.controller.campaign import CampaignRun
    from orchestrator.core.combination import Members
    from orchestrator.core.model import Hypothesis
    from orchestrator.ledger import Ledger

INTERACTION, CHOSEN = "interaction", "chosen"
"""Phases of events: what wins made together, and which configuration was chosen."""


class Finishing:
    """Everything follows from what the ledger says, so that a run that was cut off goes on where it was."""

    def __init__(self, campaign: CampaignRun, agenda: Agenda, texts: Mapping[str, bytes]) -> None:
        self._campaign = campaign
        self._agenda = agenda
        self._texts = texts
        self._ledger: Ledger = campaign.launcher.book.ledger
        self._host = campaign.launcher.session.name
        self._playbook = campaign.launcher.playbook
        self._conflicts: set[frozenset[str]] = set()
        self.sentences: list[str] = []

    def run(self) -> FindingRecord | None:
        """Returns the finding on the best configuration, measured in full; None where nothing is better than the
        baseline."""
        bests = {}
        for context in self._playbook.contexts:
            step = self.best_of_context(context)
            if step is not None and step.kind == "finish":
                bests[context] = frozenset(step.members)
        if not bests:
            return None
        chosen = self._across(bests) if len(self._playbook.contexts) > 1 else None
        return self._measure_again(bests, chosen)

    def confirm_wins(self) -> None:
        """Measure every screened win in full."""
        for context in self._playbook.contexts:
            while (step := self._next(context)) is not None and step.kind == "confirm":
                self._measure(context, frozenset(step.members))

    def best_of_context(self, context: str) -> Step | None:
        """Confirm and combine until nothing is left to measure."""
        while (step := self._next(context)) is not None and step.kind != "finish":
            self._say(f"{context}: {step.kind} {' with '.join(step.members)}: {step.reason}")
            self._measure(context, frozenset(step.members))
        if step is not None:
            self._say(f"best in {context}: {step.reason}")
        return step

    def _next(self, context: str) -> Step | None:
        everything = self._ledger.findings(self._playbook.campaign, host=self._host, context=context)
        now: dict[str, str | None] = dict(self._campaign.facts)
        findings = [f for f in latest(everything) if not changed_facts(f.depends_on, now)]
        hypotheses = self._hypotheses()
        wins = [
            Win(f.hypothesis_id or "", f.effect or 0.0, lines_of(hypotheses[f.hypothesis_id or ""], self._texts),
                is_screened(f))
            for f in findings
            if f.verdict is Verdict.improved and f.hypothesis_id in hypotheses and f.reopened_at is None
            and not self._is_combined(f.hypothesis_id)
        ]  # fmt: skip
        wins = self._without_lesser_points(wins)
        measured = [
            Measured(frozenset(hypotheses[f.hypothesis_id].after), f.verdict, f.effect)
            for f in findings
            if f.hypothesis_id in hypotheses and self._is_combined(f.hypothesis_id)
        ]
        return next_step(
            wins,
            measured,
            tie=self._playbook.measure.min_effect,
            conflicts=self._conflicts | contradictions([hypotheses[win.id] for win in wins]),
        )

    def _without_lesser_points(self, wins: list[Win]) -> list[Win]:
        """Of a search only the best point is a win worth measuring again."""
        found = {r.id for r in self._ledger.todo(self._playbook.campaign) if r.parent == SEARCH}
        best = max((win for win in wins if win.id in found), key=lambda win: win.gain, default=None)
        return [win for win in wins if win.id not in found or win is best]

    # ---------------------------------------------------------------- measuring

    def _measure(self, context: str, members: Members) -> FindingRecord | None:
        """The members together in full against the baseline; None where they cannot be applied together."""
        hypothesis = self._together(members)
        try:
            (trial,) = self._agenda.make_ready([(hypothesis, context)])
        except PatchConflict as conflict:
            self._conflicts |= {frozenset({a, b}) for a in members for b in members if a != b}
            self._say(f"{' with '.join(sorted(members))} cannot be applied together: {conflict.what}")
            return None
        finding = self._campaign.judge(trial, in_full=True)
        if len(members) > 1 and finding.effect is not None:
            parts = {m: e for m in sorted(members) if (e := self._gain(context, frozenset({m}))) is not None}
            sentence = interaction(parts, finding.effect)
            self._ledger.note(INTERACTION, {"sentence": sentence}, experiment_id=finding.experiment_id)
            self._say(f"{context}: {sentence}")
        return finding

    def _together(self, members: Members) -> Hypothesis:
        """The hypothesis itself, or a row of the todo that makes all their changes. Its `after` names them."""
        hypotheses = self._hypotheses()
        if len(members) == 1:
            return hypotheses[next(iter(members))]
        parts = [hypotheses[name] for name in sorted(members)]
        name = ".with.".join(sorted(members))
        if len(name) > 80:
            name = f"combination-{hashlib.sha256(name.encode()).hexdigest()[:10]}"
        if name in hypotheses:
            return hypotheses[name]
        combined = type(parts[0])(
            id=name,
            claim=f"together: {'; '.join(p.claim for p in parts)}",
            changes=tuple(change for part in parts for change in part.changes),
            bundle="each of them is a gain alone",
            isolate=False,
            after=tuple(sorted(members)),
            context=tuple(dict.fromkeys(c for part in parts for c in part.context)),
            revisit_when=tuple(dict.fromkeys(f for part in parts for f in part.revisit_when)),
        )
        self._ledger.add_todo(self._playbook.campaign, combined, origin="combination", reason="wins measured together")
        return combined

    def _gain(self, context: str, members: Members) -> float | None:
        name = self._together(members).id
        found = latest(
            self._ledger.findings(self._playbook.campaign, host=self._host, context=context, hypothesis_id=name)
        )
        return found[-1].effect if found else None

    def _across(self, bests: Mapping[str, Members]) -> Step | None:
        """One configuration for all contexts, each candidate measured in every one of them."""
        contexts = {context: bests.get(context, frozenset()) for context in self._playbook.contexts}
        hypotheses = self._hypotheses()
        lines = {name: lines_of(h, self._texts) for name, h in hypotheses.items()}
        measured: dict[tuple[str, Members], float | None] = {}
        tie = self._playbook.measure.min_effect
        while True:
            following = next_across(contexts, measured, lines=lines, tie=tie)
            if following is None or isinstance(following, Step):
                if following is not None:
                    self._say(f"across contexts: {following.reason}")
                return following
            context, members = following
            known = self._gain(context, members) if self._has_finding(context, members) else None
            if known is None and not self._has_finding(context, members):
                finding = self._measure(context, members)
                known = finding.effect if finding is not None else None
            measured[following] = known

    def _has_finding(self, context: str, members: Members) -> bool:
        name = self._together(members).id
        return bool(
            self._ledger.findings(self._playbook.campaign, host=self._host, context=context, hypothesis_id=name)
        )

    def _measure_again(self, bests: Mapping[str, Members], across: Step | None) -> FindingRecord | None:
        """The configuration that would be kept, from a clean host against the baseline; once, as the last thing."""
        if across is not None and across.members:
            chosen = frozenset(across.members)
            place = next((c for c, members in bests.items() if members == chosen), next(iter(bests)))
        else:
            place = max(bests, key=lambda c: self._gain(c, bests[c]) or 0.0)
            chosen = bests[place]
        last = self._agenda.findings_of_run()[-1:]
        name = self._together(chosen).id
        is_fresh = (
            bool(last) and (last[0].hypothesis_id, last[0].context) == (name, place) and IN_FULL in last[0].evidence
        )
        finding = last[0] if is_fresh else self._measure(place, chosen)
        if finding is None or finding.verdict is not Verdict.improved:
            said = finding.summary if finding is not None else "it cannot be applied"
            self._say(f"{name} ({place}) did not hold when it was measured again: {said}")
            return None
        data = {"hypothesis": name, "context": place, "finding": finding.id}
        self._ledger.note(CHOSEN, data, experiment_id=finding.experiment_id)
        self._say(f"best configuration: {name} ({place}), measured again: {finding.summary}")
        return finding

    # ---------------------------------------------------------------- what there is

    def _hypotheses(self) -> dict[str, Hypothesis]:
        rows = {r.id: r.as_hypothesis() for r in self._ledger.todo(self._playbook.campaign)}
        return rows | {h.id: h for h in self._playbook.hypotheses}

    def _is_combined(self, name: str | None) -> bool:
        rows = {r.id: r.origin for r in self._ledger.todo(self._playbook.campaign)}
        return rows.get(name or "") == "combination"

    def _say(self, text: str) -> None:
        self.sentences.append(text)
        self._campaign.launcher.session.narrator.note(text)


def contradictions(hypotheses: Sequence[Hypothesis]) -> set[frozenset[str]]:
    """Pairs that set one variable or flag to different values: they cannot be applied together. Pure."""
    settings = {h.id: _settings(h) for h in hypotheses}
    return {
        frozenset({a, b})
        for a, b in combinations(settings, 2)
        if any(settings[a][key] != settings[b][key] for key in settings[a].keys() & settings[b].keys())
    }


def _settings(hypothesis: Hypothesis) -> dict[tuple[str, str], object]:
    """(kind, name) → value of everything that is set. A variable is one, whoever sets it."""
    told: dict[tuple[str, str], object] = {}
    for change in hypothesis.changes:
        if isinstance(change, EnvChange):
            told |= {("env", name): value for name, value in change.env.items()}
        elif isinstance(change, SitecustomizeChange):
            told |= {("env", name): value for name, value in change.sitecustomize.env.items()}
        elif isinstance(change, ArgsChange):
            told |= {("args", name): value for name, value in change.args.items()}
    return told


def lines_of(hypothesis: Hypothesis, texts: Mapping[str, bytes]) -> int:
    """The size of a change: added and removed lines of patches, lines of files, variables and flags. Pure."""
    size = 0
    for change in hypothesis.changes:
        files = change.patch.files if isinstance(change, PatchChange) else ()
        size += sum(line[:1] in (b"+", b"-") and line[:3] not in (b"+++", b"---")
                    for file in files for line in texts[file].splitlines())  # fmt: skip
    return size + sum(1 for member in members_of(hypothesis.changes, texts) if not member.file)
