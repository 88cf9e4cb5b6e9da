"""Going on with a run that was cut off: what it has recorded, and the server it left on the host.

Without `--resume` a run retreats. With it, inside the lease and with the holder's token, a server that is still loading
or serving is adopted when its identity and its treatment check out; and nothing that was measured is measured again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator.controller.arm import ArmResult
from orchestrator.controller.treatment import Treatment, build, paths_to_read, untouched
from orchestrator.core.diagnosis import Diagnosis
from orchestrator.core.lifecycle import ArmStep, after_restart
from orchestrator.core.records import CONTINUES, LaunchOutcome
from orchestrator.errors import OrchestratorError
from orchestrator.serving.configuration import baseline_configuration
from orchestrator.serving.gate import Answers
from orchestrator.serving.record import Record

if TYPE_CHECKING:
    from orchestrator.controller.prepare import Prepared
    from orchestrator.controller.session import HostSession
    from orchestrator.core.model import Hypothesis
    from orchestrator.core.records import ArmRecord, ExperimentRecord, LaunchRecord, RunRecord
    from orchestrator.ledger import Ledger

DRIFT = "drift"
"""Phase of the event that says that a baseline has left its level."""

_GOES_ON = frozenset({ArmStep.READY, ArmStep.CHECK})
_TOLD = ("outcome", "category", "cause_line", "cause_lineno", "rank", "certainty", "remedy")
_NO_FAILURE = frozenset({LaunchOutcome.measured, LaunchOutcome.ready, LaunchOutcome.lost, LaunchOutcome.aborted})


@dataclass(frozen=True)
class Left:
    """A launch that the ledger knows as running: in which arm of which experiment."""

    experiment: ExperimentRecord
    arm: ArmRecord
    launch: LaunchRecord


@dataclass(frozen=True)
class Adoptable:
    """A launch that is alive on the host and may be gone on with, and everything its arm is made of."""

    left: Left
    treatment: Treatment


@dataclass
class Past:
    """What a run has measured so far. `results`: context → baseline launches; `stale`: contexts to be measured anew;
    `since`: context → experiments with a treatment since its baseline; `level`: context → first launch of its level.

    `experiment` is the one that was under way, `measured` its treatment launches, failed ones included; it `goes_on`
    where its launch was adopted, else another takes its place and begins with these launches. `runs`: the run and those
    that it continues.
    """

    results: dict[str, list[ArmResult]] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    since: dict[str, int] = field(default_factory=dict)
    level: dict[str, int] = field(default_factory=dict)
    runs: frozenset[int] = frozenset()
    experiment: ExperimentRecord | None = None
    goes_on: bool = False
    measured: list[ArmResult] = field(default_factory=list)


def find_left(ledger: Ledger, run: RunRecord) -> Left | None:
    """The launch of this run without an end."""
    for row in ledger.experiments(run_id=run.id, state="running"):
        experiment = ledger.experiment(row.id)
        for arm in experiment.arms:
            for launch in arm.launches:
                if launch.outcome is None and arm.ended_at is None:
                    return Left(experiment, arm, launch)
    return None


def why_retreat(left: Left | None, reply: Mapping[str, Any], run: RunRecord, digest: str) -> str | None:
    """Why the server that `open` found cannot be gone on with, or None. Pure.

    `reply`: what `open` said; `digest`: of the playbook as it is now.
    """
    launch, change = reply.get("launch"), reply.get("open")
    if not launch:
        return "no server of that run is on the host"
    if left is None or left.launch.launch_id != launch["launch_id"]:
        return f"the ledger does not know launch {launch['launch_id']} as running"
    if run.playbook_digest != digest:
        return "the playbook has changed since"
    if not launch["alive"]:
        return "its server has ended"
    phase = left.experiment.phase
    if phase not in set(ArmStep) or after_restart(ArmStep(phase), may_resume=True) not in _GOES_ON:
        return f"it was at {left.experiment.phase}, on its way back"
    if change and (change["txn"] != launch["launch_id"] or change["state"] != "applied"):
        return f"its change is {change['state']}"
    if bool(change) and left.arm.kind == "baseline":
        return "a change is applied under a baseline"
    return None


def find_adoptable(
    session: HostSession, prepared: Prepared, run: RunRecord, reply: Mapping[str, Any]
) -> Adoptable | str:
    """The launch to go on with, or why there is none. Looks at the files on the host; changes nothing."""
    left = find_left(prepared.ledger, run)
    why = why_retreat(left, reply, run, prepared.loaded.digest)
    if why is not None or left is None:
        return why or "no launch is open"
    try:
        treatment = rebuild(session, prepared, left)
    except OrchestratorError as error:
        return f"its change cannot be planned again: {error.what}"
    applied = set((reply.get("open") or {}).get("paths", ()))
    if applied != {edit.path for edit in treatment.files}:
        return "its change is not the one that the playbook asks for"
    now = read_files(session, sorted(applied))
    strange = [edit.path for edit in treatment.files if now[edit.path] != edit.after]
    if strange:
        return f"{strange[0]} is not as the experiment made it"
    return Adoptable(left, treatment)


def read_files(session: HostSession, paths: Sequence[str]) -> dict[str, bytes | None]:
    from orchestrator.controller.choose import read_files as read

    return read(session, paths)


def rebuild(session: HostSession, prepared: Prepared, left: Left) -> Treatment:
    """The arm's treatment, planned once more from the bytes as they were found: those of changed files from the ledger,
    since the host has ours in their place. Raises what planning raises."""
    context = prepared.playbook.contexts[left.experiment.context]
    configuration = baseline_configuration(session.target, context)
    if left.arm.kind == "baseline":
        return untouched(configuration, session.layout)
    hypothesis = asked_of(prepared, left.experiment)
    texts, layout, ledger = prepared.loaded.texts, session.layout, prepared.ledger
    paths = paths_to_read(hypothesis.changes, texts, layout)
    kept = {a.name: a for a in ledger.artifacts(experiment_id=left.experiment.id) if a.kind in ("found", "patched")}
    found = read_files(session, [path for path in paths if path not in kept])
    images = {a.name: a for a in ledger.artifacts(experiment_id=left.experiment.id) if a.kind == "found"}
    for path in paths:
        if path in kept:
            found[path] = ledger.read_artifact(images[path].id) if path in images else None
    return build(
        hypothesis.changes,
        texts,
        layout,
        configuration,
        found,
        marker=hypothesis.marker,
        caches=prepared.playbook.caches,
    )


def hypothesis_of(prepared: Prepared, experiment: ExperimentRecord) -> Hypothesis:
    """As the playbook has it, or as a person added it to the todo."""
    for hypothesis in prepared.playbook.hypotheses:
        if hypothesis.id == experiment.hypothesis_id:
            return hypothesis
    rows = {row.id: row for row in prepared.ledger.todo(prepared.playbook.campaign)}
    if experiment.hypothesis_id not in rows:
        raise OrchestratorError(f"no hypothesis is called {experiment.hypothesis_id!r} any more")
    return rows[experiment.hypothesis_id].as_hypothesis()


def asked_of(prepared: Prepared, experiment: ExperimentRecord) -> Hypothesis:
    """The hypothesis, with those of its changes only that the experiment is about: a question about a bundle that
    failed leaves some of its members out."""
    from orchestrator.controller.members import members_of, some_of

    hypothesis = hypothesis_of(prepared, experiment)
    asked = prepared.ledger.events(experiment_id=experiment.id, phase="question")
    if not asked:
        return hypothesis
    names = set(asked[-1].data["members"])
    chosen = [m for m in members_of(hypothesis.changes, prepared.loaded.texts) if m.name in names]
    return hypothesis.model_copy(update={"changes": some_of(hypothesis.changes, chosen), "marker": None})


# -- what was measured ----------------------------------------------------------------------------------------------


def recall(ledger: Ledger, run: RunRecord, fingerprint_id: int, digest: str) -> Past:
    """Everything the run, and those it continues, have measured under the present fingerprint, as the playbook of this
    `digest` asks for it."""
    runs = run_chain(ledger, run, digest)
    if not runs:
        return Past()
    everything = [ledger.experiment(row.id) for number in runs for row in ledger.experiments(run_id=number)]
    experiments = [experiment for experiment in everything if experiment.fingerprint_id == fingerprint_id]
    past = remember(experiments)
    past.runs = frozenset(runs)
    if experiments and experiments[-1].state in ("running", "aborted"):
        past.experiment = experiments[-1]
        past.measured = [
            result
            for arm in experiments[-1].arms
            if arm.kind == "treatment"
            for launch in arm.launches
            if (result := as_result(launch) or as_failure(launch)) is not None
        ]
    for number in runs:
        for event in ledger.events(run_id=number, phase=DRIFT):
            past.level[str(event.data["context"])] = int(event.data["level"])
    return past


def run_chain(ledger: Ledger, run: RunRecord, digest: str) -> list[int]:
    """The run and those it continues, oldest first, as far back as they carried out the playbook of this `digest`."""
    chain: list[int] = []
    at: RunRecord | None = run
    while at is not None and at.playbook_digest == digest:
        chain.insert(0, at.id)
        before = at.options.get(CONTINUES)
        at = ledger.run(before) if isinstance(before, int) else None
    return chain


def remember(experiments: Iterable[ExperimentRecord]) -> Past:
    """Pure. A failed treatment makes every baseline before it stale, as in the run itself."""
    past = Past()
    for experiment in experiments:
        for arm in experiment.arms:
            for launch in arm.launches:
                result = as_result(launch)
                if arm.kind == "baseline" and result is not None:
                    past.results.setdefault(experiment.context, []).append(result)
                    past.stale.discard(experiment.context)
                    past.since[experiment.context] = 0
                elif arm.kind == "treatment" and launch.outcome is not None and launch.outcome not in _NO_FAILURE:
                    past.stale |= past.results.keys()
        if experiment.state == "done" and any(arm.kind == "treatment" for arm in experiment.arms):
            past.since = {context: past.since.get(context, 0) + 1 for context in past.results}
    return past


def as_failure(launch: LaunchRecord) -> ArmResult | None:
    """A recorded launch that failed by itself, as the arm had it; None where it was measured or cut off."""
    if launch.outcome is None or launch.outcome in _NO_FAILURE:
        return None
    told = launch.facts.get("diagnosis")
    kept = {name: told[name] for name in _TOLD if name in told} if told else {}
    diagnosis = Diagnosis(**kept, suspects=tuple(told.get("suspects", ()))) if told else None
    return ArmResult(
        outcome=launch.outcome,
        end=ArmStep.CLEAN,
        diagnosis=diagnosis,
        reason=launch.cause or "",
        exit_code=launch.exit_code,
        signal=launch.signal,
    )


def as_result(launch: LaunchRecord) -> ArmResult | None:
    """A recorded launch as the arm had it; None where it measured nothing."""
    value = launch.facts.get("value")
    if launch.outcome is not LaunchOutcome.measured or value is None:
        return None
    answers = launch.facts.get("answers")
    ended = launch.ended_at or launch.started_at
    return ArmResult(
        outcome=LaunchOutcome.measured,
        end=ArmStep.CLEAN,
        value=float(value),
        samples=[sample.model_dump(mode="json") for sample in launch.samples],
        answers=Answers(answers["first"], answers["second"]) if answers else None,
        ready_s=launch.ready_s,
        capacity=launch.facts.get("capacity_tokens"),
        score=(launch.facts.get("score") or {}).get("value"),
        record=Record.from_json(launch.facts["record"]) if launch.facts.get("record") else None,
        resolved=launch.facts.get("resolved"),
        measured_at=datetime.fromisoformat(ended).timestamp(),
    )
