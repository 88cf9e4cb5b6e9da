"""A state directory in which everything that the dashboard can show is there, with fixed times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from orchestrator.core.model import Hypothesis, Inventory
from orchestrator.core.records import Conclusion, LaunchOutcome, RevertProof, Sample, Verdict

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from orchestrator.ledger import Ledger

START = 1_772_366_400.0  # 2026-03-01T12:00:00Z
HOSTILE = "\x1b[31m[red]mean[/red] \x07 \u202e text"
FOUND = b"def fuse(x):\n    if arch == 100:\n        return fast(x)\n    return slow(x)\n"
PATCHED = FOUND.replace(b"arch == 100", b"arch in (100, 120)")


Opened = Callable[..., Any]
"""Width, height, `may_write` → a context with the application and its pilot."""


class SteppedClock:
    def __init__(self) -> None:
        self.at = START

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def _hypothesis(name: str, family: str, **more: Any) -> Hypothesis:
    body = {"id": name, "claim": f"{name} is faster", "family": family, "changes": [{"env": {"A": "1"}}], **more}
    return Hypothesis.model_validate(body)


TODO = (
    _hypothesis("nccl-tree", "all-reduce", expect="15%"),
    _hypothesis("fusion", "all-reduce", expect="80%"),
    _hypothesis("expert-parallel", "fewer-calls", expect="30%"),
    _hypothesis("fewer-channels", "all-reduce", expect="5%"),
)


def conclusions() -> dict[str, Conclusion]:
    """Hypothesis → what was found of it."""
    return {
        "expert-parallel": Conclusion(
            verdict=Verdict.improved, summary="improved +24.1%", effect=0.241, low=0.048, high=0.471, confidence=0.95,
            baseline=60.5, treatment=75.1, baseline_launches=1, treatment_launches=1, evidence=("screened",),
        ),
        "fusion": Conclusion(
            verdict=Verdict.crashed, summary="crashed", cause=f"RuntimeError: {HOSTILE}", closes=True,
            depends_on={"gpu_arch": "12.0", "sglang": "0.5.10.post1"},
        ),
    }  # fmt: skip


def fill(ledger: Ledger, clock: SteppedClock) -> int:
    """A run that is under way, and what it has done; returns its id."""
    names = ("gpu1", "gpu2", "gpu3")
    hosts = {name: {"route": {"ssh": f"root@{name}"}, "target": "t", "write": name != "gpu3"} for name in names}
    targets = {"t": {"engine": "sglang", "python": "/venv/bin/python", "model": "/m", "port": 30000, "gpus": [0, 1]}}
    ledger.remember_inventory(Inventory.model_validate({"hosts": hosts, "targets": targets}))
    ledger.release("gpu3", "proved clean")
    ledger.quarantine("gpu2", f"2 files differ {HOSTILE}")
    run = ledger.start_run("first-try", "digest", "gpu1", "text")
    ledger.upsert_hypotheses("first-try", TODO)
    for place, row in enumerate(TODO):
        ledger.set_rank("first-try", row.id, 40.0 - 10 * place, f"rank {place}: expected gain over cost")
    gpus = [{"index": i, "name": "RTX PRO 6000", "memory_total_mib": 97887} for i in (0, 1)]
    ledger.fingerprint("gpu1", {"gpus": gpus, "driver": "580.95", "cuda": "12.9"})
    for name, conclusion in conclusions().items():
        _experiment(ledger, clock, run.id, name, conclusion)
    experiment = ledger.start_experiment(run.id, "nccl-tree", "gpu1", "plain")
    ledger.set_status("first-try", "nccl-tree", "running", "under way")
    arm = ledger.start_arm(experiment.id, "treatment")
    ledger.start_launch(arm.id, "orc-3-1", ["python", "-m", "sglang.launch_server"])
    ledger.settle(ledger.intend("launch", {"argv": ["python", "-m", "sglang"]}, experiment_id=experiment.id), "done")
    ledger.set_phase(experiment.id, "launch")
    return run.id


def _experiment(ledger: Ledger, clock: SteppedClock, run: int, name: str, conclusion: Conclusion) -> None:
    experiment = ledger.start_experiment(run, name, "gpu1", "plain", changes=[{"patch": "fusion.patch"}])
    arm = ledger.start_arm(experiment.id, "treatment")
    ledger.add_artifact("found", FOUND, name="/srv/tree/fuse.py", experiment_id=experiment.id)
    ledger.add_artifact("patched", PATCHED, name="/srv/tree/fuse.py", experiment_id=experiment.id)
    intent = ledger.intend("apply", {"files": ["/srv/tree/fuse.py"]}, experiment_id=experiment.id)
    clock.at += 2.0
    ledger.settle(intent, "done", {"files": 1})
    launch = ledger.start_launch(arm.id, f"orc-{experiment.id}-1", ["python", "-m", "sglang.launch_server"])
    clock.at += 60.0
    is_measured = conclusion.verdict.is_measured
    outcome = LaunchOutcome.measured if is_measured else LaunchOutcome.exited
    ledger.end_launch(launch.id, outcome, cause=conclusion.cause, facts={"value": 75.1 if is_measured else None})
    ledger.add_samples(launch.id, [Sample(repetition=0, output_tokens=48, total_s=0.64)] if is_measured else [])
    proof = RevertProof(clean=True, found_digest="a" * 64, now_digest="a" * 64, files=134)
    ledger.end_arm(arm.id, proof)
    ledger.add_finding(experiment.id, conclusion)
    ledger.end_experiment(experiment.id, "done", conclusion.verdict, cause=conclusion.cause)
    ledger.set_status("first-try", name, "done", conclusion.summary)


async def until(pilot: Pilot[Any], holds: Callable[[], bool], within_s: float = 60.0) -> None:
    """Let the application work until it holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not holds():
        assert loop.time() < deadline, f"did not come to hold:\n{screen_text(pilot.app)}"
        await pilot.pause()
        await asyncio.sleep(0)


def screen_text(app: Any) -> str:
    """What is on the screen, as a person reads it."""
    strips = app.screen._compositor.render_strips()
    return "".join("".join(segment.text for segment in strip).rstrip() + "\n" for strip in strips)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)
