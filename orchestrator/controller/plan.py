"""What a run would do, host by host. Reads, and changes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.controller.choose import build_all, due_trials, refuse_unknown_words, todo_order, unmet_requirements
from orchestrator.controller.clock import SystemClock
from orchestrator.controller.interrupts import Interrupts
from orchestrator.controller.narration import Costs, Narrator, Silent
from orchestrator.controller.neighbours import advice_for
from orchestrator.controller.opening import facts_of_changes, named_facts, packages_of
from orchestrator.controller.prepare import Prepared, prepare, prepare_session
from orchestrator.controller.warmup import own_caches
from orchestrator.controller.weighing import bottleneck_context, budget_of, ceiling, weigh_rows
from orchestrator.core import patching, planning
from orchestrator.core.secrets import mask_words
from orchestrator.serving.engine import plan_launch

if TYPE_CHECKING:
    from orchestrator.controller.run import RunRequest
    from orchestrator.controller.session import HostSession
    from orchestrator.controller.treatment import Treatment
    from orchestrator.core.model import Hypothesis
    from orchestrator.core.secrets import Masker


@dataclass(frozen=True)
class PlannedTrial:
    """One experiment that a run would carry out. `diff` is against the tree as it is now; `at_most`: what the
    bottleneck allows it to gain."""

    hypothesis: str
    context: str
    claim: str
    kinds: tuple[str, ...]
    applies: bool
    why_not: str | None = None
    diff: str = ""
    command: str = ""
    environment: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    at_most: str | None = None


@dataclass
class Plan:
    campaign: str
    host: str
    route: str
    source: str
    trials: list[PlannedTrial] = field(default_factory=list)
    held_back: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    bottleneck: str | None = None
    goal: tuple[str, ...] = ()
    launches_min: int = 0
    launches_max: int = 0
    minutes: float | None = None
    minutes_from: str = ""


def plan(request: RunRequest, narrator: Narrator | None = None) -> Plan:
    """Raises `PatchConflict` with every patch that does not fit the tree as it is."""
    clock = SystemClock()
    narrator = narrator or Silent()
    with Interrupts(narrator.warn).installed() as interrupts:
        prepared = prepare(request.playbook, request.state, request.hosts, request.host, clock=clock)
        session = prepare_session(prepared, narrator, interrupts, clock, Costs(clock))
        try:
            session.connect()
            session.probe(packages_of(prepared.playbook))
            return _plan(request, prepared, session)
        finally:
            session.hang_up()
            prepared.ledger.close()


def _plan(request: RunRequest, prepared: Prepared, session: HostSession) -> Plan:
    playbook, ledger = prepared.playbook, prepared.ledger
    facts = {**named_facts(session), **facts_of_changes(prepared)}
    unordered, _ = todo_order(ledger, playbook, request.only)
    by_id = {h.id: h for h in unordered}
    pins = {row.id: row.pin for row in ledger.todo(playbook.campaign)}
    order = [by_id[place.id] for place in planning.rank(weigh_rows(ledger, playbook, session.name, by_id, pins))]
    wanted = due_trials(ledger, playbook, order, session.name, facts, request.only)
    unmet = unmet_requirements(session, facts, [h for h, _ in wanted])
    treatments = build_all(prepared, session, [(h, c) for h, c in wanted if h.id not in unmet])
    strange = refuse_unknown_words(session, treatments)
    drawn = Plan(playbook.campaign, session.name, str(session.host.route), session.layout.source)
    for hypothesis, context in wanted:
        treatment = treatments.get((hypothesis.id, context))
        why_not = unmet.get(hypothesis.id) or strange.get((hypothesis.id, context))
        trial = _masked(_draw(session, hypothesis, context, treatment, why_not), prepared.masker)
        limit = ceiling(playbook, hypothesis) if context == bottleneck_context(playbook) else None
        drawn.trials.append(trial if limit is None else replace(trial, at_most=limit.sentence))
    if playbook.bottleneck is not None:
        drawn.bottleneck = budget_of(playbook.bottleneck).sentence
    if playbook.goal is not None:
        drawn.goal = playbook.goal.conditions
    due = {h.id for h, _ in wanted}
    drawn.held_back = [h.id for h in order if h.id not in due]
    drawn.advice = advice_for(session)
    _estimate(drawn, prepared, session)
    return drawn


def _draw(
    session: HostSession, hypothesis: Hypothesis, context: str, treatment: Treatment | None, why_not: str | None
) -> PlannedTrial:
    from orchestrator.core.model import change_kind

    kinds = tuple(dict.fromkeys(str(change_kind(c)) for c in hypothesis.changes))
    if treatment is None:
        return PlannedTrial(hypothesis.id, context, hypothesis.claim, kinds, False, why_not)
    launch = plan_launch(
        session.target, treatment.configuration, session.base_env, "NAME-OF-THE-LAUNCH", cwd=session.cwd
    )
    diff = "".join(patching.unified(f.before, f.after, f.path).decode("utf-8", "replace") for f in treatment.files)
    words = mask_words(launch.argv, session.target.secrets)
    return PlannedTrial(
        hypothesis=hypothesis.id,
        context=context,
        claim=hypothesis.claim,
        kinds=kinds,
        applies=True,
        diff=diff,
        command=shlex.join(words),
        environment=tuple(_settings(treatment)),
        remarks=(*treatment.remarks, own_caches(session, treatment).why),
    )


def _masked(trial: PlannedTrial, masker: Masker) -> PlannedTrial:
    """No secret is shown, wherever a hypothesis carries one: a sitecustomize block stands in the diff."""
    return replace(
        trial,
        claim=masker.text(trial.claim),
        diff=masker.text(trial.diff),
        command=masker.text(trial.command),
        environment=tuple(masker.text(line) for line in trial.environment),
    )


def _settings(treatment: Treatment) -> Sequence[str]:
    from orchestrator.core.secrets import mask_args, mask_env

    flags = mask_args(dict(treatment.expectation.flags))
    launch = mask_env(dict(treatment.expectation.environ))
    python = mask_env(dict(treatment.expectation.python_environ))
    return [
        *(_flag(n, v) for n, v in flags.items()),
        *(f"{n}={v}" if v is not None else f"unset {n}" for n, v in launch.items()),
        *(f"{n}={v} (sitecustomize)" if v is not None else f"unset {n} (sitecustomize)" for n, v in python.items()),
    ]


def _flag(name: str, value: object) -> str:
    if value is None or value is False:
        return f"without --{name}"
    return f"--{name}" if value is True else f"--{name} {value}"


def _estimate(drawn: Plan, prepared: Prepared, session: HostSession) -> None:
    """Launches, and minutes from load times already measured there; else they are said to be unknown."""
    trials = [t for t in drawn.trials if t.applies]
    contexts = {t.context for t in trials}
    drawn.launches_min = len(trials) + len(contexts)
    drawn.launches_max = prepared.playbook.measure.launches * 2 * len(trials)
    past = [r for r in prepared.ledger.launches(host=session.name) if r.ready_s is not None]
    if not past:
        drawn.minutes_from = "unknown: nothing was launched there yet"
        return
    mean_s = sum(r.ready_s or 0.0 for r in past) / len(past)
    drawn.minutes = drawn.launches_min * mean_s / 60.0
    drawn.minutes_from = f"loading alone, from {len(past)} launches of {mean_s:.0f} s measured there"
