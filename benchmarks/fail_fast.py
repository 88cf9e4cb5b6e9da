"""How soon a dead server is declared, and how soon the next one is launched. On the simulated host, locally.

    python benchmarks/fail_fast.py [REPETITIONS]

Each line: what was done to the server, seconds until the run said so, and seconds from then to the next launch.
The second figure is stop, reap, revert, a whole manifest as proof, and the preparation of the next arm.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.controller.run import RunRequest, run
from orchestrator.lab import Lab, create

FAST_S, NEXT_S = 0.2, 0.5
LINE_S = 1.0
_PLAYBOOK = {
    "campaign": "fail-fast",
    "workload": {"prompt_tokens": 8, "output_tokens": 200},
    "measure": {"repetitions": 2, "launches": 1},
}
_EDIT = {"file": "sglang/launch_server.py", "find": "import sys", "count": 1}


@dataclass
class Watcher:
    """A narrator with a clock: triggers the harm once, notes when it was declared and when the next launch was out."""

    lab: Lab
    trigger: str
    victim: Callable[[Lab], int] | None
    is_treatment: bool = False
    harmed_at: float | None = None
    declared_at: float | None = None
    launched_at: float | None = None
    threads: list[threading.Thread] = field(default_factory=list)

    def phase(self, host: str, name: str, detail: str) -> None:
        if name == "reap" and detail:
            self.is_treatment = "treatment" in detail
        self._may_harm(name)

    def phase_done(self, host: str, name: str, seconds: float, result: str) -> None:
        failed = result != "ok" and name in ("ready", "gate", "measure")
        if failed and self.is_treatment and self.declared_at is None:
            self.declared_at = time.monotonic()
        if name == "launch" and self.declared_at is not None and self.launched_at is None:
            self.launched_at = time.monotonic()

    def server_phase(self, host: str, name: str) -> None:
        self._may_harm(f"server:{name}")

    def note(self, text: str) -> None:
        if self.is_treatment and self.declared_at is None and " ended" in text and self.harmed_at is not None:
            self.declared_at = time.monotonic()

    def warn(self, text: str) -> None:
        self.note(text)

    def _may_harm(self, name: str) -> None:
        if self.is_treatment and self.victim is not None and name == self.trigger and self.harmed_at is None:
            self.harmed_at = float("nan")
            thread = threading.Thread(target=self._kill, args=(self.victim,))
            thread.start()
            self.threads.append(thread)

    def _kill(self, victim: Callable[[Lab], int]) -> None:
        time.sleep(0.1)
        pid = victim(self.lab)  # found before the clock starts: the search takes long on a busy machine
        self.harmed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)


def of_lab(lab: Lab, title: bytes) -> list[int]:
    """Pids of the lab's server whose title begins so."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            above = Path(f"/proc/{parent}/cmdline").read_bytes()
        except OSError:
            continue
        if line.startswith(title) and str(lab.root).encode() in line + above:
            found.append(int(entry.name))
    return sorted(found)


def a_rank(lab: Lab) -> int:
    return of_lab(lab, b"sglang::scheduler_TP3")[0]


def the_main_process(lab: Lab) -> int:
    return of_lab(lab, str(lab.python).encode())[0]


MARK: Mapping[str, object] = {"patch": {"edits": [{**_EDIT, "replace": "import sys\nimport json"}]}}
CASES: dict[str, tuple[Mapping[str, object], str, Callable[[Lab], int] | None]] = {
    "SIGKILL of main while it loads": (MARK, "server:weights", the_main_process),
    "SIGKILL of main in the benchmark": (MARK, "measure", the_main_process),
    "SIGKILL of a rank in the benchmark": (MARK, "measure", a_rank),
    "import error": ({"patch": {"edits": [{**_EDIT, "replace": "import sys\nimport no_such_module"}]}}, "", None),
    "crash while loading": ({"env": {"LAB_FAULT": "crash_at_load"}}, "", None),
    "crash in the benchmark": ({"env": {"LAB_FAULT": "crash_mid_benchmark:150"}}, "", None),
}


def measure(name: str, folder: Path) -> tuple[float | None, float]:
    change, trigger, victim = CASES[name]
    lab = create(folder / "lab")
    playbook = lab.root / "playbook-fast.yaml"
    rows = [{"id": "broken", "claim": "c", "changes": [change]}]
    playbook.write_text(json.dumps({**_PLAYBOOK, "hypotheses": rows}))
    watcher = Watcher(lab, trigger, victim)
    summary = run(RunRequest(playbook, folder / "state", lab.hosts_file), watcher)
    for thread in watcher.threads:
        thread.join()
    assert [f.verdict for f in summary.findings] == ["crashed"], summary.findings
    assert watcher.declared_at is not None and watcher.launched_at is not None
    told = watcher.declared_at - watcher.harmed_at if watcher.harmed_at is not None else None
    return told, watcher.launched_at - watcher.declared_at


def main() -> int:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    bad = 0
    print("| what was done | declared after (s) | next launch after that (s) |\n|---|---|---|")
    for name in CASES:
        rows = []
        for _ in range(repetitions):
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(name, Path(folder)))
        told = [t for t, _ in rows if t is not None]
        gaps = [g for _, g in rows]
        shown = f"{statistics.median(told):.3f} (worst {max(told):.3f})" if told else "–"
        print(f"| {name} | {shown} | {statistics.median(gaps):.3f} (worst {max(gaps):.3f}) |", flush=True)
        bad += statistics.median(gaps) > NEXT_S or bool(told and statistics.median(told) > FAST_S)
    print(f"\nbars: a dead process {FAST_S} s, the next launch {NEXT_S} s" + (" – MISSED" if bad else " – held"))
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
