"""One arm carried out on a host. The lifecycle's tables decide what comes next; this does it and writes it down."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.controller.watch import FATAL_GRACE_S, ServerWatch
from orchestrator.core.diagnosis import Diagnosis, diagnose
from orchestrator.core.lifecycle import ArmStep, Outcome, is_end, next_step, pending
from orchestrator.core.records import LaunchOutcome
from orchestrator.errors import Dirty, Interrupted, OrchestratorError, Unreachable
from orchestrator.serving import metrics
from orchestrator.serving.engine import LaunchPlan, plan_launch
from orchestrator.serving.gate import Answers, GateResult, collect_answers, judge_answers
from orchestrator.serving.http import get, json_body
from orchestrator.serving.treatment import Check, interpreter_probe, judge_treatment

if TYPE_CHECKING:
    from orchestrator.controller.book import ArmBook
    from orchestrator.controller.session import HostSession
    from orchestrator.controller.treatment import FileEdit, Treatment
    from orchestrator.core.model import Measure, Workload

_SERVER_STEPS = frozenset({ArmStep.READY, ArmStep.GATE, ArmStep.MEASURE, ArmStep.STOP})
_WAY_BACK = frozenset({ArmStep.STOP, ArmStep.REAP_AGAIN, ArmStep.REVERT, ArmStep.VERIFY})


@dataclass
class ArmResult:
    """What one launch of an arm came to. `value` None unless it was measured."""

    outcome: LaunchOutcome = LaunchOutcome.aborted
    end: ArmStep = ArmStep.QUARANTINED
    value: float | None = None
    samples: list[Mapping[str, Any]] = field(default_factory=list)
    answers: Answers | None = None
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

    @property
    def is_measured(self) -> bool:
        return self.outcome is LaunchOutcome.measured and self.value is not None


class ArmFailed(Exception):
    """A step came to an end that is a result, not an error."""

    def __init__(self, outcome: LaunchOutcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


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
    ) -> None:
        self._session = session
        self._treatment = treatment
        self._book = book
        self._workload = workload
        self._settings = measure
        self._baseline_answers = baseline_answers
        self._launch_id = book.launch_name
        self._plan: LaunchPlan | None = None
        self._probe: Future[dict[str, Any]] | None = None
        self._survivors: list[Mapping[str, Any]] = []
        self._watch = ServerWatch(self._launch_id, lambda p: session.narrator.server_phase(session.name, p))
        self.result = ArmResult()

    def run(self) -> ArmResult:
        """Walk the table to its end. Never raises for what happened on the host: the result says it."""
        unsubscribe = self._session.connection.on_event(self._watch)
        step = ArmStep.REAP
        try:
            while not is_end(step):
                step = next_step(step, self._carry_out(step))
        finally:
            unsubscribe()
        self.result.end = step
        self.result.log_lines = self._watch.lines
        self._book.close(self.result)
        return self.result

    def _carry_out(self, step: ArmStep) -> Outcome:
        act: Callable[[], None] = getattr(self, f"_{step.value}")
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
        files = [_file_change(edit) for edit in self._treatment.files]
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
        request = {
            "launch_id": self._launch_id,
            "argv": list(plan.argv),
            "env": dict(plan.env),
            "cwd": plan.cwd,
            "pycache": session.engine.package is not None,
            "grace_s": plan.grace_s,
            "site_b64": {name: base64.b64encode(data).decode("ascii") for name, data in site.items()},
        }
        self._book.start_launch(plan.argv)
        with self._book.intent("launch", {"argv": list(plan.argv), "env": sorted(plan.env)}) as settle:
            reply = session.call("launch", request)
            settle({"pid": reply["pid"]})
        if reply.get("site"):
            path = ":".join(filter(None, [reply["site"], plan.env.get("PYTHONPATH", "")]))
            plan = LaunchPlan(
                plan.launch_id, plan.argv, {**plan.env, "PYTHONPATH": path}, plan.cwd, plan.ready, plan.grace_s
            )
        self._plan = plan
        session.costs.launches += 1
        if session.engine.package is not None:
            probe = interpreter_probe(self._treatment.expectation, plan)
            self._probe = session.connection.submit("run", {"commands": [probe]})

    def _ready(self) -> None:
        assert self._plan is not None
        spec = {"launch_id": self._launch_id, "spec": dict(self._plan.ready)}
        reply = self._await_server("await_ready", spec, timeout_s=float(self._plan.ready["limit_s"]) + 60.0)
        self.result.ready_s = reply.get("seconds")
        state = str(reply["state"])
        if state != "ready":
            self._crash(state, reply.get("facts", {}))

    def _check(self) -> None:
        assert self._plan is not None
        session = self._session
        inspect = session.connection.submit("inspect", {"launch_id": self._launch_id})
        info_path = session.engine.info_path()
        info = None
        if info_path is not None:
            info = json_body(session.call("http", get(session.target, info_path)))
        self.result.resolved = session.engine.resolved(info) if info is not None else None
        environ = inspect.result(30.0).get("environ")
        probe = self._probe.result(60.0).get("treatment") if self._probe is not None else None
        self.result.checks = judge_treatment(
            self._treatment.expectation,
            probe=probe,
            environ=environ,
            resolved=self.result.resolved,
            log=self._watch.lines,
        )
        dead = [c for c in self.result.checks if c.holds is False]
        if dead:
            first = dead[0]
            what = f"{first.what} is {first.found}, asked was {first.asked}"
            raise ArmFailed(LaunchOutcome.not_effective, what)

    def _gate(self) -> None:
        session = self._session
        try:
            with session.interrupts.cancellable():
                answers = collect_answers(session.connection, session.engine, session.target, self._launch_id)
        except Unreachable as error:
            self._crash("generation_failed", {"error": error.what})
            return
        self.result.answers = answers
        if self._baseline_answers:
            self.result.gate = judge_answers(self._baseline_answers, answers)
            if not self.result.gate.passed:
                raise ArmFailed(LaunchOutcome.wrong_output, self.result.gate.sentence)

    def _measure(self) -> None:
        session = self._session
        spec = session.engine.decode_spec(session.target, self._workload, self._settings, self._launch_id)
        request = {"launch_id": self._launch_id, "spec": spec}
        reply = self._await_server("decode", request, timeout_s=3600.0)
        samples = list(reply["samples"])
        self.result.samples = samples
        if self._watch.is_lost:
            self._crash("exited", {})
        found = metrics.problems(samples, output_tokens=self._workload.output_tokens)
        if found:
            raise ArmFailed(LaunchOutcome.invalid, "; ".join(found))
        self.result.value = metrics.launch_value(samples, self._settings.metric)
        self.result.outcome = LaunchOutcome.measured

    # ---------------------------------------------------------------- the way back

    def _stop(self) -> None:
        session = self._session
        with self._book.intent("stop", {"launch_id": self._launch_id}) as settle:
            grace = session.target.stop_grace
            reply = session.call_back("stop", {"launch_id": self._launch_id, "grace_s": grace})
            settle({"exit_code": reply.get("exit_code"), "survivors": len(reply.get("survivors", []))})
        self.result.exit_code = reply.get("exit_code")
        self.result.signal = reply.get("signal")
        self._survivors = list(reply.get("survivors", []))
        if self.result.outcome in _NEEDS_DIAGNOSIS:
            self._diagnose()

    def _reap_again(self) -> None:
        if self._survivors:
            pids = ", ".join(f"{p['pid']} ({p.get('state', '?')})" for p in self._survivors)
            raise Dirty(f"processes of ours are still there: {pids}", facts={"host": self._session.name})
        self._session.await_idle_memory()

    def _revert(self) -> None:
        if not self._treatment.files:
            return
        with self._book.intent("revert", {"txn": self._book.txn}) as settle:
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

    # ---------------------------------------------------------------- what the server does

    def _await_server(self, do: str, with_: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Wait for a reply that depends on the server, and no longer than the server lives."""
        session = self._session
        future = session.connection.submit(do, with_)
        with session.interrupts.cancellable():
            return self._first_of(future, timeout_s)

    def _first_of(self, future: Future[dict[str, Any]], timeout_s: float) -> dict[str, Any]:
        watch, clock = self._watch, self._session.clock
        future.add_done_callback(lambda _: watch.wake.set())
        deadline = clock.monotonic() + timeout_s
        while (left := deadline - clock.monotonic()) > 0:
            watch.wake.wait(min(left, 1.0))
            watch.wake.clear()
            if watch.is_lost:
                wait([future], timeout=FATAL_GRACE_S)
            if future.done():
                return future.result()
            if watch.is_lost:
                self._crash("exited", {})
        raise Unreachable(f"{self._session.name} gave no answer within {timeout_s:.0f} s")

    def _crash(self, state: str, facts: Mapping[str, Any]) -> None:
        """The server did not come up, or was lost: named after how."""
        if self._watch.is_lost:
            state = "exited"  # a dying server's socket belongs to nobody for a moment, and looks like a stranger's
        outcome = _OUTCOMES.get(state, LaunchOutcome.exited)
        detail = self._watch.fatal or ", ".join(f"{k} {v}" for k, v in facts.items())
        raise ArmFailed(outcome, f"{state}: {detail}" if detail else state)

    def _diagnose(self) -> None:
        treatment = self._treatment
        self.result.diagnosis = diagnose(
            self._watch.text,
            exit_code=self.result.exit_code,
            changed_paths=treatment.changed_paths,
            changed_names=treatment.changed_names,
        )
        if self.result.diagnosis.cause_line:
            self.result.reason = self.result.diagnosis.cause_line


_OUTCOMES = {state.value: state for state in LaunchOutcome}
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


def _file_change(edit: FileEdit) -> dict[str, Any]:
    """A file edit as the agent's `apply` takes it."""
    kind = "create" if edit.before is None else "delete" if edit.after is None else "replace"
    return {
        "path": edit.path,
        "kind": kind,
        "before_sha256": None if edit.before is None else hashlib.sha256(edit.before).hexdigest(),
        "content_b64": None if edit.after is None else base64.b64encode(edit.after).decode("ascii"),
        "mode": edit.mode,
    }
