"""Search over a space of variables and flags: each point is a hypothesis of its own, random ones among them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.controller.agenda import SEARCH
from orchestrator.core.model import ArgsChange, EnvChange, Hypothesis, Sitecustomize, SitecustomizeChange
from orchestrator.core.search import Point, RandomSearch, Space, Strategy, SurrogateSearch, Trial, Variable
from orchestrator.errors import PatchConflict, Refused

if TYPE_CHECKING:
    from orchestrator.controller.agenda import Agenda
    from orchestrator.controller.campaign import CampaignRun
    from orchestrator.core.model import Change
    from orchestrator.core.model import Search as SearchSpec
    from orchestrator.core.records import FindingRecord
    from orchestrator.ledger import Ledger


class OptunaSearch:
    """Optuna's TPE by ask and tell, from the trials as they are: started again, it proposes the same."""

    name = "optuna"

    def __init__(self, seed: int) -> None:
        try:
            import optuna
        except ImportError as error:
            hint = "pip install 'orchestrator[search]', or strategy: surrogate"
            raise Refused("search strategy optuna: Optuna is not installed", hint=hint) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna: Any = optuna
        self._seed = seed

    def ask(self, space: Space, trials: Sequence[Trial]) -> Point | None:
        tried = {trial.point for trial in trials}
        if len(tried) >= space.size:
            return None
        optuna = self._optuna
        sampler = optuna.samplers.TPESampler(seed=self._seed + len(trials), n_startup_trials=3)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        spread = {v.name: _distribution(optuna, v) for v in space.variables}
        for trial in trials:
            params = {v.name: i for v, i in zip(space.variables, trial.point, strict=True)}
            state = optuna.trial.TrialState.COMPLETE if trial.value is not None else optuna.trial.TrialState.FAIL
            study.add_trial(
                optuna.trial.create_trial(params=params, distributions=spread, value=trial.value, state=state)
            )
        for _ in range(MOST_ASKED):
            asked = study.ask(spread)
            point = tuple(int(asked.params[v.name]) for v in space.variables)
            if point not in tried:
                return point
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
        return RandomSearch(self._seed).ask(space, trials)


MOST_ASKED = 20
"""Proposals that were tried already, before a random point is taken."""

_STRATEGIES: dict[str, type[RandomSearch] | type[SurrogateSearch] | type[OptunaSearch]] = {
    "random": RandomSearch,
    "surrogate": SurrogateSearch,
    "optuna": OptunaSearch,
}


def _distribution(optuna: Any, variable: Variable) -> Any:  # noqa: ANN401 - a library without types
    places = len(variable.values)
    if variable.ordered:
        return optuna.distributions.IntDistribution(0, places - 1)
    return optuna.distributions.CategoricalDistribution(list(range(places)))


class Searching:
    """Of one run. Random search takes every other turn, and both learn from all trials."""

    def __init__(self, campaign: CampaignRun, agenda: Agenda, spec: SearchSpec) -> None:
        self._campaign = campaign
        self._agenda = agenda
        self._spec = spec
        playbook = campaign.launcher.playbook
        self._context = spec.context or next(iter(playbook.contexts))
        self._ledger: Ledger = campaign.launcher.book.ledger
        self._space = space_of(spec)
        self._strategies: tuple[Strategy, Strategy] = (
            RandomSearch(spec.seed),
            _STRATEGIES[spec.strategy](spec.seed),
        )

    def run(self) -> None:
        """Until the trials are spent or every point was tried."""
        while (done := self.findings()) is not None and len(done) < self._spec.trials:
            self._campaign.launcher.session.interrupts.check()
            trials = [Trial(point=point_of(f.hypothesis_id or ""), value=f.effect) for f in done]
            point = self._proposer(len(done)).ask(self._space, trials)
            if point is None:
                return
            row = hypothesis_at(self._spec, point, self._context)
            known = {r.id for r in self._ledger.todo(self._agenda.campaign)}
            if row.id not in known:
                reason = f"proposed by {self._proposer(len(done)).name} search"
                self._ledger.add_todo(self._agenda.campaign, row, origin="playbook", parent=SEARCH, reason=reason)
            try:
                (trial,) = self._agenda.make_ready([(row, self._context)])
            except PatchConflict as conflict:
                raise Refused(f"the search cannot change {row.id}: {conflict.what}") from conflict
            self._campaign.judge(trial)

    def findings(self) -> list[FindingRecord]:
        """One a point of this very space, in the order in which they were tried."""
        prefix = f"search-{space_digest(self._spec)}-"
        found = self._ledger.findings(
            self._agenda.campaign, host=self._campaign.launcher.session.name, context=self._context
        )
        first: dict[str, FindingRecord] = {}
        for finding in found:
            if (finding.hypothesis_id or "").startswith(prefix):
                first.setdefault(finding.hypothesis_id or "", finding)
        return list(first.values())

    def columns(self) -> dict[str, list[float | None]]:
        """Strategy → its best gain after each of its trials; random search is always among them."""
        told: dict[str, list[float | None]] = {strategy.name: [] for strategy in self._strategies}
        for number, finding in enumerate(self.findings()):
            column = told[self._proposer(number).name]
            known = [value for value in (*column[-1:], finding.effect) if value is not None]
            column.append(max(known, default=None))
        return told

    def _proposer(self, number: int) -> Strategy:
        return self._strategies[number % 2]


def space_of(spec: SearchSpec) -> Space:
    return Space(variables=tuple(Variable(name=a.name, values=a.values, ordered=a.ordered) for a in spec.space))


def space_digest(spec: SearchSpec) -> str:
    """Another space has other points, whatever their indices are."""
    text = json.dumps([axis.model_dump(mode="json") for axis in spec.space], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def point_of(hypothesis_id: str) -> Point:
    return tuple(int(index) for index in hypothesis_id.split("-")[2:])


def hypothesis_at(spec: SearchSpec, point: Point, context: str) -> Hypothesis:
    """The point as a hypothesis: its values as changes, one of each kind. Pure."""
    chosen = [(axis, axis.values[index]) for axis, index in zip(spec.space, point, strict=True)]
    told = {kind: {a.name: v for a, v in chosen if a.kind == kind} for kind in ("env", "sitecustomize", "args")}
    as_text = {
        kind: {n: None if v is None else str(v) for n, v in told[kind].items()} for kind in ("env", "sitecustomize")
    }
    changes: list[Change] = []
    if told["env"]:
        changes.append(EnvChange(env=as_text["env"]))
    if told["sitecustomize"]:
        changes.append(SitecustomizeChange(sitecustomize=Sitecustomize(env=as_text["sitecustomize"])))
    if told["args"]:
        changes.append(ArgsChange(args=told["args"]))
    return Hypothesis(
        id="-".join(["search", space_digest(spec), *map(str, point)]),
        claim=", ".join(f"{axis.name} = {value}" for axis, value in chosen),
        changes=tuple(changes),
        bundle="a point of the searched space" if len(changes) > 1 else None,
        isolate=False,
        context=(context,),
    )
