"""How long an export of a large campaign takes, and how much memory: 10,000 experiments with their samples.

    python benchmarks/export.py [--experiments 10000] [--formats json,jsonl,csv,md,html]

The ledger is made in a temporary folder (some minutes, most of it for syncs that this script leaves out). Each export
runs in a process of its own, whose peak of resident memory is read from the kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = 6  # of one launch; an experiment has two
LIMIT_S, LIMIT_MIB = 60.0, 200.0


def fill(state: Path, experiments: int) -> None:
    """Rows as a campaign leaves them, written past the ledger for speed; `ledger check` is asked afterwards."""
    from orchestrator.core.model import Hypothesis
    from orchestrator.ledger import open_ledger

    class Clock:
        def now(self) -> float:
            return 1_772_366_400.0

        def monotonic(self) -> float:
            return 0.0

    with open_ledger(state, clock=Clock()) as ledger:
        run = ledger.start_run("large", "d", "gpu1", "campaign: large\n")
        rows = [
            Hypothesis.model_validate(
                {"id": f"h{n}", "claim": "c", "family": f"f{n % 40}", "changes": [{"env": {"A": str(n)}}]}
            )
            for n in range(200)
        ]
        ledger.upsert_hypotheses("large", rows)
        fingerprint = ledger.fingerprint("gpu1", {"driver": "580"}).id
        ledger.end_run(run.id, "done")
    with sqlite3.connect(state / "ledger.db") as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for table, columns, values in tables(experiments, fingerprint):
            marks = ", ".join("?" * len(columns.split(",")))
            connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", values)  # noqa: S608 - words of ours
    connection.close()


AT = "2026-03-01T12:00:00.000000Z"
PROOF = json.dumps({"clean": True, "found_digest": "f" * 64, "now_digest": "f" * 64, "files": 4000, "differences": []})


def tables(experiments: int, fingerprint: int) -> Iterator[tuple[str, str, Iterator[tuple[Any, ...]]]]:
    """Two arms of one launch each, a finding, six events for every experiment."""
    numbers = range(1, experiments + 1)
    launches = [(n * 2 - 1 + k, n, kind) for n in numbers for k, kind in enumerate(("baseline", "treatment"))]
    facts = {
        "value": 82.0, "checks": [{"what": "flag", "asked": "1", "found": "1", "holds": True}],
        "resolved": {f"setting_{n}": f"value {n}" for n in range(120)},
    }  # fmt: skip
    changes = json.dumps([{"env": {"A": "1"}}])
    yield (
        "experiment",
        "id, run_id, campaign, host, context, hypothesis_id, changes, fingerprint_id, state, phase, verdict,"
        " started_at, ended_at",
        ((n, 1, "large", "gpu1", "plain", f"h{n % 200}", changes, fingerprint, "done", "verify", "improved", AT, AT)
         for n in numbers),
    )  # fmt: skip
    yield (
        "arm", "id, experiment_id, number, kind, changes, started_at, ended_at, proof",
        ((a, n, 1 + (kind == "treatment"), kind, changes if kind == "treatment" else "[]", AT, AT, PROOF)
         for a, n, kind in launches),
    )  # fmt: skip
    yield (
        "launch", "id, arm_id, number, launch_id, argv, started_at, ended_at, outcome, ready_s, facts",
        ((a, a, 1, f"orc-{a}", '["python", "-m", "sglang.launch_server"]', AT, AT, "measured", 12.5, json.dumps(facts))
         for a, _, _ in launches),
    )  # fmt: skip
    yield (
        "sample", "launch_id, repetition, stream, ok, prompt_tokens, output_tokens, ttft_s, decode_s, decode_tokens,"
        " total_s, text_sha256",
        ((a, r, 0, 1, 128, 256, 0.1, 3.0 + r / 100, 255, 3.2, "a" * 64)
         for a, _, _ in launches for r in range(SAMPLES)),
    )  # fmt: skip
    yield (
        "finding",
        "experiment_id, campaign, host, context, hypothesis_id, family, verdict, summary, metric, direction, effect,"
        " low, high, confidence, baseline, treatment, baseline_launches, treatment_launches, evidence, closes,"
        " depends_on, created_at",
        ((n, "large", "gpu1", "plain", f"h{n % 200}", f"f{n % 40}", "improved", "improved +5.0 %", "output_tps",
          "higher", 0.05, 0.03, 0.07, 0.95, 82.0, 86.1, 1, 1, '["a sentence of evidence"]', 0, '{"driver": "580"}', AT)
         for n in numbers),
    )  # fmt: skip
    yield (
        "event", "seq, at, kind, phase, run_id, experiment_id, host, data",
        ((e + 1, AT, "info", "phase", 1, e // 6 + 1, "gpu1", '{"ms": 3}') for e in range(experiments * 6)),
    )  # fmt: skip


def export(state: Path, form: str, rows: str, out: Path) -> tuple[float, float, float, int]:
    """Seconds, those of the processor, peak MiB and bytes of one export in a process of its own."""
    code = (
        "import sys; from pathlib import Path\n"
        "from orchestrator.controller.records import export_ledger, open_records\n"
        "with open_records(Path(sys.argv[1])) as ledger, open(sys.argv[4], 'w') as out:\n"
        "    export_ledger(ledger, 'large', sys.argv[2], out, rows=sys.argv[3])\n"
    )
    words = [str(state), form, rows, str(out)]
    start = time.monotonic()
    child = subprocess.Popen([sys.executable, "-c", code, *words], cwd=ROOT)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"export as {form} failed with status {status}")
    seconds = time.monotonic() - start
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, out.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--formats", default="json,jsonl,csv,samples,md,html")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        fill(state, chosen.experiments)
        count = chosen.experiments * 2 * SAMPLES
        size_mib = (state / "ledger.db").stat().st_size >> 20
        print(f"{chosen.experiments} experiments, {count} samples, ledger {size_mib} MiB", flush=True)
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
        is_good = True
        for form in chosen.formats.split(","):
            name, rows = ("csv", "samples") if form == "samples" else (form, "findings")
            seconds, cpu_s, mib, size = export(state, name, rows, Path(folder) / f"out.{form}")
            must = form in ("json", "jsonl", "csv", "samples")
            holds = seconds <= LIMIT_S and mib <= LIMIT_MIB
            is_good = is_good and (holds or not must)
            said = "" if holds else "  over the limit"
            cost = f"{seconds:7.1f} s ({cpu_s:.1f} s of a core) {mib:5.0f} MiB"
            print(f"{form:8} {cost} {size / 2**20:7.1f} MiB written{said}", flush=True)
    raise SystemExit(0 if is_good else 1)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
