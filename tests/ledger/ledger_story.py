"""A clock that ticks and a campaign in short words, for the tests of the ledger."""

from __future__ import annotations

import itertools

from orchestrator.core.model import Hypothesis
from orchestrator.core.records import Conclusion, ExperimentRecord, FindingRecord, RevertProof, Sample, Verdict
from orchestrator.ledger import Ledger

EPOCH_S = 1_772_366_400.0  # 2026-03-01T12:00:00Z


class Clock:
    """Every look is one second later; `skip` moves on."""

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self._skipped_s = 0.0

    def now(self) -> float:
        return EPOCH_S + next(self._ticks) + self._skipped_s

    def monotonic(self) -> float:
        return float(next(self._ticks)) + self._skipped_s

    def skip(self, seconds: float) -> None:
        self._skipped_s += seconds


PROOF = RevertProof(clean=True, found_digest="f" * 64, now_digest="f" * 64, files=1432)


class Story:
    """A ledger and short ways to fill it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.run = ledger.start_run("camp", "d" * 64, "gpu1", "campaign: camp\n", description="A campaign", pid=1)
        ledger.upsert_hypotheses("camp", [hypothesis("fewer-channels"), hypothesis("tree")])
        self._names = itertools.count(1)

    def begin(self, hypothesis_id: str | None = "fewer-channels") -> ExperimentRecord:
        return self.ledger.start_experiment(self.run.id, hypothesis_id, "gpu1", "plain")

    def launch(self, arm_id: int, samples: int = 3) -> int:
        launch = self.ledger.start_launch(arm_id, f"L{next(self._names)}", ["python3", "-m", "server"])
        self.ledger.add_samples(launch.id, [Sample(repetition=n, ttft_s=0.1, decode_s=1.0) for n in range(samples)])
        self.ledger.end_launch(launch.id, "measured", exit_code=0)
        return launch.id

    def finish(self, experiment: ExperimentRecord, conclusion: Conclusion | None = None) -> FindingRecord:
        ledger = self.ledger
        arm = ledger.start_arm(experiment.id, "treatment")
        self.launch(arm.id)
        ledger.end_arm(arm.id, PROOF)
        conclusion = conclusion or Conclusion(verdict=Verdict.improved, effect=0.05, low=0.04, high=0.06)
        with ledger.batch():
            finding = ledger.add_finding(experiment.id, conclusion)
            ledger.end_experiment(experiment.id, "done", conclusion.verdict)
        return finding


def hypothesis(name: str, **more: object) -> Hypothesis:
    values = {"claim": f"{name} helps", "family": "nccl", "changes": [{"env": {"NAME": name, "GONE": None}}]} | more
    return Hypothesis.model_validate({"id": name} | values)
