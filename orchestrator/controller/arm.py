"""One arm carried out on a host. The lifecycle's tables decide what comes next; this does it and writes it down."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.controller import lastgood, warmup
from orchestrator.controller.dialogue import ArmFailed, Dialogue
from orchestrator.controller.gating import Gating
from orchestrator.controller.measuring import Measuring
from orchestrator.controller.splices import file_change
from orchestrator.controller.watch import ServerWatch
from orchestrator.core.diagnosis import Diagnosis, diagnose
from orchestrator.core.lifecycle import ArmStep, Outcome, is_end, next_step, pending
from orchestrator.core.model import Gate
from orchestrator.core.records import LaunchOutcome
from orchestrator.core.secrets import mask_env
from orchestrator.errors import Dirty, Interrupted, OrchestratorError
from orchestrator.serving.engine import LaunchPlan, plan_launch
from orchestrator.serving.gate import Answers, GateResult
from orchestrator.serving.treatment import Check, interpreter_probe, judge_treatment

if TYPE_CHECKING:
    from orchestrator.controller.book import ArmBook
    from orchestrator.controller.session import HostSession
    from orchestrator.controller.treatment import Treatment
    from orchestrator.core.measures import Guards
    from orchestrator.core.model import Measure, Workload
    from orchestrator.serving.record import Record

_SERVER_STEPS = frozenset({ArmStep.READY, ArmStep.GATE, ArmStep.MEASURE, ArmStep.STOP})
_WAY_BACK = frozenset({ArmStep.STOP, ArmStep.REAP_AGAIN, ArmStep.REVERT, ArmStep.VERIFY})


@dataclass
class ArmResult:
    """What one launch of an arm came to. `value` None unless it was measured. `capacity`: tokens that its cache holds.
    `score`: of the gate's task. `caveats`: doubts that do not block. `seen`: what else is worth keeping of the launch,
    as plain data. `told_environ`: compared and not kept."""

    outcome: LaunchOutcome = LaunchOutcome.aborted
    end: ArmStep = ArmStep.QUARANTINED
    value: float | None = None
    measured_at: float | None = None
    samples: list[Mapping[str, Any]] = field(default_factory=list)
    answers: Answers | None = None
    score: float | None = None
    gate: GateResult | None = None
    checks: list[Check] = field(default_factory=list)
    diagnosis: Diagnosis | None = None
    reason: str = ""
    error: OrchestratorError | None = None
    ready_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    log_lines: list[str] = field(default_factory=list)
    proof: Mapping[str, Any] | None = None
    resolved: Mapping[str, Any] | None = None
    record: Record | None = None
    caveats: list[str] = field(default_factory=list)
    capacity: int | None = None
    seen: dict[str, Any] = field(default_factory=dict)
    told_environ: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_measured(self) -> bool:
        return self.outcome is LaunchOutcome.measured and self.value is not None


class Arm:
    """Baseline or treatment, from reap to verify. Used once."""

    def __init__(
        self,
        session: HostSession,
        treatment: Treatment,
        book: ArmBook,
        *,
        workload: Workload,
        measure: Measure,
        baseline_answers: Sequence[Answers] = (),
        baseline_capacity: int | None = None,
        guardrails: Guards | None = None,
        gate: Gate | None = None,
        baseline_scores: Sequence[float] = (),
    ) -> None:
        self._session = session
        self._treatment = treatment
        self._book = book
        self._workload = workload
        self._settings = measure
        self._baseline_answers = baseline_answers
        self._baseline_capacity = baseline_capacity
        self._guardrails = guardrails or {}
        self._gate_settings = gate or Gate()
        self._baseline_scores = baseline_scores
        self._launch_id = book.launch_name
        self._plan: LaunchPlan | None = None
        self._probe: Future[dict[str, Any]] | None = None
        self._survivors: list[Mapping[str, Any]] = []
        self._idle: Future[None] | None = None
        self._watch = ServerWatch(
            self._launch_id,
            lambda p: session.narrator.server_phase(session.name, p),
            lambda sentence: session.narrator.note(f"{session.name}: {sentence}"),
        )
        self.result = ArmResult()
        self._dialogue = Dialogue(session, self._watch, self.result.seen)

    def run(self, *, adopted: bool = False) -> ArmResult:
        """Walk the table to its end. Never raises for what happened on the host: the result says it.

        `adopted`: the change is applied and the server launched already, by a controller that is gone. Its readiness is
        asked again: that costs nothing where it serves, and proves once more who owns the port.
        """
        unsubscribe = self._session.connection.on_event(self._watch)
        step = ArmStep.READY if adopted else ArmStep.REAP
        try:
            if adopted and self._carry_out(ArmStep.LAUNCH, self._adopt) is Outcome.FAILED:
                step = next_step(ArmStep.LAUNCH, Outcome.FAILED)
            while not is_end(step):
                step = next_step(step, self._carry_out(step))
        finally:
            unsubscribe()
        self.result.end = step
        self.result.log_lines = self._watch.lines
        self._book.close(self.result)
        return self.result

    def _carry_out(self, step: ArmStep, instead: Callable[[], None] | None = None) -> Outcome:
        act: Callable[[], None] = instead or getattr(self, f"_{step.value}")
        owner = "server" if step in _SERVER_STEPS else "ours"
        session = self._session
        session.narrator.phase(session.name, step.value, self._book.label if step is ArmStep.REAP else "")
        start = session.clock.monotonic()
        word = "ok"
        try:
            if step in _WAY_BACK:
                with session.interrupts.retreating(self._pending(step)):
                    act()
            else:
                session.interrupts.check()
                act()
        except ArmFailed as failed:
            self._fail(failed.outcome, failed.reason)
            word = f"{failed.outcome}: {failed.reason}"
        except Interrupted as error:
            self._fail(LaunchOutcome.aborted, "stopped on request", error)
            word = "interrupted"
        except OrchestratorError as error:
            self._fail(self._outcome_of(step), error.what, error)
            word = error.what
        seconds = session.clock.monotonic() - start
        session.costs.add(step.value, seconds, owner)  # type: ignore[arg-type]
        session.narrator.phase_done(session.name, step.value, seconds, word)
        return Outcome.OK if word == "ok" else Outcome.FAILED

    def _pending(self, step: ArmStep) -> str:
        return ", ".join(s.value.replace("_", " ") for s in (step, *pending(step))) + f" on {self._session.name}"

    def _fail(self, outcome: LaunchOutcome, reason: str, error: OrchestratorError | None = None) -> None:
        """The first failure names the result; what fails on the way back is kept beside it."""
        if not self.result.reason:
            self.result.outcome = outcome
            self.result.reason = reason
        if error is not None and (self.result.error is None or isinstance(error, Dirty)):
            self.result.error = error

    @staticmethod
    def _outcome_of(step: ArmStep) -> LaunchOutcome:
        return LaunchOutcome.lost if step in _WAY_BACK else LaunchOutcome.aborted

    # ---------------------------------------------------------------- forward

    def _reap(self) -> None:
        self._session.reap()

    def _apply(self) -> None:
        if not self._treatment.files:
            return
        files = [file_change(edit) for edit in self._treatment.files]
        self._book.keep_found(self._treatment.files)
        with self._book.intent("apply", {"files": [f["path"] for f in files]}) as settle:
            reply = self._session.call("apply", {"txn": self._book.txn, "files": files})
            settle({"files": len(reply["files"])})
        self._book.keep_patched(self._treatment.files)

    def _launch(self) -> None:
        session = self._session
        plan = plan_launch(
            session.target, self._treatment.configuration, session.base_env, self._launch_id, cwd=session.cwd
        )
        site = self._treatment.configuration.site
        self.result.seen[lastgood.KEY] = mask_env(plan.env, session.target.secrets)
        caches = warmup.own_caches(session, self._treatment)
        self.result.seen["own_caches"] = {"names": list(caches.names), "why": caches.why}
        request = {
            "launch_id": self._launch_id,
            "argv": list(plan.argv),
            "env": dict(plan.env),
            "cwd": plan.cwd,
            "pycache": True,  # a server of any engine may be Python, and compile what is patched
            "grace_s": plan.grace_s,
            "own_caches": list(caches.names),
            "from_service": list(session.target.from_service),
            "site_b64": {name: base64.b64encode(data).decode("ascii") for name, data in site.items()},
        }
        session.idle_proved_at = float("-inf")  # from here on the memory may be taken
        told = {"argv": list(plan.argv), "env": sorted(plan.env)}
        with self._book.launching(plan.argv, told) as settle:
            reply = session.call("launch", request)
            settle({"pid": reply["pid"]})
        session.costs.launches += 1
        self._take(plan, reply)

    def _take(self, plan: LaunchPlan, reply: Mapping[str, Any]) -> None:
        """The plan as it is in force, and what its interpreter says of the treatment."""
        session = self._session
        session.idle_proved_at = float("-inf")
        if reply["first"]:
            path = ":".join(filter(None, [*reply["first"], plan.env.get("PYTHONPATH", "")]))
            plan = LaunchPlan(
                plan.launch_id, plan.argv, {**plan.env, "PYTHONPATH": path}, plan.cwd, plan.ready, plan.grace_s
            )
        self._plan = plan
        if session.engine.package is not None:
            probe = interpreter_probe(self._treatment.expectation, plan, pycache=reply.get("pycache"))
            self._probe = session.connection.submit("run", {"commands": [probe]})

    def _adopt(self) -> None:
        """Go on with the server that is there: the same process, and launched as we would launch it."""
        session = self._session
        plan = plan_launch(
            session.target, self._treatment.configuration, session.base_env, self._launch_id, cwd=session.cwd
        )
        with self._book.intent("launch", {"adopted": self._launch_id}) as settle:
            reply = session.call("adopt", {"launch_id": self._launch_id})
            settle({"pid": reply["pid"]})
        if tuple(reply["argv"]) != plan.argv:
            raise ArmFailed(
                LaunchOutcome.wrong_server, "the server was launched with other words than are asked for now"
            )
        self._take(plan, reply)

    def _ready(self) -> None:
        assert self._plan is not None
        session, result = self._session, self.result
        warmup.await_ready(session, self._dialogue, self._plan, result)
        warmup.warm_up(session, self._dialogue, self._workload, result, self._watch.lines)
        warmup.compare_capacity(self._baseline_capacity, self._treatment, result)

    def _check(self) -> None:
        session = self._session
        asked = self._treatment.expectation
        names = sorted({*asked.environ, *asked.python_environ})
        seen = session.call("inspect", {"launch_id": self._launch_id, "names": names})
        warmup.note_process(self.result, seen)
        probe = self._probe.result(60.0).get("treatment") if self._probe is not None else None
        self.result.checks = judge_treatment(
            self._treatment.expectation,
            probe=probe,
            environ=seen.get("environ"),
            resolved=self.result.resolved,
            log=self._watch.lines,
            ranks=seen.get("ranks", ()),
            told=self.result.told_environ,
        )
        dead = [c for c in self.result.checks if c.holds is False]
        if dead:
            first = dead[0]
            what = f"{first.what} is {first.found}, asked was {first.asked}"
            raise ArmFailed(LaunchOutcome.not_effective, what)

    def _gate(self) -> None:
        Gating(self._session, self._dialogue, self._gate_settings, self.result).run(
            self._baseline_answers, self._baseline_scores
        )

    def _measure(self) -> None:
        Measuring(self._session, self._dialogue, self._workload, self._settings, self.result, self._guardrails).run()
        self.result.outcome = LaunchOutcome.measured

    # ---------------------------------------------------------------- the way back

    def _stop(self) -> None:
        self._watch.end_record()
        ended_by_itself = self._watch.exit is not None
        session = self._session
        with self._book.way_back("stop", {"launch_id": self._launch_id}) as settle:
            # Nobody waits for the manners of a server that is lost: some linger for a minute, with an open port.
            is_beyond = self._watch.is_lost or self.result.outcome in _BEYOND_GRACE
            grace = 0.0 if is_beyond else session.target.stop_grace
            self._watch.is_ending = True
            reply = session.call_back("stop", {"launch_id": self._launch_id, "grace_s": grace})
            settle({"exit_code": reply.get("exit_code"), "survivors": len(reply.get("survivors", []))})
        self.result.exit_code = reply.get("exit_code")
        self.result.signal = reply.get("signal")
        self._survivors = list(reply.get("survivors", []))
        if self.result.outcome in _NEEDS_DIAGNOSIS:
            self._diagnose(self.result.exit_code if ended_by_itself else None)

    def _reap_again(self) -> None:
        if self._survivors:
            pids = ", ".join(f"{p['pid']} ({p.get('state', '?')})" for p in self._survivors)
            raise Dirty(f"processes of ours are still there: {pids}", facts={"host": self._session.name})
        self._idle = self._session.begin_idle_wait()

    def _revert(self) -> None:
        if not self._treatment.files:
            return
        with self._book.way_back("revert", {"txn": self._book.txn}) as settle:
            reply = self._session.call_back("revert", {"txn": self._book.txn, "reason": "end of arm"})
            settle({"state": reply["state"]})
        self._book.keep_reverted(self._treatment.files)

    def _verify(self) -> None:
        reply = self._session.call_back("verify", {}, timeout_s=600.0)
        self.result.proof = reply
        self._book.prove(reply)
        if not reply["clean"]:
            ours = [d["path"] for d in reply["differences"] if d["ours"]]
            raise Dirty(
                f"{self._session.name} is not as it was found",
                facts={"differs": ", ".join(ours[:5])},
                hint=f"orchestrator host verify {self._session.name}",
            )
        if self._survivors:
            raise Dirty(f"{self._session.name} still runs processes of ours")
        self._settle_memory()

    def _settle_memory(self) -> None:
        """Memory that does not come back takes the result away, and holds up whoever wants to launch next."""
        if self._idle is None:
            return
        self._session.look_ahead()
        try:
            self._idle.result()
        except OrchestratorError as error:
            self._fail(LaunchOutcome.lost, error.what, error)

    def _diagnose(self, exit_code: int | None) -> None:
        treatment = self._treatment
        self.result.diagnosis = diagnose(
            self._watch.text,
            exit_code=exit_code,
            changed_paths=treatment.changed_paths,
            changed_names=treatment.changed_names,
        )
        self.result.reason = self._watch.cause_of(self.result.diagnosis) or self.result.reason


_BEYOND_GRACE = frozenset({LaunchOutcome.hung, LaunchOutcome.stranger})
_NEEDS_DIAGNOSIS = frozenset(
    {
        LaunchOutcome.exited,
        LaunchOutcome.hung,
        LaunchOutcome.timeout,
        LaunchOutcome.generation_failed,
        LaunchOutcome.stranger,
        LaunchOutcome.wrong_server,
    }
)
