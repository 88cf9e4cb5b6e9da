"""Experiments, their arms, launches and samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import func, select

from orchestrator.core.records import (
    ArmKind,
    ArmRecord,
    ExperimentRecord,
    ExperimentState,
    LaunchOutcome,
    LaunchRecord,
    RevertProof,
    Sample,
    Verdict,
)
from orchestrator.errors import Bug
from orchestrator.ledger.base import Part, Row, change, columns, pick, record
from orchestrator.ledger.tables import (
    ArmTable,
    ExperimentTable,
    HypothesisTable,
    LaunchTable,
    RunTable,
    SampleTable,
)

PAGE = 50
_experiment, _arm, _launch = columns(ExperimentTable).c, columns(ArmTable).c, columns(LaunchTable).c
_sample, _todo, _run = columns(SampleTable).c, columns(HypothesisTable).c, columns(RunTable).c


class Experiments(Part):
    def start_experiment(
        self,
        run_id: int,
        hypothesis_id: str | None,
        host: str,
        context: str,
        *,
        changes: Sequence[Mapping[str, Any]] | None = None,
        fingerprint_id: int | None = None,
    ) -> ExperimentRecord:
        """`hypothesis_id` None measures the baseline alone. `changes` are by default those of the hypothesis."""
        with self._database.write():
            campaign = self._required(RunTable, run_id, "run")["campaign"]
            if changes is None and hypothesis_id is not None:
                query = select(_todo.hypothesis).where(_todo.campaign == campaign, _todo.id == hypothesis_id)
                row = self._row(query)
                if row is None:
                    raise Bug(f"experiment on {hypothesis_id!r}, which is no row of campaign {campaign}")
                changes = row["hypothesis"]["changes"]
            values = {
                "run_id": run_id, "campaign": campaign, "host": host, "context": context,
                "hypothesis_id": hypothesis_id, "changes": list(changes or ()), "fingerprint_id": fingerprint_id,
                "state": "running", "phase": "", "started_at": self._now(),
            }  # fmt: skip
            return record(ExperimentRecord, self._insert(ExperimentTable, values))

    def set_phase(self, experiment_id: int, phase: str) -> None:
        """Where a running experiment is, for those who watch."""
        self._change_running(experiment_id, {"phase": phase})

    def set_fingerprint(self, experiment_id: int, fingerprint_id: int) -> None:
        self._change_running(experiment_id, {"fingerprint_id": fingerprint_id})

    def end_experiment(
        self,
        experiment_id: int,
        state: ExperimentState,
        verdict: Verdict | None,
        *,
        cause: str | None = None,
    ) -> ExperimentRecord:
        """`done` needs every launch and arm ended and, unless it is a baseline alone, a verdict (`Bug` else).
        `aborted` and `quarantined` end what is still open: launches as `lost`. The verdict of an experiment without
        one is then `aborted`."""
        with self._database.write():
            if state == "done":
                self._refuse_open_parts(experiment_id, verdict)
            else:
                self._end_open_parts(experiment_id)
                verdict = verdict or Verdict.aborted
            ended = {"state": state, "verdict": verdict, "cause": cause, "ended_at": self._now()}
            self._change_running(experiment_id, ended)
            return self.experiment(experiment_id)

    def abort_open(self, run_id: int, cause: str) -> list[ExperimentRecord]:
        """End what a run that will not go on has left open: its experiments as aborted, their rows open again."""
        running = select(_experiment.id, _experiment.campaign, _experiment.hypothesis_id).where(
            _experiment.run_id == run_id, _experiment.state == "running"
        )
        with self._database.write():
            ended = []
            for row in self._rows(running):
                ended.append(self.end_experiment(row["id"], "aborted", Verdict.aborted, cause=cause))
                again = (_todo.campaign == row["campaign"], _todo.id == row["hypothesis_id"])
                was_running = change(HypothesisTable).where(*again, _todo.status == "running")
                self._update(was_running, {"status": "open", "reason": cause})
            return ended

    def _change_running(self, experiment_id: int, values: Mapping[str, Any]) -> None:
        running = change(ExperimentTable).where(_experiment.id == experiment_id, _experiment.state == "running")
        if not self._update(running, values):
            raise Bug(f"experiment #{experiment_id} is unknown or has ended, and was to be changed: {dict(values)}")

    def _refuse_open_parts(self, experiment_id: int, verdict: Verdict | None) -> None:
        arms = select(_arm.id).where(_arm.experiment_id == experiment_id)
        open_arms = [r["id"] for r in self._rows(arms.where(_arm.ended_at.is_(None)))]
        open_launches = self._rows(select(_launch.id).where(_launch.arm_id.in_(arms), _launch.outcome.is_(None)))
        has_hypothesis = self._required(ExperimentTable, experiment_id, "experiment")["hypothesis_id"] is not None
        if open_arms or open_launches or (has_hypothesis and verdict is None):
            raise Bug(
                f"experiment #{experiment_id} cannot be done",
                facts={
                    "verdict": str(verdict), "open arms": str(open_arms),
                    "open launches": str([r["id"] for r in open_launches]),
                },
            )  # fmt: skip

    def _end_open_parts(self, experiment_id: int) -> None:
        arms = select(_arm.id).where(_arm.experiment_id == experiment_id).scalar_subquery()
        now = self._now()
        open_launches = change(LaunchTable).where(_launch.arm_id.in_(arms), _launch.outcome.is_(None))
        self._update(open_launches, {"outcome": LaunchOutcome.lost, "ended_at": now})
        open_arms = change(ArmTable).where(_arm.experiment_id == experiment_id, _arm.ended_at.is_(None))
        self._update(open_arms, {"ended_at": now})

    # ------------------------------------------------------------ arms

    def start_arm(
        self, experiment_id: int, kind: ArmKind, *, changes: Sequence[Mapping[str, Any]] | None = None
    ) -> ArmRecord:
        """`changes` of a treatment are by default those of the experiment; a baseline has none."""
        with self._database.write():
            experiment = self._required(ExperimentTable, experiment_id, "experiment")
            if experiment["state"] != "running":
                raise Bug(f"an arm for experiment #{experiment_id}, which has ended")
            if changes is None:
                changes = experiment["changes"] if kind == "treatment" else ()
            values = {
                "experiment_id": experiment_id, "kind": kind, "changes": list(changes), "started_at": self._now(),
                "number": self._next(_arm.number, _arm.experiment_id == experiment_id),
            }  # fmt: skip
            return record(ArmRecord, self._insert(ArmTable, values))

    def end_arm(self, arm_id: int, proof: RevertProof | None = None) -> None:
        """`proof` is what the host's manifest said after the revert; without one a treatment is not proved reverted."""
        values: dict[str, Any] = {"ended_at": self._now()}
        if proof is not None:
            values["proof"] = proof.model_dump(mode="json")
        if not self._update(change(ArmTable).where(_arm.id == arm_id, _arm.ended_at.is_(None)), values):
            raise Bug(f"arm {arm_id} is unknown or has ended")

    def prove_reverted(self, experiment_id: int, proof: RevertProof) -> None:
        """The proof that recovery brought, for every arm that lacks a clean one."""
        with self._database.write():
            for row in self._rows(pick(ArmTable).where(_arm.experiment_id == experiment_id)):
                if not (row["proof"] or {}).get("clean"):
                    arm = change(ArmTable).where(_arm.id == row["id"])
                    self._update(arm, {"proof": proof.model_dump(mode="json")})

    # ------------------------------------------------------------ launches

    def start_launch(self, arm_id: int, launch_id: str, argv: Sequence[str] = ()) -> LaunchRecord:
        """Before the request to launch is sent. `launch_id` is the name the agent will know it by, unique for ever."""
        with self._database.write():
            if self._required(ArmTable, arm_id, "arm")["ended_at"] is not None:
                raise Bug(f"a launch for arm {arm_id}, which has ended")
            values = {
                "arm_id": arm_id, "launch_id": launch_id, "argv": list(argv), "started_at": self._now(), "facts": {},
                "number": self._next(_launch.number, _launch.arm_id == arm_id),
            }  # fmt: skip
            return record(LaunchRecord, self._insert(LaunchTable, values))

    def note_launch(
        self, launch: int, *, ready_s: float | None = None, facts: Mapping[str, Any] | None = None
    ) -> LaunchRecord:
        """What became known of a launch that goes on; facts are added to those there."""
        return self._change_launch(launch, {} if ready_s is None else {"ready_s": ready_s}, facts)

    def end_launch(
        self,
        launch: int,
        outcome: LaunchOutcome,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        cause: str | None = None,
        facts: Mapping[str, Any] | None = None,
        log_artifact: int | None = None,
    ) -> LaunchRecord:
        values = {
            "outcome": LaunchOutcome(outcome), "exit_code": exit_code, "signal": signal, "cause": cause,
            "log_artifact": log_artifact, "ended_at": self._now(),
        }  # fmt: skip
        return self._change_launch(launch, values, facts)

    def _change_launch(self, launch: int, values: Mapping[str, Any], facts: Mapping[str, Any] | None) -> LaunchRecord:
        with self._database.write():
            row = self._required(LaunchTable, launch, "launch")
            if row["outcome"] is not None:
                raise Bug(f"launch {launch} has ended as {row['outcome']}")
            merged = dict(values) | {"facts": row["facts"] | dict(facts or {})}
            self._update(change(LaunchTable).where(_launch.id == launch), merged)
            return self.launch(launch)

    def add_samples(self, launch: int, samples: Iterable[Sample]) -> None:
        self._insert_all(SampleTable, [{"launch_id": launch} | s.model_dump() for s in samples])

    def launch(self, launch: int) -> LaunchRecord:
        row = self._required(LaunchTable, launch, "launch")
        return self._launches([row])[0]

    def launches(
        self,
        *,
        host: str,
        campaign: str | None = None,
        context: str | None = None,
        kind: ArmKind | None = None,
        fingerprint_id: int | None = None,
    ) -> list[LaunchRecord]:
        """Launches with their samples, oldest first: those of baselines tell the noise between launches."""
        wanted = {
            _experiment.campaign: campaign, _experiment.context: context, _arm.kind: kind,
            _experiment.fingerprint_id: fingerprint_id,
        }  # fmt: skip
        query = (
            pick(LaunchTable)
            .join(columns(ArmTable), _arm.id == _launch.arm_id)
            .join(columns(ExperimentTable), _experiment.id == _arm.experiment_id)
            .where(_experiment.host == host, *(column == v for column, v in wanted.items() if v is not None))
        )
        with self._database.read():
            return self._launches(self._rows(query.order_by(_launch.id)))

    # ------------------------------------------------------------ reading

    def experiment(self, experiment_id: int) -> ExperimentRecord:
        """With arms, launches and samples."""
        with self._database.read():
            row = self._required(ExperimentTable, experiment_id, "experiment")
            return self._complete([row])[0]

    def experiments(
        self,
        campaign: str | None = None,
        *,
        host: str | None = None,
        context: str | None = None,
        hypothesis_id: str | None = None,
        run_id: int | None = None,
        state: ExperimentState | None = None,
    ) -> list[ExperimentRecord]:
        """Without their arms, oldest first."""
        wanted = {
            _experiment.campaign: campaign, _experiment.host: host, _experiment.context: context,
            _experiment.hypothesis_id: hypothesis_id, _experiment.run_id: run_id, _experiment.state: state,
        }  # fmt: skip
        query = pick(ExperimentTable).where(*(column == v for column, v in wanted.items() if v is not None))
        return [record(ExperimentRecord, row) for row in self._rows(query.order_by(_experiment.id))]

    def mean_cost_s(self, campaign: str) -> float | None:
        """Wall-clock seconds of an experiment on a hypothesis, on average over those that came to a verdict by
        launches; None before there is one."""
        seconds = (func.julianday(_experiment.ended_at) - func.julianday(_experiment.started_at)) * 86400.0
        launched = select(_arm.experiment_id).where(_arm.kind == "treatment")
        query = select(func.avg(seconds).label("mean")).where(
            _experiment.campaign == campaign, _experiment.state == "done", _experiment.id.in_(launched)
        )
        row = self._row(query)
        return None if row is None or row["mean"] is None else float(row["mean"])

    def each_experiment(self, campaign: str) -> Iterator[ExperimentRecord]:
        """With all their parts, oldest first, read page by page."""
        last = 0
        while True:
            query = pick(ExperimentTable).where(_experiment.campaign == campaign, _experiment.id > last)
            with self._database.read():
                page = self._complete(self._rows(query.order_by(_experiment.id).limit(PAGE)))
            if not page:
                return
            yield from page
            last = page[-1].id

    def _complete(self, rows: Sequence[Row]) -> list[ExperimentRecord]:
        arms = self._rows(pick(ArmTable).where(_arm.experiment_id.in_([r["id"] for r in rows])).order_by(_arm.id))
        query = pick(LaunchTable).where(_launch.arm_id.in_([a["id"] for a in arms])).order_by(_launch.id)
        of_arm = _grouped(self._launches(self._rows(query)), lambda launch: launch.arm_id)
        arm_records = [record(ArmRecord, a, launches=of_arm[a["id"]]) for a in arms]
        of_experiment = _grouped(arm_records, lambda arm: arm.experiment_id)
        return [record(ExperimentRecord, r, arms=of_experiment[r["id"]]) for r in rows]

    def _launches(self, rows: Sequence[Row]) -> list[LaunchRecord]:
        query = pick(SampleTable).where(_sample.launch_id.in_([r["id"] for r in rows])).order_by(_sample.id)
        samples: dict[int, list[Sample]] = defaultdict(list)
        for row in self._rows(query):
            samples[row["launch_id"]].append(record(Sample, row))
        return [record(LaunchRecord, r, samples=tuple(samples[r["id"]])) for r in rows]

    def _next(self, number: Any, condition: Any) -> int:  # noqa: ANN401 - a column and a clause
        row = self._row(select(func.coalesce(func.max(number), 0).label("last")).where(condition))
        return int(row["last"]) + 1 if row else 1


def _grouped(values: Iterable[Any], key: Any) -> dict[int, tuple[Any, ...]]:  # noqa: ANN401 - records of one kind
    groups: dict[int, tuple[Any, ...]] = defaultdict(tuple)
    for value in values:
        groups[key(value)] += (value,)
    return groups
