"""What all rows of the table stand on: the rig, the watch beside it, the command line, and the table itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.campaigns import Rig, write
from benchmarks.gpu.observe import Gpus, Stat, Watch, read_stat, shared_files, table
from benchmarks.gpu.product import ArmSpan, Command

CHECK_TREE = Path(__file__).resolve().parents[2] / "tests" / "rig" / "check_tree.py"
HOLD = """
import sys, time, torch
x = torch.ones(int(sys.argv[1]) << 20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("held", flush=True)
time.sleep(600)
"""
HOLD_FILE = "import sys, time\nf = open(sys.argv[2])\nprint('held', flush=True)\ntime.sleep(600)\n"
SETTLE_S = 6.0
ENGINE_TITLE = re.compile(r"sglang::|\S+ -m sglang\.launch_server|\S+ -c from multiprocessing\.spawn")


@dataclass
class Row:
    """Seconds are None where they do not apply or were not seen; `notes` say from what they count."""

    did: str
    outcome: str
    cause: str = ""
    detect_s: float | None = None
    idle_s: float | None = None
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Before:
    """What was there when a row began."""

    at: float
    keys: frozenset[tuple[int, int]]
    shared: frozenset[str]
    memory_mib: tuple[int, ...]


class Bench:
    def __init__(self, rig: Rig, out: Path, seconds: float) -> None:
        self.rig = rig
        self.out = out
        self.origin = time.monotonic()
        self._seconds = seconds
        self.gpus = Gpus(present=not rig.cpu)
        self.watch = Watch(self.gpus, rig.port, rig.site, period_s=0.2 if rig.cpu else 0.03)
        self.rows: list[Row] = []
        self.transcript = out / "transcript.txt"
        self._holders: list[subprocess.Popen[str]] = []
        out.mkdir(parents=True, exist_ok=True)
        write(rig)
        self.floor_mib = self.gpus.used_mib()
        self.watch.start()

    @property
    def left_s(self) -> float:
        return self._seconds - (time.monotonic() - self.origin)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.origin:7.1f}  {text}", flush=True)

    # ---------------------------------------------------------------- the product

    def orchestrator(self, *words: str) -> Command:
        state, hosts = str(self.rig.work / "state"), str(self.rig.work / "hosts.yaml")
        self.say(f"orchestrator {' '.join(words)}")
        has_hosts = words[0] in ("run", "host", "plan")
        return Command([*words, "--state", state, *(["--hosts", hosts] if has_hosts else [])], self.transcript)

    def ask(self, *words: str, timeout_s: float = 60.0) -> tuple[int, Any, float]:
        """Exit code, JSON, seconds."""
        command = self.orchestrator(*words)
        code, answer = command.finish(timeout_s)
        return code, answer, time.monotonic() - command.begin_at

    def run(self, playbook: str, *more: str) -> Command:
        return self.orchestrator("run", str(self.rig.work / f"{playbook}.yaml"), *more)

    def experiment(self, number: int) -> dict[str, Any]:
        _, answer, _ = self.ask("experiment", "show", str(number))
        return answer if "arms" in answer else {"arms": [], "verdict": None, "cause": str(answer)[:300]}

    # ---------------------------------------------------------------- others

    def hold(self, mib: int) -> subprocess.Popen[str]:
        """A process that is not ours and takes memory of the first card."""
        code = HOLD_FILE if self.rig.cpu else HOLD
        words = ["python3", "-c", code, str(mib), str(self.rig.device)]
        holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._holders.append(holder)
        return holder

    def release(self) -> None:
        for holder in self._holders:
            holder.kill()
            holder.wait()
        self._holders.clear()

    # ---------------------------------------------------------------- before and after

    def before(self) -> Before:
        keys = frozenset(s.key for s in table().values())
        return Before(time.monotonic(), keys, frozenset(shared_files()), self.gpus.used_mib())

    def left(self, before: Before) -> list[str]:
        """What is there now and was not before; short-lived things get a few seconds to leave."""
        deadline = time.monotonic() + SETTLE_S
        while (found := self._left_now(before)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found + self._tree_differences()

    def _left_now(self, before: Before) -> list[str]:
        found = [f"process {s.pid} {s.title[:60]}" for s in self._new_processes(before)]
        found += sorted(shared_files() - before.shared)
        used = self.gpus.used_mib()
        for index, (now, then) in enumerate(zip(used, before.memory_mib, strict=True)):
            if now > then + 64:
                found.append(f"GPU {index}: {now - then} MiB above before")
        if is_listening(self.rig.port):
            found.append(f"a listener on port {self.rig.port}")
        return found

    def _new_processes(self, before: Before) -> list[Stat]:
        mine = {os.getpid(), *(h.pid for h in self._holders)}
        if self.rig.cpu:  # a machine shared with others: only what belongs to our servers counts
            return self.watch.living(before.at)
        return [
            s
            for s in table().values()
            if s.key not in before.keys and not s.is_dead and s.pid not in mine and s.ppid not in (2, os.getpid())
        ]

    def _tree_differences(self) -> list[str]:
        done = subprocess.run(
            [sys.executable, str(CHECK_TREE), str(self.rig.site)], capture_output=True, text=True, check=False
        )
        return [f"tree: {line}" for line in (done.stdout + done.stderr).splitlines()[:5]]

    # ---------------------------------------------------------------- rows

    def arm_row(self, did: str, arm: ArmSpan, *, cut_at: float | None = None) -> Row:
        """A row about one arm. `cut_at`: when somebody hit the server; else its own first fatal sign counts."""
        record = self.experiment(arm.experiment)
        of_kind = [a for a in record["arms"] if a["kind"] == arm.kind and a["launches"]]
        launch = of_kind[-1]["launches"][-1] if of_kind else {}
        verdict = record.get("verdict")
        shown = f"{verdict} ({launch.get('outcome')})" if verdict else str(launch.get("outcome"))
        row = Row(did, shown, str(launch.get("cause") or record.get("cause") or ""))
        row.notes.append(f"readiness took {launch.get('ready_s')} s, exit {launch.get('exit_code')}")
        if arm.declared_at is None:
            return row
        signs = self._signs(arm)
        if cut_at is not None:
            signs = [(cut_at, "the kill"), *signs]
        if signs:
            row.detect_s = arm.declared_at - signs[0][0]
            row.notes.append(f"{arm.failed_step} ended {row.detect_s:.2f} s after {signs[0][1]}")
            row.notes += [f"{arm.declared_at - at:.2f} s after {what}" for at, what in signs[1:]]
            idle = self.watch.idle_at(signs[0][0], self.floor_mib)
            row.idle_s = None if idle is None else idle - signs[0][0]
        return row

    def _signs(self, arm: ArmSpan) -> list[tuple[float, str]]:
        """The first fatal line and the first death in the server's family, by time."""
        end = (arm.declared_at or time.monotonic()) + 2.0
        signs = []
        if fatal := self.watch.first_fatal(arm.begin_at, end):
            signs.append((fatal[0], f"the line {fatal[1].strip()[:90]!r}"))
        deaths = [
            (life.dead_at, f"the end of {life.title[:40]!r}")
            for life in self.watch.family(arm.begin_at, end)
            if life.dead_at is not None and ENGINE_TITLE.match(life.title)
        ]
        return sorted([*signs, *sorted(deaths)[:1]])

    def add(self, row: Row) -> None:
        """Keep a row, and write the table as far as it is."""
        self.rows.append(row)
        self.say(f"ROW {json.dumps(asdict(row), ensure_ascii=False)}")
        with (self.out / "rows.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")
        (self.out / "table.md").write_text(self.markdown(), encoding="utf-8")

    def markdown(self) -> str:
        head = ("what was done", "outcome", "cause", "detected, s", "GPU idle, s", "left", "notes")
        lines = [head, ("---",) * len(head), *(_cells(row) for row in self.rows)]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)

    def close(self) -> None:
        self.release()
        (self.out / "timeline.txt").write_text("\n".join(self.watch.timeline(self.origin)) + "\n", encoding="utf-8")
        self.watch.stop()


def _cells(row: Row) -> tuple[str, ...]:
    seconds = ("–" if s is None else f"{s:.2f}" for s in (row.detect_s, row.idle_s))
    texts = (row.did, row.outcome, row.cause[:200] or "–", *seconds)
    lists = ("; ".join(row.left) or "nothing", "; ".join(row.notes) or "–")
    return tuple(" ".join(text.split()).replace("|", "\\|") for text in (*texts, *lists))


def is_listening(port: int) -> bool:
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False


def kill_all(stats: list[Stat]) -> None:
    """SIGKILL to processes that still have the identity they were seen with."""
    for stat in stats:
        now = read_stat(stat.pid)
        if now is not None and now.start == stat.start:
            os.kill(stat.pid, signal.SIGKILL)
