"""A whole run without a host: the real ledger, agenda, statistics and isolation; launches come out of a table.

What a launch yields follows from its changes and from how often it was done before, so that a run that was cut off and
gone on with can be held against one that was not. `Killed` strikes at a given write to the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from orchestrator.controller.agenda import Agenda
from orchestrator.controller.arm import ArmResult
from orchestrator.controller.book import Book
from orchestrator.controller.campaign import CampaignRun, Trial
from orchestrator.controller.course import Course
from orchestrator.controller.goals import GoalReport
from orchestrator.controller.launcher import Changes, Launcher
from orchestrator.controller.narration import Costs, Silent
from orchestrator.controller.resume import CONTINUES, recall, run_chain
from orchestrator.controller.spending import Spender
from orchestrator.controller.treatment import Layout, Treatment, untouched
from orchestrator.core.diagnosis import Diagnosis
from orchestrator.core.lifecycle import ArmStep
from orchestrator.core.model import Hypothesis, Measure, Playbook, Target
from orchestrator.core.records import ArmKind, ExperimentRecord, LaunchOutcome
from orchestrator.ledger import Ledger, open_ledger
from orchestrator.serving.configuration import Configuration
from orchestrator.serving.gate import Answers

DIGEST = "one-playbook"
PROOF = {"clean": True, "digest": "d", "found_digest": "d", "files": 1, "differences": []}


class Killed(BaseException):
    """The process is gone at once: nothing else is written."""


@dataclass
class Clock:
    at: float = 1_790_000_000.0

    def now(self) -> float:
        self.at += 0.001
        return self.at

    def monotonic(self) -> float:
        return self.now()


Model = Callable[[str, frozenset[str]], float | str]
"""(context, what is changed, as `NAME=VALUE`) → tokens a second, or the cause of a crash."""


class SimulatedLauncher(Launcher):
    """Launches are rows of the ledger, and a value out of the model; within and between launches there is noise."""

    def __init__(self, *args: Any, model: Model, noise: float, launch_s: float, **more: Any) -> None:
        super().__init__(*args, **more)
        self.model = model
        self.noise = noise
        self.launch_s = launch_s

    def run_arm(
        self,
        experiment: ExperimentRecord,
        kind: ArmKind,
        context: str,
        treatment: Treatment,
        changes: Changes,
        measure: Measure | None = None,
    ) -> ArmResult:
        self._spender.allow(self.session)
        book = self.book.arm(experiment, kind, changes)
        with book.launching(["server"], {}) as settle:
            settle({"pid": 1})
        result = self._result(context, words(changes))
        cast("Clock", self.session.clock).at += self.launch_s
        result.measured_at = self.session.clock.now()
        book.prove(PROOF)
        book.close(result)
        self._spender.count(self.launch_s)
        return result

    def _result(self, context: str, changed: frozenset[str]) -> ArmResult:
        said = self.model(context, changed)
        if isinstance(said, str):
            told = Diagnosis("failed", said, cause_line=said)
            return ArmResult(LaunchOutcome.exited, ArmStep.CLEAN, diagnosis=told, reason=said, exit_code=1)
        done = [x for x in self.book.ledger.launches(host="lab", context=context) if x.outcome == "measured"]
        before = sum(1 for x in done if x.facts.get("changed") == sorted(changed))
        value = said * (1 + self.noise * Random(f"{context}/{sorted(changed)}/{before}").gauss(0, 1))
        tokens = self.workload(context).output_tokens
        sample = {
            "repetition": 0, "stream": 0, "ok": True, "prompt_tokens": self.workload(context).prompt_tokens,
            "output_tokens": tokens, "ttft_s": 0.1,
            "decode_s": tokens / value, "decode_tokens": tokens, "total_s": tokens / value + 0.1, "accept_length": None,
        }  # fmt: skip
        return ArmResult(
            LaunchOutcome.measured,
            ArmStep.CLEAN,
            value=value,
            samples=[sample],
            answers=Answers({"q": "a"}, {"q": "a"}),
            ready_s=1.0,
            seen={"changed": sorted(changed)},
        )


class SimulatedAgenda(Agenda):
    """Everything fits, and nothing is required."""

    def prepare(self) -> list[Trial]:
        ledger, playbook = self._prepared.ledger, self._prepared.playbook
        ledger.upsert_hypotheses(playbook.campaign, playbook.hypotheses)
        return []

    def make_ready(self, wanted: Sequence[tuple[Hypothesis, str]]) -> list[Trial]:
        nothing = untouched(Configuration(), Layout("/t/p", "/t"))
        return [Trial(h, c, nothing) for h, c in wanted]


def words(changes: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """What is changed, by name and value."""
    found: set[str] = set()
    for change in changes:
        for body in (change.get("env"), change.get("args"), (change.get("sitecustomize") or {}).get("env")):
            found |= {f"{name}={value}" for name, value in (body or {}).items()}
    return frozenset(found)


@dataclass
class Simulation:
    """One state directory, and the runs that are carried out over it."""

    state: Path
    playbook: Playbook
    model: Model
    noise: float = 0.004
    launch_s: float = 60.0
    clock: Clock = field(default_factory=Clock)
    until_s: float | None = None
    goal: GoalReport | None = None

    def run(self, *, resume: bool = False, die_at: int | None = None, only: Collection[str] = ()) -> Course:
        """`die_at`: the number of the write to the ledger at which the process is killed."""
        with open_ledger(self.state, clock=self.clock) as ledger:
            if die_at is not None:
                _arm(ledger, die_at)
            return self._run(ledger, resume=resume, only=only)

    def _run(self, ledger: Ledger, *, resume: bool, only: Collection[str]) -> Course:
        row = self._row(ledger, resume=resume)
        narrator, interrupts = Silent(), SimpleNamespace(check=lambda: None, requested=False)
        target = Target(python="python")
        session: Any = SimpleNamespace(
            name="lab", narrator=narrator, interrupts=interrupts, clock=self.clock, costs=Costs(self.clock),
            target=target, layout=Layout("/t/p", "/t"), connection=None, base_env={},
        )  # fmt: skip
        history: Any = SimpleNamespace()
        book = Book(ledger, history, run_id=row.id, host="lab", tree="/t/p", name_prefix=f"sim-{row.id}")
        fingerprint = ledger.fingerprint("lab", {"gpu": "none"})
        spender = Spender(ledger, row, self.playbook.budget, self.until_s, 2)
        launcher = SimulatedLauncher(
            session, book, self.playbook, fingerprint_id=fingerprint.id, spender=spender, mask=lambda data: data,
            model=self.model, noise=self.noise, launch_s=self.launch_s,
        )  # fmt: skip
        loaded = SimpleNamespace(texts={}, digest=DIGEST)
        prepared: Any = SimpleNamespace(ledger=ledger, playbook=self.playbook, loaded=loaded)
        runs = run_chain(ledger, row, DIGEST)
        agenda = SimulatedAgenda(prepared, session, {}, tuple(only), run_id=row.id, runs=runs)
        campaign = CampaignRun(launcher, facts={})
        if resume:
            campaign.go_on(recall(ledger, row, fingerprint.id, DIGEST), None)
        course = Course(prepared, campaign, agenda, is_part=bool(only))
        try:
            course.run(wants_best=False)
        except Killed:
            raise
        except BaseException:
            ledger.abort_open(row.id, "ended")
            ledger.end_run(row.id, "interrupted")
            raise
        finally:
            book.close()
        self.goal = course.goal()
        ledger.end_run(row.id, "done")
        return course

    def _row(self, ledger: Ledger, *, resume: bool) -> Any:
        if resume:
            unfinished = ledger.unfinished_run(self.playbook.campaign, "lab")
            if unfinished is not None:
                return unfinished
            before = ledger.runs(self.playbook.campaign)[-1]
            assert before.state != "done"
            return ledger.start_run(self.playbook.campaign, DIGEST, "lab", "", options={CONTINUES: before.id})
        return ledger.start_run(self.playbook.campaign, DIGEST, "lab", "")

    # ---------------------------------------------------------------- what came out

    def findings(self) -> list[tuple[str | None, str, str]]:
        with open_ledger(self.state, clock=self.clock) as ledger:
            return [(f.hypothesis_id, f.context, f.verdict.value) for f in ledger.findings()]

    def launches(self) -> list[tuple[str, str, tuple[str, ...], str]]:
        """Every launch that came to an end: context, arm, what was changed, outcome."""
        with open_ledger(self.state, clock=self.clock) as ledger:
            found = []
            for row in ledger.experiments():
                for arm in ledger.experiment(row.id).arms:
                    changed = tuple(sorted(words(arm.changes)))
                    found += [
                        (row.context, arm.kind, changed, str(launch.outcome))
                        for launch in arm.launches
                        if launch.outcome not in (None, LaunchOutcome.lost)
                    ]
            return found

    def problems(self) -> list[str]:
        with open_ledger(self.state, clock=self.clock) as ledger:
            return [problem.what for problem in ledger.check()]


def _arm(ledger: Ledger, die_at: int) -> None:
    """Die when the `die_at`-th write is about to begin."""
    database: Any = ledger._database
    write, count = database.write, [0]

    def counted() -> Any:
        count[0] += 1
        if count[0] >= die_at:
            raise Killed
        return write()

    database.write = counted


def playbook(hypotheses: Sequence[Mapping[str, Any]], **more: Any) -> Playbook:
    measure = more.pop("measure", Measure(repetitions=1, launches=3))
    return Playbook(
        campaign="c",
        measure=measure,
        hypotheses=tuple(Hypothesis.model_validate({"claim": "x", **h}) for h in hypotheses),
        **more,
    )
