"""`python -m tests.services`: kill runs at random moments on hosts that serve, and count the services that are missed.

    python -m tests.services --lab 50 --rig 15 --seed 1 --out services.jsonl

Each case begins a run, kills its controller (alone, or with its agent, or silences both) at a random moment, and then
waits for the guard or asks for `host recover`. Afterwards the same server must answer from its own supervisor, the tree
be as found, and nothing of ours be left; by the guard within the lease, the server's own start and two seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agent.client import wait_until
from tests.services.hosts import Served, lab_host, rig_host
from tests.services.live import Live

SLACK_S = 2.0
TICKS = os.sysconf("SC_CLK_TCK")
WAYS = ("recover", "lease", "lease", "silence")


@dataclass(frozen=True)
class Case:
    """`line` of the run's narration, and `after_s` that: the moment. `alone`: the agent is left to notice. `way`: what
    brings the service back."""

    number: int
    line: int
    after_s: float
    alone: bool
    way: str


def draw(number: int, told: list[float], rng: random.Random) -> Case:
    """A moment of the undisturbed run, whose lines came at `told` (s), by what was said last and how long ago: the
    next run is slower or faster than that one."""
    at_s = rng.uniform(told[0], told[-1])
    line = sum(one <= at_s for one in told)
    return Case(number, line, at_s - told[line - 1], rng.random() < 0.5, rng.choice(WAYS))


def command(served: Served, state: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "orchestrator.cli.main", *words, "--state", str(state), "--hosts", str(served.hosts)]


def begin(served: Served, state: Path) -> subprocess.Popen[bytes]:
    words = command(served, state, "run", str(served.playbook), "--only", "probe")
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


def carry_out(case: Case, served: Served, state: Path) -> dict[str, Any]:
    """One kill, and what came of it; `missed` is empty when all is well."""
    live = served.live
    before, tree = live.picture(), served.tree()
    process = begin(served, state)
    try:
        return _judge(case, served, state, process, (before, tree))
    finally:
        _send(process.pid, signal.SIGKILL, group=True)
        process.wait()


def _judge(
    case: Case, served: Served, state: Path, process: subprocess.Popen[bytes], found: tuple[object, object]
) -> dict[str, Any]:
    live = served.live
    assert process.stdout is not None
    for _ in range(case.line):
        process.stdout.readline()
    drain = threading.Thread(target=process.communicate, daemon=True)
    drain.start()
    threading.Event().wait(case.after_s)
    was_down = live.server() is None
    number = signal.SIGSTOP if case.way == "silence" else signal.SIGKILL
    is_over = process.poll() is not None
    if not is_over:
        _send(process.pid, number, group=not case.alone or case.way == "silence")
    cut = time.monotonic()
    if case.way == "recover":
        drain.join(served.patience_s)
        done = subprocess.run(command(served, state, "host", "recover", served.name), capture_output=True, check=False)
        said = done.stderr.decode()[-300:] if done.returncode else ""
    else:
        said = ""
    missed = _missed(lambda: live.serves(), "the service is not back", served.patience_s)
    back_s = time.monotonic() - cut
    start_s = _age_of_supervisor(live)
    if case.way == "silence":
        _send(process.pid, signal.SIGCONT, group=True)
        drain.join(served.patience_s)
        missed += _missed(lambda: live.serves(), "the late controller took the service away", served.patience_s)
    missed += [said] if said else []
    if not missed:
        missed += _compare(served, *found)
        late_s = back_s - served.lease_s - start_s
        if case.way == "lease" and late_s > SLACK_S:
            missed.append(f"{late_s:.1f} s late")
    drain.join(served.patience_s)
    figures = {
        "back_s": round(back_s, 2),
        "own_start_s": round(min(start_s, back_s), 2),
        "over": is_over,
        "was_down": was_down,
    }
    return {"host": served.name, **vars(case), **figures, "missed": missed}


def _send(pid: int, number: signal.Signals, *, group: bool) -> None:
    try:
        (os.killpg if group else os.kill)(pid, number)
    except ProcessLookupError:
        return


def _missed(holds: Callable[[], bool], what: str, timeout_s: float) -> list[str]:
    try:
        wait_until(holds, what, timeout_s)
    except AssertionError as error:
        return [str(error)]
    return []


def _age_of_supervisor(live: Live) -> float:
    """Seconds since the script that serves now was started: its server's own start is in them."""
    scripts = live.supervisors()
    if not scripts:
        return 0.0
    ticks = int(Path(f"/proc/{scripts[0]}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / TICKS


def _compare(served: Served, before: object, tree: object) -> list[str]:
    missed = []
    if served.live.picture() != before:
        missed.append("another command line, environment or directory serves")
    if len(served.live.supervisors()) != 1:
        missed.append(f"{len(served.live.supervisors())} scripts serve")
    missed += _missed(lambda: served.tree() == tree, "the tree is not as found", 20.0)
    missed += _missed(lambda: not served.ours(), "processes of ours are left", 20.0)
    return missed


def measure(served: Served, state: Path) -> list[float]:
    """When each line of a run comes that nobody disturbs, in seconds; it must end well."""
    start = time.monotonic()
    process = begin(served, state)
    assert process.stdout is not None
    told, lines = [], []
    for line in process.stdout:
        told.append(time.monotonic() - start)
        lines.append(line.decode())
    if process.wait() != 0:
        raise SystemExit(f"a run that nobody disturbs ends with {process.returncode}:\n{''.join(lines)[-3000:]}")
    return told


def walk(served: Served, cases: list[Case], folder: str, out: Path | None) -> int:
    """How many of the cases missed; after an interruption the host is put back first."""
    missed = 0
    state = Path(folder)
    try:
        for case in cases:
            state = Path(folder) / f"state-{served.name}-{case.number}"
            done = carry_out(case, served, state)
            missed += bool(done["missed"])
            line = json.dumps(done)
            print(line, flush=True)
            if out is not None:
                with out.open("a") as file:
                    file.write(line + "\n")
            if done["missed"] and not served.live.serves():
                break
    except KeyboardInterrupt:
        print("interrupted; putting the host back", flush=True)
        subprocess.run(command(served, state, "host", "recover", served.name), check=False)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.services", description=__doc__)
    parser.add_argument("--lab", type=int, default=50, help="kills on the simulated host")
    parser.add_argument("--rig", type=int, default=0, help="kills on the real SGLang of ORCHESTRATOR_TEST_RIG")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="one line of JSON for each case")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for host, count in ((lab_host, asked.lab), (rig_host, asked.rig)):
            if not count:
                continue
            with host(Path(folder)) as served:
                told = measure(served, Path(folder) / f"state-{served.name}-0")
                print(f"{served.name}: a run takes {told[-1]:.1f} s, the lease is {served.lease_s:.0f} s", flush=True)
                missed += walk(served, [draw(number, told, rng) for number in range(1, count + 1)], folder, asked.out)
    print(f"{missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
