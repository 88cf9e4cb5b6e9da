"""The network is cut for longer than the lease in each phase of an experiment: `python benchmarks/cable_cut.py` (root).

`orchestrator run` works in one network namespace, the host with its real sshd in another; the cable between them holds
each packet back for 100 ms and then drops all of them, without a FIN or RST. The lease is 3 s. Each phase is cut twice:
the controller waits and comes back by itself, or is killed while the cable is cut. Half a minute each on idle cores.

Exit code 1 when a host was not clean within lease + 1 s, with the cable still cut, or anything afterwards told it
otherwise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.end_to_end import cutting


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phases", nargs="*", help="only these: apply, loading, gate, measuring, stopping, reverting")
    options = parser.parse_args()
    if reason := cutting.why_not():
        raise SystemExit(reason)
    print("| cut while | controller | clean after (s) | outcome | the run ended with | finding | recover | problems |")
    print("|---|---|---|---|---|---|---|---|")
    bad = 0
    with tempfile.TemporaryDirectory(prefix="orc-cable-cut-") as folder, cutting.far_host(Path(folder) / "far") as far:
        for phase in cutting.PHASES:
            if options.phases and phase.name not in options.phases:
                continue
            for is_killed in (False, True):
                base = Path(folder) / f"{phase.name}-{'killed' if is_killed else 'waits'}"
                try:
                    seen = cutting.cut(base, far, phase, is_killed=is_killed)
                except AssertionError as failed:
                    seen = cutting.Cut(phase.name, is_killed, problems=[str(failed)])
                print(row(seen), flush=True)
                bad += bool(seen.problems)
    return 1 if bad else 0


def row(seen: cutting.Cut) -> str:
    ended = "–" if seen.run_code is None else str(seen.run_code)
    problems = "; ".join(seen.problems).replace("\n", " ").replace("|", "\\|") or "none"
    who = "killed" if seen.is_killed else "waits"
    cells = (seen.phase, who, f"{seen.clean_s:.2f}", seen.outcome, ended, seen.verdict, seen.recover_code, problems)
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    raise SystemExit(main())
