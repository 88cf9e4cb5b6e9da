"""Verdicts on the real SGLang: five changes whose answer is known, in one campaign, with one command.

    ORCHESTRATOR_TEST_RIG=DIR python benchmarks/sglang_verdicts.py [--state DIR] [NAME…]

DIR is a rig of tests/rig/make_rig.sh. The server runs on this machine's CPU with tensor parallel 2; nothing else should
run beside it. It takes about half an hour on two quiet cores, and ends with exit code 1 where an answer is another one.
The state directory holds the ledger afterwards: `orchestrator finding list --state DIR`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from orchestrator.cli.diagnostics import narrator  # noqa: E402
from orchestrator.controller.run import RunRequest, run  # noqa: E402
from orchestrator.core.records import FindingRecord, Verdict  # noqa: E402
from tests.end_to_end.rig import Rig, find_rig, free_port  # noqa: E402

ACTIVATION = "sglang/srt/layers/activation.py"
LINES = "        d = x.shape[-1] // 2\n        return F.silu(x[..., :d]) * x[..., d:]"
SLOW_LINES = '        __import__("time").sleep(0.002)  # in every layer of every pass\n' + LINES
UNDECIDED = frozenset({Verdict.no_effect, Verdict.inconclusive})


@dataclass(frozen=True)
class Row:
    """One change, and the verdicts that are right for it."""

    name: str
    claim: str
    changes: list[dict[str, Any]]
    right: frozenset[Verdict]

    def hypothesis(self) -> dict[str, Any]:
        return {"id": self.name, "claim": self.claim, "changes": self.changes}


def rows(wrong_output: Path) -> list[Row]:
    """In the order in which they are tried."""
    slow = {"edits": [{"file": ACTIVATION, "find": LINES, "replace": SLOW_LINES}]}
    return [
        Row(
            "same-again",
            "a variable nobody reads changes nothing",
            [{"env": {"NOBODY_READS_THIS": "1"}}],
            UNDECIDED,
        ),
        Row("slowdown", "a pause in every layer makes it slower", [{"patch": slow}], frozenset({Verdict.regressed})),
        Row(
            "two-threads",
            "two threads a rank on two cores get in each other's way",
            [{"env": {"OMP_NUM_THREADS": "2"}}],
            frozenset({Verdict.regressed}),
        ),
        Row(
            "wrong-output",
            "another activation is as fast, and says something else",
            [{"patch": str(wrong_output)}],
            frozenset({Verdict.wrong_output}),
        ),
        Row(
            "nccl-algorithm",
            "without a GPU nothing goes through NCCL",
            [{"env": {"NCCL_ALGO": "Tree"}}],
            frozenset({Verdict.no_effect, Verdict.not_effective}),
        ),
    ]


def playbook(rig: Rig, chosen: list[Row]) -> dict[str, Any]:
    return {
        "campaign": "sglang-verdicts",
        "hosts": {"rig": {"target": "rig"}},
        "targets": {"rig": rig.target(free_port())},
        "workload": {"prompt_tokens": 48, "output_tokens": 64, "warmup": 1},
        # A shared CPU is noisy: what counts here is tens of per cent.
        "measure": {"metric": "output_tps", "min_effect": "10%", "repetitions": 3, "launches": 6},
        "budget": {"time": "58m"},
        "recheck_every": 20,
        "hypotheses": [row.hypothesis() for row in chosen],
    }


def said(finding: FindingRecord | None) -> str:
    """The interval, or the evidence."""
    if finding is None:
        return "no finding: the time was over"
    if finding.effect is not None and finding.low is not None and finding.high is not None:
        return f"{finding.effect:+.1%} [{finding.low:+.1%}, {finding.high:+.1%}]"
    return finding.cause or finding.summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these rows")
    parser.add_argument("--state", type=Path, help="where the ledger goes; a temporary directory otherwise")
    words = parser.parse_args()
    rig = find_rig()
    chosen = [
        row
        for row in rows(ROOT / "patches" / "sglang-0.5.10.post1" / "wrong-output.patch")
        if not words.names or row.name in words.names
    ]
    home = words.state or Path(tempfile.mkdtemp(prefix="sglang-verdicts-"))
    home.mkdir(parents=True, exist_ok=True)
    book = home / "verdicts.json"
    book.write_text(json.dumps(playbook(rig, chosen)), encoding="utf-8")
    started = time.monotonic()
    summary = run(RunRequest(book, home / "state", yes=True), narrator())
    last = {finding.hypothesis_id: finding for finding in summary.findings}
    wrong = 0
    print("| change | right | verdict | effect, or evidence |\n|---|---|---|---|")
    for row in chosen:
        finding = last.get(row.name)
        verdict = finding.verdict if finding is not None else None
        wrong += verdict not in row.right
        print(f"| {row.name} | {' or '.join(sorted(row.right))} | {verdict or '–'} | {said(finding)} |")
    minutes = (time.monotonic() - started) / 60
    print(f"\n{summary.launches} launches in {minutes:.0f} min; host {summary.host_state}; ledger {summary.ledger}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
