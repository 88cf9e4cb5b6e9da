"""`python -m tests.faults.mutations`: bugs planted one by one in a copy of the package; the harness must see each.

A bug is an exact replacement in one file, so that a change of the code which makes it impossible is noticed here: then
the line must be planted anew. `seen_by` is the layer that is asked; it runs whole, and ends at its first failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.faults import table
from tests.faults.agents import PACKAGE
from tests.faults.bugs import BUGS, Bug, single_syncs

_TESTS = Path(__file__).resolve().parents[1]
_PATIENCE_S = 1800.0


@dataclass
class Result:
    bug: Bug
    is_caught: bool
    how: str
    seconds: float


def plant(bug: Bug, folder: Path) -> None:
    """A copy of the package with the bug in it. Raises `LookupError` where its line is no longer there."""
    shutil.copytree(PACKAGE / "orchestrator", folder / "orchestrator", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests").symlink_to(_TESTS)
    for file, old, new in bug.edits:
        path = folder / "orchestrator" / "agent" / file
        text = path.read_text()
        if text.count(old) != 1:
            raise LookupError(f"{bug.name}: its line is in {file} {text.count(old)} times")
        path.write_text(text.replace(old, new))


def hunt(bug: Bug) -> Result:
    """Runs the layer on the copy. Caught is: it ran, and it says that something is not as promised."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-bug-") as name:
        folder = Path(name)
        plant(bug, folder)
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults", "--only", bug.seen_by, "--stop-at", "1", *_share_for(bug)],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
        )  # fmt: skip
    is_broken = any(word in done.stderr for word in ("SyntaxError", "NameError", "ImportError"))  # that is no bug found
    return Result(bug, done.returncode == 1 and not is_broken, _first_words(done.stderr), time.monotonic() - started)


def _share_for(bug: Bug) -> list[str]:
    """The simulator needs no larger sample to see a sync that is not there."""
    return ["--fast"] if bug.seen_by.startswith("9") else []


def _first_words(text: str) -> str:
    """What was seen first; a plain run that failed is a traceback of the harness."""
    if "Traceback" in text and "failures" not in text:
        return "a run without any fault: " + text.strip().splitlines()[-1][:160]
    lines = [line.strip() for line in text.splitlines() if line.startswith("  ")]
    return " — ".join(lines[:2])[:200] if lines else text.strip()[-160:]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.mutations", description=__doc__)
    parser.add_argument("--only", default="", help="bugs whose name holds this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--syncs", action="store_true", help="every single sync of files and journal taken out instead")
    given = parser.parse_args()
    every = single_syncs(PACKAGE / "orchestrator" / "agent") if given.syncs else BUGS
    bugs = [bug for bug in every if given.only in bug.name]
    started, results = time.monotonic(), []
    with ThreadPoolExecutor(given.workers) as pool:
        for result in pool.map(hunt, bugs):
            results.append(result)
            said = "caught" if result.is_caught else "NOT CAUGHT"
            print(
                f"{len(results)}/{len(bugs)} {result.bug.name}: {said}, {result.seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    missed = sum(not result.is_caught for result in results)
    print(
        f"{table.state_of_the_code()}, {os.cpu_count()} processors, {(time.monotonic() - started) / 60:.0f} minutes: ",
        end="",
    )
    print(f"{len(results) - missed} of {len(results)} caught.\n")
    print("| bug | layer | caught | by | seconds |\n| --- | --- | --- | --- | --- |")
    for result in results:
        caught = "yes" if result.is_caught else "**no**"
        words = result.how.replace("|", "/").replace("\n", " ")
        print(f"| {result.bug.name} | {result.bug.seen_by} | {caught} | {words} | {result.seconds:.0f} |")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
