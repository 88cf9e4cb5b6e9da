"""Does a real SGLang start slower under us than by hand? `python benchmarks/start_cost.py [--pairs 12] [--shadows 3]`

ORCHESTRATOR_TEST_RIG names the rig (tests/rig/make_rig.sh). Each pair is one start by hand (the rig's own `launch` with
two ranks) and one by our agent, in the order A B B A …, so that what drifts falls on both. A start lasts from the
request to the first generated answer; both are asked in the same way and as often. The bytecode of each way is filled
by a start that is not counted. Afterwards some pairs with `tree: shadow`. About twelve minutes on two cores.

Exit code 1 when ours takes more than a second longer in the mean, or the tree is not as the wheel says.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from orchestrator.core.model import Route, Target  # noqa: E402
from orchestrator.errors import Busy  # noqa: E402
from orchestrator.hosts import Connection, connect  # noqa: E402
from orchestrator.serving.configuration import Configuration  # noqa: E402
from orchestrator.serving.engine import plan_launch  # noqa: E402
from tests.end_to_end.rig import Rig, find_rig, free_port  # noqa: E402

BAR_S = 1.0
LIMIT_S = 300.0
POLL_S = 0.05
BUSY_TRIES, BUSY_PAUSE_S = 60, 5.0
FILLED = 1000  # compiled files that a start of SGLang leaves at least


class Start(NamedTuple):
    """`wall_s`: from the request to the first answer. `cpu_s`: what the server's processes took of processors until
    then, which other work on the machine changes little."""

    wall_s: float
    cpu_s: float


def cpu_of(main: int) -> float:
    """Seconds of processor time of a process and all below it, the ended ones included."""
    children: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
            spent[int(entry.name)] = sum(map(int, fields[11:15]))
    waiting, ticks = [main], 0
    while waiting:
        pid = waiting.pop()
        ticks += spent.get(pid, 0)
        waiting += children.get(pid, [])
    return ticks / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------- by hand


def start_by_hand(rig: Rig) -> Start:
    """From the command to the first answer of `launch`."""
    port = free_port()
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(rig.root / "launch"), "--port", str(port), "--tp", "2"]
    with tempfile.TemporaryFile() as log:
        began = time.monotonic()
        with subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True) as server:
            try:
                _until_it_answers(server, port, began)
                return Start(time.monotonic() - began, cpu_of(server.pid))
            finally:
                os.killpg(server.pid, signal.SIGKILL)


def _until_it_answers(server: subprocess.Popen[bytes], port: int, began: float) -> None:
    """As our agent asks: health as often, then one short generation."""
    pause = 0.0
    while not _is_healthy(port):
        if time.monotonic() - began > LIMIT_S:
            raise SystemExit("the server by hand does not come up")
        try:
            code = server.wait(pause)
        except subprocess.TimeoutExpired:
            pause = POLL_S
            continue
        raise SystemExit(f"the server by hand ended with {code}")
    sampling = {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}
    status, answer = _ask(port, "POST", "/generate", {"text": "Say it again. " * 8, "sampling_params": sampling})
    assert status == 200 and json.loads(answer)["meta_info"]["completion_tokens"] == 4


def _is_healthy(port: int) -> bool:
    try:
        return _ask(port, "GET", "/health")[0] == 200
    except OSError:
        return False


def _ask(port: int, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


# ---------------------------------------------------------------- under us


@dataclass
class Way:
    """One way of ours; `shadow` is where copies go, or None for the tree in place."""

    rig: Rig
    shadow: str | None
    copied_s: list[float] = field(default_factory=list)
    """How long the copy of the package took, before each start."""

    def start(self) -> Start:
        """A first start, which compiles, is made before and not counted."""
        with connect(Route(python=sys.executable), name="here") as connection:
            opened = self._open(connection)
            connection.call("recover", {}, timeout_s=120.0)  # of a run that was ended
            self.copied_s.append(float(connection.call("snapshot", {}, timeout_s=120.0)["seconds"]))
            try:
                prefix = Path(opened["state_dir"]) / "pycache"
                if sum(1 for _ in prefix.rglob("*.pyc")) < FILLED:
                    self._launch(connection, "fill")
                return self._launch(connection, "counted")
            finally:
                assert connection.call("verify", {}, timeout_s=120.0)["clean"]
                connection.call("close", {})

    def tree(self) -> dict[str, Any]:
        given: dict[str, Any] = {"root": str(self.rig.source)}
        return given if self.shadow is None else {**given, "shadow": {"dir": self.shadow}}

    def _open(self, connection: Connection) -> dict[str, Any]:
        holder = {"token": "start-cost", "name": "start_cost", "pid": os.getpid()}
        for _ in range(BUSY_TRIES):
            try:
                return connection.call("open", {**self.tree(), "guarded": [], "holder": holder, "lease_s": 600.0})
            except Busy:
                time.sleep(BUSY_PAUSE_S)  # somebody else tries the rig
        raise SystemExit("the rig is busy")

    def _launch(self, connection: Connection, name: str) -> Start:
        target = Target.model_validate(self.rig.target(free_port()))
        launch_id = f"{name}-{time.monotonic_ns()}"
        configuration = Configuration(target.args, target.env)
        plan = plan_launch(target, configuration, dict(os.environ), launch_id, cwd=tempfile.gettempdir())
        request = {"argv": list(plan.argv), "env": dict(plan.env), "cwd": plan.cwd, "pycache": True, "grace_s": 0.0}
        began = time.monotonic()
        pid = int(connection.call("launch", {"launch_id": launch_id, **request})["pid"])
        asked = {"launch_id": launch_id, "spec": dict(plan.ready)}
        try:
            ready = connection.call("await_ready", asked, timeout_s=LIMIT_S)
            took = Start(time.monotonic() - began, cpu_of(pid))
            if ready["state"] != "ready":
                raise SystemExit(f"the server under us: {ready}")
            return took
        finally:
            connection.call("stop", {"launch_id": launch_id, "grace_s": 0.0}, timeout_s=120.0)

    def forget(self) -> None:
        with connect(Route(python=sys.executable), name="here") as connection:
            tree = self.tree()
            connection.call("forget", {"tree": tree.pop("root"), **tree})


# ---------------------------------------------------------------- pairs


def pairs(
    count: int, by_hand: Callable[[], Start], ours: Callable[[], Start], say: str, until: float
) -> list[tuple[Start, Start]]:
    """`(by hand, ours)`, in the order A B B A …; fewer than `count` when the time is over."""
    seen: list[tuple[Start, Start]] = []
    for number in range(count):
        if time.monotonic() > until and len(seen) > 1:
            break
        if number % 2:
            second = ours()
            first = by_hand()
        else:
            first = by_hand()
            second = ours()
        seen.append((first, second))
        texts = (f"{one.wall_s:.2f} s ({one.cpu_s:.2f} s of processors)" for one in (first, second))
        print(f"{say} {number + 1}: by hand %s, ours %s" % tuple(texts), file=sys.stderr, flush=True)
    return seen


def row(name: str, seen: list[tuple[Start, Start]]) -> tuple[str, float]:
    """A line of the table, and the mean of the differences in seconds."""
    hand, ours = (statistics.mean(pair[side].wall_s for pair in seen) for side in (0, 1))
    mean, said = _difference([b.wall_s - a.wall_s for a, b in seen])
    middle = statistics.median(b.wall_s - a.wall_s for a, b in seen)
    _, processors = _difference([b.cpu_s - a.cpu_s for a, b in seen])
    return f"| {name} | {len(seen)} | {hand:.2f} | {ours:.2f} | {said} | {middle:+.2f} | {processors} |", mean


def _difference(each: list[float]) -> tuple[float, str]:
    """Mean and its standard error."""
    mean = statistics.mean(each)
    error = f" ± {statistics.stdev(each) / len(each) ** 0.5:.2f}" if len(each) > 1 else ""
    return mean, f"{mean:+.2f}{error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--shadows", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=60.0, help="no pair in place is begun after so long")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are ended, and the tree is given back
    rig = find_rig()
    print(
        "| tree | pairs | by hand (s) | ours (s) | ours − by hand (s) | its median | the same in processor time (s) |"
    )
    print("|---|---|---|---|---|---|---|")
    late = 0
    until = time.monotonic() + options.minutes * 60
    with tempfile.TemporaryDirectory(prefix="orc-start-cost-") as copies:
        for name, count, shadow in (("in_place", options.pairs, None), ("shadow", options.shadows, copies)):
            if not count:
                continue
            way = Way(rig, shadow)
            start_by_hand(rig)
            way.start()
            way.copied_s.clear()
            line, mean = row(name, pairs(count, lambda: start_by_hand(rig), way.start, name, until))
            print(line, flush=True)
            late += mean > BAR_S
            before_s = statistics.median(way.copied_s)
            print(f"{name}: manifest{', and the copy' * bool(shadow)}: {before_s:.2f} s", file=sys.stderr)
            way.forget()
    differs = rig.differences_from_wheel()
    print(f"\nLoad at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"Differences from the wheel afterwards: {differs or 'none'}")
    return 1 if late or differs else 0


if __name__ == "__main__":
    raise SystemExit(main())
