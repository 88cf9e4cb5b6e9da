"""The check of answers on a live server: greedy answers, prompts that must be followed, and a task's score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.controller.dialogue import ArmFailed
from orchestrator.controller.measuring import run_client
from orchestrator.core.records import LaunchOutcome
from orchestrator.errors import Unreachable
from orchestrator.serving.benchmarks import Unreadable, plan_accuracy, read_score
from orchestrator.serving.gate import Answers, collect_answers, judge_answers, judge_score

if TYPE_CHECKING:
    from orchestrator.controller.arm import ArmResult
    from orchestrator.controller.dialogue import Dialogue
    from orchestrator.controller.session import HostSession
    from orchestrator.core.model import Gate


class Gating:
    """Of one launch. Fills `result`; raises `ArmFailed` as `wrong_output`, before anything is measured."""

    def __init__(self, session: HostSession, dialogue: Dialogue, gate: Gate, result: ArmResult) -> None:
        self._session, self._dialogue, self._gate, self._result = session, dialogue, gate, result

    def run(self, baseline: Sequence[Answers], scores: Sequence[float]) -> None:
        """`baseline`, `scores`: of the baseline's launches; empty for the baseline itself, which is only asked."""
        answers = self._ask()
        self._result.answers = answers
        if baseline:
            verdict = self._result.gate = judge_answers(baseline, answers, self._gate)
            if not verdict.passed:
                raise ArmFailed(LaunchOutcome.wrong_output, verdict.sentence)
        if self._gate.accuracy is not None:
            self._score(scores)

    def _ask(self) -> Answers:
        session, gate = self._session, self._gate
        try:
            return self._dialogue.carry_out(
                lambda: collect_answers(
                    session.connection, session.engine, session.target, self._dialogue.launch_id, gate
                ),
                timeout_s=session.target.ready.stall,
            )
        except Unreachable as error:
            self._dialogue.fall_silent(error, {"at": "the gate's questions"})

    def _score(self, baseline: Sequence[float]) -> None:
        accuracy = self._gate.accuracy
        assert accuracy is not None
        plan = plan_accuracy(accuracy, self._session.target, self._session.base_env)
        reply = run_client(self._session, self._dialogue, plan, "accuracy", {})
        self._dialogue.refuse_lost()
        if reply.get("hung"):
            self._dialogue.fail("hung", reply["hung"])
        try:
            score = read_score(accuracy, reply)
        except Unreadable as problem:
            raise ArmFailed(LaunchOutcome.invalid, str(problem)) from problem
        self._result.score = score
        self._result.seen["score"] = {"value": score, "command": plan.shown(self._session.target.secrets)}
        wrong = judge_score(baseline, score, accuracy.floor)
        if wrong is not None:
            raise ArmFailed(LaunchOutcome.wrong_output, wrong)
