"""Cases, carried out side by side, and the table that they come to: one row a layer."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.agents import PACKAGE, processes_of
from tests.faults.examining import Verdict, temporary_of
from tests.faults.scenery import Scene

WORKERS = 2
PROGRESS_S = 20.0


class NotReached(Exception):
    """The run never came to the point: its fault did not strike. Such a case proves nothing and is not counted."""


@dataclass(frozen=True)
class Case:
    """One point. `run` gets an empty directory of its own and `arguments`; what it raises is a failure of the point."""

    label: str
    run: Callable[..., Verdict]
    arguments: tuple[Any, ...] = ()
    is_double: bool = False


@dataclass
class Row:
    """A layer. `failures` are (label, problem); `skipped` says why nothing was carried out."""

    layer: str
    points: int = 0
    doubles: int = 0
    held: int = 0
    lies: int = 0
    differs: int = 0
    orphans: int = 0
    stuck: int = 0
    not_reached: list[str] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    skipped: str = ""
    is_simulated: bool = False
    note: str = ""

    @property
    def is_good(self) -> bool:
        return not self.failures and not self.not_reached

    def count(self, case: Case, verdict: Verdict) -> None:
        self.points += 1
        self.doubles += case.is_double
        self.held += verdict.outcome == "held"
        self.lies += bool(verdict.lies)
        self.differs += bool(verdict.differs)
        self.orphans += bool(verdict.orphans)
        self.stuck += bool(verdict.stuck)
        self.failures += [(case.label, problem) for problem in verdict.problems]


HEAD = (
    "layer", "points", "double", "held", "dirty said clean", "files differ", "orphans", "rows stuck", "not reached",
    "seconds",
)  # fmt: skip


def carry_out(layer: str, cases: Sequence[Case], work: Path, *, workers: int = WORKERS, stop_at: int = 0) -> Row:
    """All of them, `workers` at a time, each in a directory of its own; `stop_at` failures end it."""
    row = Row(layer)
    started = time.monotonic()
    folder = work / layer.replace(" ", "-")
    folder.mkdir(parents=True)
    progress = Progress(layer, len(cases))

    def one(numbered: tuple[int, Case]) -> None:
        number, case = numbered
        if stop_at and len(row.failures) >= stop_at:
            return
        base = folder / f"p{number:05d}."
        base.mkdir()
        try:
            try:
                verdict = case.run(base, *case.arguments)
            except NotReached:  # a machine that is busy can let a lease end first: once more
                clean_up(base)
                base.mkdir()
                verdict = case.run(base, *case.arguments)
            row.count(case, verdict)
        except NotReached as late:
            row.not_reached.append(f"{case.label}: {late}")
        except Exception:  # whatever broke, the point is not proved
            row.count(case, Verdict(stuck=[traceback.format_exc(limit=-4)]))
        finally:
            clean_up(base)
            progress.tell(row)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, enumerate(cases)))
    shutil.rmtree(folder)
    row.seconds = time.monotonic() - started
    return row


@dataclass
class Progress:
    """A line now and then on standard error: a layer takes minutes."""

    layer: str
    total: int
    told_s: float = field(default_factory=time.monotonic)

    def tell(self, row: Row) -> None:
        now_s = time.monotonic()
        if now_s - self.told_s < PROGRESS_S:
            return
        self.told_s = now_s
        done = row.points + len(row.not_reached)
        said = f"{self.layer}: {done} of {self.total}, {len(row.failures)} failures"
        print(said, file=sys.stderr, flush=True)


def clean_up(base: Path) -> None:
    """Ends what a failed case left running and removes its files; only what bears the name of its directory."""
    for pid in processes_of(str(base)):
        end(pid)
    for tmp in temporary_of(Scene(base)):
        shutil.rmtree(tmp, ignore_errors=True)
    shutil.rmtree(base)


def end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def state_of_the_code() -> str:
    """The commit that is tested, and whether the tree differs from it."""
    said = subprocess.run(
        ["git", "-C", str(PACKAGE), "describe", "--always", "--dirty", "--exclude", "*"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"commit {said.stdout.strip()}" if said.returncode == 0 else "no commit"


def as_table(rows: Sequence[Row]) -> str:
    """Markdown; the last line is the sum, without what was only simulated."""
    lines = [list(HEAD)]
    for row in rows:
        if row.skipped:
            lines.append([row.layer, f"skipped: {row.skipped}", *[""] * (len(HEAD) - 2)])
        else:
            lines.append([row.layer, *_numbers(row)])
    total = Row("sum")
    for row in rows:
        if row.is_simulated:
            continue
        for name in ("points", "doubles", "held", "lies", "differs", "orphans", "stuck", "seconds"):
            setattr(total, name, getattr(total, name) + getattr(row, name))
        total.not_reached += row.not_reached
    lines.append([total.layer, *_numbers(total)])
    lines.insert(1, ["---"] * len(HEAD))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _numbers(row: Row) -> list[str]:
    counted = (row.points, row.doubles, row.held, row.lies, row.differs, row.orphans, row.stuck, len(row.not_reached))
    return [*(str(number) for number in counted), f"{row.seconds:.0f}"]
