"""The dashboard on a large ledger: time to the first paint, key to paint, memory, and a log of 2,000 lines a second.

    python benchmarks/dashboard.py [--experiments 10000] [--events 500000] [--json]

Measured in processes that draw to no terminal, on a ledger in a temporary directory. Beside the time that passed stands
the processor time, which other load on the machine does not change.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AT = "2026-03-01T12:00:00.000000Z"
LINES_PER_S = 2000
KEYS = ("2", "down", "pagedown", "0", "3", "down", "down", "4", "down", "5", "pagedown", "0", "tab", "down", "1", "0")


def build(state: Path, experiments: int, events: int) -> None:
    """A ledger of that size, by plain SQL: what is timed is reading it."""
    from orchestrator.controller.clock import SystemClock
    from orchestrator.ledger import open_ledger

    with open_ledger(state, clock=SystemClock()) as ledger:
        ledger.start_run("camp", "d", "gpu1", "text")
    raw = sqlite3.connect(state / "ledger.db", isolation_level=None)
    raw.execute("BEGIN")
    ids = range(1, experiments + 1)
    proof = json.dumps({"clean": True, "found_digest": "a", "now_digest": "a", "files": 1, "differences": []})
    body = json.dumps({"id": "h", "claim": "c", "changes": [{"env": {"A": "1"}}]})
    raw.executemany(
        "INSERT INTO hypothesis (campaign, id, status, origin, family, expect, rank, reason, hypothesis, added_at) "
        "VALUES ('camp', ?, ?, 'playbook', ?, 0.1, ?, 'as good as it looks', ?, ?)",
        ((f"h{i}", "done" if i % 3 else "open", f"family {i % 40}", i % 977, body, AT) for i in ids),
    )
    raw.executemany(
        "INSERT INTO experiment (id, run_id, campaign, host, context, hypothesis_id, changes, state, phase, verdict, "
        "started_at, ended_at) VALUES (?, 1, 'camp', 'gpu1', 'plain', ?, '[]', 'done', 'verify', 'improved', ?, ?)",
        ((i, f"h{i}", AT, AT) for i in ids),
    )
    raw.executemany(
        "INSERT INTO arm (experiment_id, number, kind, changes, started_at, ended_at, proof) VALUES "
        "(?, 1, 'treatment', '[{}]', ?, ?, ?)",
        ((i, AT, AT, proof) for i in ids),
    )
    raw.executemany(
        "INSERT INTO finding (experiment_id, campaign, host, context, hypothesis_id, family, verdict, summary, metric, "
        "direction, effect, low, high, baseline, treatment, baseline_launches, treatment_launches, evidence, closes, "
        "depends_on, created_at) VALUES (?, 'camp', 'gpu1', 'plain', ?, 'f', 'improved', 'better', 'output_tps', "
        "'higher', 0.1, 0.05, 0.15, 50, 55, 1, 1, '[]', 0, '{}', ?)",
        ((i, f"h{i}", AT) for i in ids),
    )
    raw.executemany(
        "INSERT INTO artifact (kind, name, sha256, size, stored_size, path, keep, experiment_id, created_at) "
        "VALUES ('found', 'a.py', 'x', 1, 1, 'x', 'until_reverted', ?, ?)",
        ((i, AT) for i in ids),
    )
    raw.executemany(
        "INSERT INTO event (seq, at, kind, phase, run_id, experiment_id, host, data) VALUES "
        "(?, ?, 'info', 'note', 1, ?, 'gpu1', '{\"text\":\"something was done\"}')",
        ((i, AT, i % experiments + 1) for i in range(1, events + 1)),
    )
    raw.execute("COMMIT")
    raw.close()


async def look(state: Path, *, with_log: bool) -> dict[str, float]:
    """Open, press keys, measure; with `with_log` a run writes its log meanwhile."""
    from orchestrator.tui.app import Dashboard

    started, cpu = time.perf_counter(), time.process_time()
    app = Dashboard(state, now=time.time)
    figures: dict[str, float] = {}
    writer = LogWriter(state) if with_log else None
    if writer is not None:
        writer.start()
    async with app.run_test(size=(140, 40)) as pilot:
        while app.picture is None:
            await asyncio.sleep(0.002)
        await pilot.pause()
        figures["first_paint_s"] = time.perf_counter() - started
        figures["first_paint_cpu_s"] = time.process_time() - cpu
        took: list[float] = []
        took_cpu: list[float] = []
        for key in KEYS * 3:
            await asyncio.sleep(0.05)
            at, cpu = time.perf_counter(), time.thread_time()
            await pilot.press(key)
            await painted(app)
            took.append((time.perf_counter() - at) * 1000)
            took_cpu.append((time.thread_time() - cpu) * 1000)
        figures["key_to_paint_cpu_ms_median"] = statistics.median(took_cpu)
        figures["key_to_paint_cpu_ms_worst"] = max(took_cpu)
        figures["key_to_paint_ms_median"] = statistics.median(took)
        figures["key_to_paint_ms_worst"] = max(took)
        if writer is not None:
            late = await lateness(3.0)
            figures |= {"loop_late_ms_worst": late, "lines_shown": float(len(app.query_one("#log").shown))}
            figures["lines_written"] = float(writer.stop())
    figures["memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


async def painted(app: object) -> None:
    """Until the screen has been laid out and drawn again."""
    done = asyncio.Event()
    app.call_after_refresh(done.set)  # type: ignore[attr-defined]
    await done.wait()


async def lateness(seconds: float) -> float:
    """The worst delay of a timer of 5 ms, in ms: what anything that blocks the loop would show."""
    worst, end = 0.0, time.perf_counter() + seconds
    while (at := time.perf_counter()) < end:
        await asyncio.sleep(0.005)
        worst = max(worst, (time.perf_counter() - at - 0.005) * 1000)
    return worst


class LogWriter(threading.Thread):
    """A process's worth of log beside the dashboard, through the runner's own writer."""

    def __init__(self, state: Path) -> None:
        super().__init__(daemon=True)
        from orchestrator.ledger.live import LiveWriter

        self._live = LiveWriter(state, 1, time.time, lambda text: text)
        self._over = threading.Event()
        self._written = 0

    def run(self) -> None:
        while not self._over.wait(0.05):
            some = LINES_PER_S // 20
            self._live.write("log", *(f"[12:00:00 TP0] Decode batch, line {self._written + n}" for n in range(some)))
            self._written += some

    def stop(self) -> int:
        self._over.set()
        self.join()
        self._live.close()
        return self._written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--look", metavar="STATE")
    parser.add_argument("--log", action="store_true")
    given = parser.parse_args()
    if given.look:
        import orchestrator.tui.app  # noqa: F401 - its import is not what is timed

        print(json.dumps(asyncio.run(look(Path(given.look), with_log=given.log))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        build(state, given.experiments, given.events)
        figures = {
            name: json.loads(subprocess.run(
                [sys.executable, __file__, "--look", folder, *more], check=True, capture_output=True, text=True,
                cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TERM": "xterm-256color"},
            ).stdout)
            for name, more in (("quiet", []), ("2,000 lines/s", ["--log"]))
        }  # fmt: skip
    if given.json:
        print(json.dumps(figures))
        return 0
    for name, values in figures.items():
        print(f"{name}: " + ", ".join(f"{figure} {value:.1f}" for figure, value in values.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
