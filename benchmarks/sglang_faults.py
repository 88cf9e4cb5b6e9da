"""Real SGLang and the ways it fails: outcome, cause, seconds to detect, seconds until all is gone, and what was left.

    ORCHESTRATOR_TEST_RIG=DIR python benchmarks/sglang_faults.py [NAME…]

DIR is a rig of tests/rig/make_rig.sh. One server at a time with tensor parallel 2, on this machine, through the agent
as a run uses it. *Detect* counts from the harm; where the server harms itself, from the line of its log that shows the
cause; for a hang, from the last line. *Gone* is how long `stop` takes to prove that no process is left.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from orchestrator.controller.clock import SystemClock  # noqa: E402
from orchestrator.controller.dialogue import ArmFailed, Dialogue  # noqa: E402
from orchestrator.controller.interrupts import Interrupts  # noqa: E402
from orchestrator.controller.splices import file_change  # noqa: E402
from orchestrator.controller.treatment import FileEdit  # noqa: E402
from orchestrator.controller.watch import ServerWatch  # noqa: E402
from orchestrator.core.diagnosis import diagnose  # noqa: E402
from orchestrator.core.model import Measure, Route, Target, Workload  # noqa: E402
from orchestrator.core.patching import parse, paths_of, plan_files  # noqa: E402
from orchestrator.hosts import Connection, connect  # noqa: E402
from orchestrator.serving.configuration import Configuration  # noqa: E402
from orchestrator.serving.engine import LaunchPlan, engine_for, plan_launch  # noqa: E402
from tests.end_to_end.rig import Rig, find_rig, free_port  # noqa: E402

PATCH = ROOT / "patches" / "sglang-0.5.10.post1" / "sm120-fusion-gate-broken.patch"
SHM = Path("/dev/shm")  # noqa: S108 - looked at
STALL_S = 20.0
LATER_S = 5.0


@dataclass
class Launched:
    """One server on the rig, and what came of it when."""

    rig: Rig
    target: Target
    plan: LaunchPlan
    connection: Connection
    watch: ServerWatch
    dialogue: Dialogue
    pid: int = 0
    harmed_at: float | None = None
    lost_at: float | None = None
    lines: list[tuple[float, str]] = field(default_factory=list)

    def listen(self, event: str, data: Mapping[str, Any]) -> None:
        if event == "log":
            self.lines += [(time.monotonic(), line) for line in data["lines"]]

    def lose(self, _: str) -> None:
        self.lost_at = time.monotonic()

    def children(self) -> list[dict[str, Any]]:
        asked = {"launch_id": self.plan.launch_id}
        return list(self.connection.call("inspect", asked)["descendants"])

    def harm(self, act: Callable[[], object], *, after_s: float = 0.0) -> None:
        def run() -> None:
            self.harmed_at = time.monotonic()
            act()

        threading.Timer(after_s, run).start()

    def ready(self) -> None:
        request = {"launch_id": self.plan.launch_id, "spec": dict(self.plan.ready)}
        reply = self.dialogue.ask("await_ready", request, timeout_s=600.0)
        if reply["state"] != "ready":
            self.dialogue.fail(str(reply["state"]), reply["facts"])

    def stream(self) -> None:
        workload = Workload(prompt_tokens=16, output_tokens=450)
        spec = engine_for(self.target).decode_spec(self.target, workload, Measure(repetitions=1), "x")
        request = {"launch_id": self.plan.launch_id, "spec": {**spec, "stall_s": 60.0}}
        reply = self.dialogue.ask("decode", request, timeout_s=600.0)
        if self.watch.is_lost or not all(s["ok"] for s in reply["samples"]):
            self.dialogue.fail("exited", {"stream": reply["samples"][0]["error"]})


# ---------------------------------------------------------------- what is done


def rank_killed(it: Launched) -> None:
    it.ready()
    rank = next(p["pid"] for p in it.children() if "scheduler_TP1" in p["cmdline"][0])
    it.harm(lambda: os.kill(rank, signal.SIGKILL), after_s=2.0)
    it.stream()


def main_killed(it: Launched) -> None:
    it.harm(lambda: os.kill(it.pid, signal.SIGKILL), after_s=10.0)
    it.ready()


def killed_early(it: Launched) -> None:
    """As soon as a child imports: it has not asked for a parent-death signal yet, and would take the GPU later."""
    while not any("spawn_main" in " ".join(p["cmdline"]) for p in it.children()):
        time.sleep(0.2)
    it.harm(lambda: os.kill(it.pid, signal.SIGKILL), after_s=0.5)
    it.ready()


def only_launched(it: Launched) -> None:
    it.ready()


def port_taken(it: Launched) -> None:
    code = f"import socket, sys; s = socket.create_server(('127.0.0.1', {it.target.port})); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as stranger:
        it.harmed_at = time.monotonic()
        try:
            it.ready()
        finally:
            assert stranger.poll() is None, "the stranger was harmed"
            stranger.communicate(b"")


@dataclass(frozen=True)
class Fault:
    name: str
    act: Callable[[Launched], None]
    env: Mapping[str, str | None] = field(default_factory=dict)
    is_patched: bool = False
    stall_s: float = 120.0


FAULTS = (
    Fault("SIGKILL of a rank while it streams", rank_killed),
    Fault("patch that breaks the fusion gate", only_launched, is_patched=True),
    Fault("port taken by a stranger while it loads", port_taken),
    Fault("SIGKILL of main while it loads", main_killed),
    Fault("SIGKILL of main while a child imports", killed_early),
    Fault(
        "stuck in the scheduler's start", only_launched, {"SGLANG_TEST_STUCK_SCHEDULER_INIT": "600"}, stall_s=STALL_S
    ),
)


# ---------------------------------------------------------------- how it is watched


def carry_out(rig: Rig, fault: Fault, number: int) -> str:
    """A row of the table."""
    before = set(SHM.iterdir())
    connection = connect(Route(python=sys.executable), name="here")
    try:
        holder = {"token": "faults", "name": "sglang_faults", "pid": os.getpid()}
        connection.call("open", {"root": str(rig.source), "guarded": [], "holder": holder, "lease_s": 300.0})
        connection.call("snapshot", {}, timeout_s=120.0)
        edits = broken_gate(rig) if fault.is_patched else []
        if edits:
            connection.call("apply", {"txn": f"f{number}", "files": [file_change(edit) for edit in edits]})
        it = launch(rig, fault, connection, f"f{number}")
        row = observe(it, fault, {edit.path for edit in edits}, before)
        if edits:
            connection.call("revert", {"txn": f"f{number}", "reason": "seen"})
        assert connection.call("verify", {}, timeout_s=120.0)["clean"]
        connection.call("close", {})
        connection.call("forget", {"tree": str(rig.source)})
        return row
    finally:
        connection.close()


def broken_gate(rig: Rig) -> list[FileEdit]:
    patch = parse(PATCH.read_bytes(), PATCH.name, strip=1)
    found = {path: (rig.site / path).read_bytes() for path in paths_of([patch])}
    planned = plan_files([patch], found)
    return [FileEdit(str(rig.site / edit.path), edit.before, edit.after) for edit in planned]


def launch(rig: Rig, fault: Fault, connection: Connection, name: str) -> Launched:
    target = Target.model_validate({**rig.target(free_port()), "ready": {"limit": "6m", "stall": f"{fault.stall_s}s"}})
    configuration = Configuration(target.args, {**target.env, **fault.env})
    plan = plan_launch(target, configuration, dict(os.environ), name, cwd=tempfile.gettempdir())
    session: Any = SimpleNamespace(
        name="rig", connection=connection, clock=SystemClock(), interrupts=Interrupts(lambda _: None)
    )
    it: Launched
    watch = ServerWatch(name, lambda _: None, lambda sentence: it.lose(sentence))
    it = Launched(rig, target, plan, connection, watch, Dialogue(session, watch, {}))
    connection.on_event(it.listen)
    connection.on_event(watch)
    request = {"argv": list(plan.argv), "env": dict(plan.env), "cwd": plan.cwd, "pycache": True, "grace_s": 10.0}
    it.pid = int(connection.call("launch", {"launch_id": name, **request})["pid"])
    return it


def observe(it: Launched, fault: Fault, patched: set[str], before: set[Path]) -> str:
    reason = "nothing happened"
    outcome = "ready"
    try:
        fault.act(it)
    except ArmFailed as failed:
        outcome, reason = failed.outcome.value, failed.reason
    ended_at = time.monotonic()
    it.watch.is_ending = True
    by_itself = it.watch.exit
    stopped = it.connection.call("stop", {"launch_id": it.plan.launch_id, "grace_s": 0.0}, timeout_s=120.0)
    code = by_itself["exit_code"] if by_itself is not None else None
    found = diagnose(it.watch.text, exit_code=code, changed_paths={"patch:1": tuple(patched)} if patched else {})
    cause = it.watch.cause_of(found) or reason
    time.sleep(LATER_S)  # whoever was missed shows now
    began_at = harm_of(it, found.cause_line, outcome)
    declared_at = min(t for t in (it.lost_at, ended_at) if t is not None)
    detect = f"{declared_at - began_at:.2f}" if began_at is not None else "–"
    blamed = f" (blames {', '.join(found.suspects)})" if found.suspects else ""
    left = leftovers(it, before, stopped)
    said = cause.replace("|", "\\|").strip()[:140] + blamed
    return f"| {fault.name} | {outcome} | {said} | {detect} | {stopped['seconds']:.2f} | {left} |"


def harm_of(it: Launched, cause_line: str | None, outcome: str) -> float | None:
    if it.harmed_at is not None:
        return it.harmed_at
    if outcome == "hung":
        return it.lines[-1][0] if it.lines else None
    return next((at for at, line in it.lines if cause_line and cause_line in line), None)


def leftovers(it: Launched, before: set[Path], stopped: Mapping[str, Any]) -> str:
    """Processes, a listener, shared memory and the temporary directory; `nothing` where there is none of it."""
    found = [f"process {p['pid']}" for p in stopped["survivors"]]
    seen = it.connection.call("processes", {"devices": [], "port": it.target.port, "run_ids": [it.plan.launch_id]})
    found += [f"process {p['pid']}" for p in seen["processes"] if p["run_id"] == it.plan.launch_id]
    with socket.socket() as probe:
        found += ["a listener"] if probe.connect_ex(("127.0.0.1", it.target.port)) == 0 else []
    found += [str(path) for path in sorted(set(SHM.iterdir()) - before)]
    found += [path for path in stopped["leftovers"]["kept"] if Path(path) not in before]
    return ", ".join(dict.fromkeys(found)) or "nothing"


def main() -> int:
    rig = find_rig()
    wanted = sys.argv[1:]
    print("| what was done | outcome | cause | detect (s) | gone (s) | left |\n|---|---|---|---|---|---|")
    bad = 0
    for number, fault in enumerate(FAULTS):
        if not wanted or any(word in fault.name for word in wanted):
            row = carry_out(rig, fault, number)
            print(row, flush=True)
            bad += not row.endswith("| nothing |")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
