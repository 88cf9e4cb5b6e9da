"""The whole stack on the lab, its controller killed: at each commit and each request, and at random times. Layer 3."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from orchestrator.lab import Lab, create
from tests.faults.agents import PACKAGE, TooLate, processes_of, wait_until
from tests.faults.examining import Verdict
from tests.faults.scenery import Picture, differences, look
from tests.faults.table import Case, NotReached
from tests.sshd import Sshd, start_sshd

_DIED = 77
_RUN_S = 120.0
_PLAYBOOK = """
campaign: short
host: lab
workload: {{prompt_tokens: 8, output_tokens: 8}}
measure: {{metric: output_tps, direction: higher, min_effect: 2%, repetitions: 1, launches: 1}}
contexts: {{plain: {{}}}}
hypotheses:
  - id: fused-all-reduce
    claim: FlashInfer's fused all-reduce bypasses NCCL for small tensors
    family: replace-all-reduce
    context: plain
    bundle: both kinds of file that a run changes
    changes:
      - patch: {patch}
      - sitecustomize:
          env: {{NCCL_MIN_NCHANNELS: "1"}}
"""
_RECOVER = """
import sys
from orchestrator.cli.main import run_command
state, hosts = sys.argv[1:]
code = run_command(['host', 'recover', 'lab', '--hosts', hosts, '--state', state])
sys.exit(code or run_command(['ledger', 'check', '--state', state]))
"""


@dataclass
class Stage:
    """A lab, a playbook of one hypothesis, a state directory, and what the lab looked like at first."""

    base: Path
    lab: Lab
    hosts: Path
    before: Picture

    @property
    def state(self) -> Path:
        return self.base / "state"

    def look(self) -> Picture:
        return {**look(self.lab.source), **look(self.lab.site)}

    def run_words(self) -> list[str]:
        return ["run", str(self.base / "short.yaml"), "--hosts", str(self.hosts), "--state", str(self.state)]


def set_up(base: Path) -> Stage:
    lab = create(base / "lab")
    patch = lab.root / "patches" / "fused-all-reduce.patch"
    (base / "short.yaml").write_text(_PLAYBOOK.format(patch=patch))
    stage = Stage(base, lab, lab.hosts_file, {})
    stage.before = stage.look()
    return stage


def start(stage: Stage, at: int = 0, log: Path | None = None) -> subprocess.Popen[bytes]:
    env = {**os.environ, "HOME": str(stage.base), "PYTHONPATH": str(PACKAGE), "FAULTS_AT": str(at)}
    if log is not None:
        env["FAULTS_LOG"] = str(log)
    with (stage.base / "run.out").open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.controlled", *stage.run_words()],
            cwd=PACKAGE, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip


def count_points(base: Path) -> list[str]:
    """The points of an undisturbed run, in order."""
    base.mkdir()
    stage = set_up(base)
    log = base / "points"
    process = start(stage, log=log)
    assert process.wait(_RUN_S) == 0, (base / "run.out").read_text()
    assert not differences(stage.before, stage.look())
    return log.read_text().splitlines()


def die_at(base: Path, number: int) -> Verdict:
    stage = set_up(base)
    process = start(stage, at=number)
    code = process.wait(_RUN_S)
    if code != _DIED:
        raise NotReached(f"the run ended with {code}")
    return recover(stage)


def recover(stage: Stage) -> Verdict:
    return examine(stage, ask_to_recover(stage))


def ask_to_recover(stage: Stage) -> Verdict:
    """`host recover` and `ledger check` from a new process."""
    verdict = Verdict()
    env = {**os.environ, "HOME": str(stage.base), "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run(
        [sys.executable, "-c", _RECOVER, str(stage.state), str(stage.hosts)],
        cwd=PACKAGE, env=env, capture_output=True, text=True, timeout=_RUN_S,
    )  # fmt: skip
    if done.returncode != 0:
        verdict.outcome = "refused"
        verdict.stuck.append(f"recovery ended with {done.returncode}: {done.stderr[-500:]}{done.stdout[-300:]}")
    return verdict


def examine(stage: Stage, verdict: Verdict) -> Verdict:
    differs = differences(stage.before, stage.look())
    verdict.differs += differs[:5]
    if differs and verdict.outcome == "clean":
        verdict.lies.append(f"said to be clean: {differs[0]}")
    verdict.stuck += rows_running(stage.state)
    verdict.orphans += _left(stage)
    return verdict


def rows_running(state: Path) -> list[str]:
    path = state / "ledger.db"
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as ledger:
        found = []
        for table, where in (
            ("run", "ended_at IS NULL"),
            ("experiment", "state = 'running'"),
            ("launch", "ended_at IS NULL"),
        ):
            count = ledger.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()[0]
            if count:
                found.append(f"{count} rows of {table} are still running")
    return found


def _left(stage: Stage) -> list[str]:
    try:
        wait_until(lambda: not processes_of(str(stage.base)), "every process is gone", 8.0)
    except TooLate:
        return [f"still running: {pid} {words}" for pid, words in processes_of(str(stage.base)).items()]
    return []


def controller_cases(points: list[str], most: int = 200) -> list[Case]:
    """All points, or `most` of them evenly spread."""
    step = max(1.0, len(points) / most)
    numbers = sorted({int(index * step) + 1 for index in range(min(most, len(points)))})
    return [Case(f"controller dies at {number}: {points[number - 1]}", die_at, (number,)) for number in numbers]


def kill_randomly(base: Path, after_s: float, is_far: bool) -> Verdict:
    """SIGKILL so many seconds after the start of the controller; `is_far`: the host is reached through a real sshd."""
    stage = set_up(base)
    server = start_sshd(base / "sshd") if is_far else None
    try:
        if server is not None:
            stage.hosts = _reached_through(server, stage)
        process = start(stage)
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        verdict = ask_to_recover(stage)
    finally:
        if server is not None:
            server.stop()
    return examine(stage, verdict)


def _reached_through(server: Sshd, stage: Stage) -> Path:
    """The lab's inventory with another route to it."""
    route = json.dumps(server.route().model_dump(mode="json", exclude_unset=True))
    text = stage.lab.hosts_file.read_text()
    assert text.count("route: local") == 1, text
    path = stage.base / "far.yaml"
    path.write_text(text.replace("route: local", f"route: {route}"))
    return path


def random_cases(count: int, seed: int, run_s: float, *, is_far: bool = False) -> list[Case]:
    rng = random.Random(seed)
    times = [rng.uniform(0.0, run_s) for _ in range(count)]
    far = " of a run through sshd" if is_far else ""
    return [Case(f"SIGKILL after {after:.3f} s{far}", kill_randomly, (after, is_far)) for after in times]
