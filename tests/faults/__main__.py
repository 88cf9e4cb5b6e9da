"""`python -m tests.faults`: every layer, one row each, as Markdown. Exit code 1 when anything is not as promised.

`--fast` takes a fixed sample of each layer, `--only NAME` the layers whose name begins so (`--only none`: no layer);
`--kills N` and `--far-kills N` add SIGKILLs of whole runs at random times, here and through a real sshd.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.faults import (
    calls,
    controllers,
    deadman,
    disks,
    environment,
    frames,
    guards,
    parties,
    power,
    servers,
    simulator,
    states,
    table,
)
from tests.faults.table import Case, Row
from tests.faults.tracing import Point, why_not

SEED = 20261
SIDE_BY_SIDE = 8


class Harness:
    """`share` of each layer's cases, drawn with a fixed seed; traces are made once."""

    def __init__(self, work: Path, share: float, only: str, stop_at: int = 0) -> None:
        self.work, self.share, self.only, self.stop_at = work, share, only, stop_at
        self._points: list[Point] | None = None
        self._guards: list[list[Point]] = []

    @property
    def points(self) -> list[Point]:
        if self._points is None:
            self._points = calls.trace_story(self.work / "trace.")
            table.clean_up(self.work / "trace.")
        return self._points

    def sample(self, cases: list[Case]) -> list[Case]:
        if self.share >= 1.0:
            return cases
        return random.Random(SEED).sample(cases, max(1, round(len(cases) * self.share)))

    def row(self, name: str, make: Callable[[], list[Case]], workers: int = table.WORKERS) -> Row:
        return table.carry_out(name, self.sample(make()), self.work, workers=workers, stop_at=self.stop_at)

    # -- layers --------------------------------------------------------------------------------------------------

    def layers(self) -> Iterator[tuple[str, Callable[[], Row]]]:
        yield "1 calls killed", lambda: self.row("1 calls killed", lambda: calls.kill_cases(self.points))
        yield "1 calls failing", lambda: self.row("1 calls failing", lambda: calls.error_cases(self.points))
        yield "1 short writes", lambda: self.row("1 short writes", lambda: calls.short_write_cases(26))
        yield "1 lasting states", lambda: self.row("1 lasting states", self._states)
        yield "2 frames", lambda: self.row("2 frames", frames.frame_cases)
        yield "3 controller", lambda: self.row("3 controller", self._controller)
        yield (
            "4 guard",
            lambda: self.row("4 guard", lambda: [*guards.guard_cases(*self._guard()), *guards.freeze_cases()]),
        )
        yield (
            "4 guard's calls failing",
            lambda: self.row("4 guard's calls failing", lambda: guards.error_cases(*self._guard())),
        )
        yield "4 agent stopped", lambda: self.row("4 agent stopped", lambda: guards.stop_cases(self.points))
        yield "4 silence", lambda: self.row("4 silence", guards.silence_cases)
        yield "5 third parties", lambda: self.row("5 third parties", self._third_parties)
        yield "5 disks", lambda: self.row("5 disks", self._disks)
        yield "5 reboot", lambda: self.row("5 reboot", lambda: environment.reboot_cases(self.points))
        yield "5 second controller", lambda: self.row("5 second controller", environment.second_cases)
        yield "6 servers", lambda: self.row("6 servers", servers.server_cases)
        yield "7 double faults", self._doubles
        for kind in ("ext4", "xfs", "btrfs"):
            for split in (False, True):
                yield f"8 power {kind} {'apart' if split else 'beside'}", partial(self._power, kind, split)
        for kind_of_disk in simulator.KINDS:
            yield f"9 simulated, {kind_of_disk.name}", partial(self._simulated, kind_of_disk)
        yield "10 dead-man", self._deadman
        yield "10 coming back", self._come_back

    def _controller(self) -> list[Case]:
        points = controllers.count_points(self.work / "count.")
        table.clean_up(self.work / "count.")
        return controllers.controller_cases(points, 120)

    def _guard(self) -> list[list[Point]]:
        """Its calls while it serves, and while it undoes."""
        if not self._guards:
            for number, expiring in enumerate((False, True)):
                base = self.work / f"guard{number}."
                self._guards.append(guards.trace_guard(base, expiring=expiring))
                table.clean_up(base)
        return self._guards

    def _states(self) -> list[Case]:
        points = {}
        for kind in states.PARTS:
            base = self.work / f"{kind.__name__}."
            points[kind] = states.trace_part(base, kind)
            table.clean_up(base)
        return states.state_cases(points)

    def _third_parties(self) -> list[Case]:
        return [
            *parties.at_last_cases(),
            *parties.meddle_cases(),
            *parties.meddle_at_cases(power.trace(self.work)),
        ]

    def _disks(self) -> list[Case]:
        kinds = [kind for kind in ("tmpfs", "ext4", "xfs", "btrfs", "overlay") if disks.why_not(kind) is None]
        return environment.disk_cases(tuple(kinds))

    def _doubles(self) -> Row:
        wanted = max(4, round(500 * self.share))
        points = self.points if self.share >= 1.0 else random.Random(SEED).sample(self.points, min(12, wanted))
        cases = calls.double_cases(points, self.work, wanted, SEED)
        return table.carry_out("7 double faults", cases, self.work, stop_at=self.stop_at)

    def _power(self, kind: str, split: bool) -> Row:
        reason = disks.why_not(kind)
        if reason is not None:
            return Row(f"8 power {kind}", skipped=reason)
        points = power.trace(self.work)
        if self.share < 1.0:
            points = random.Random(SEED).sample(points, max(1, round(len(points) * self.share)))
        row = power.carry_out(kind, split, points, self.work)
        row.layer = f"8 {row.layer}"
        return row

    def _simulated(self, kind: simulator.Kind) -> Row:
        samples, stride = (1, 5) if self.share < 1.0 else (1, 2)
        cuts = simulator.Cuts(kind, samples=samples, seed=SEED, stride=stride)
        return cuts.carry_out(f"9 simulated, {kind.name}", self.stop_at)

    def _deadman(self) -> Row:
        times_s: list[float] = []
        cases = self.sample(deadman.deadman_cases(100, times_s))
        row = table.carry_out("10 dead-man", cases, self.work, workers=SIDE_BY_SIDE)
        row.note = _times("from the last word to byte-exact, lease 3 s", times_s)
        return row

    def _come_back(self) -> Row:
        times_s: list[float] = []
        row = table.carry_out("10 coming back", self.sample(deadman.come_back_cases(20, times_s)), self.work, workers=1)
        row.note = _times("from connecting to recovered", times_s)
        return row

    def random_kills(self, count: int, *, is_far: bool) -> Row:
        started = time.monotonic()
        controllers.count_points(self.work / "count.")
        run_s = time.monotonic() - started
        table.clean_up(self.work / "count.")
        name = "random kills through sshd" if is_far else "random kills"
        return table.carry_out(name, controllers.random_cases(count, SEED, run_s, is_far=is_far), self.work)


def _times(what: str, times_s: list[float]) -> str:
    return f"{what}: median {statistics.median(times_s):.2f} s, longest {max(times_s):.2f} s, n = {len(times_s)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="a sample of each layer")
    parser.add_argument("--share", type=float, default=None, help="this share of each layer's points")
    parser.add_argument("--only", default="", help="layers whose name begins so")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="N SIGKILLs of whole runs at random times")
    parser.add_argument("--far-kills", type=int, default=0, metavar="N", help="the same through a real sshd")
    parser.add_argument("--stop-at", type=int, default=0, metavar="N", help="end a layer after N failures")
    given = parser.parse_args()
    reason = why_not()
    if reason is not None:
        print(f"skipped, all of it: {reason}")
        return 0
    share = given.share or (0.06 if given.fast else 1.0)
    work = Path(tempfile.mkdtemp(prefix="faults-"))
    rows, started = [], time.monotonic()
    try:
        harness = Harness(work, share, given.only, given.stop_at)
        for name, carry_out in harness.layers():
            if name.startswith(given.only):
                rows.append(carry_out())
                _tell(rows[-1])
                if given.stop_at and not rows[-1].is_good:
                    break
        for count, is_far in ((given.kills, False), (given.far_kills, True)):
            if count:
                rows.append(harness.random_kills(count, is_far=is_far))
                _tell(rows[-1])
    finally:
        shutil.rmtree(work, ignore_errors=True)
    took = f"{os.cpu_count()} processors, {(time.monotonic() - started) / 60:.0f} minutes"
    print(f"{table.state_of_the_code()}, seed {SEED}, share {share:g}, {took}\n")
    print(table.as_table(rows))
    for row in rows:
        if row.note:
            print(f"\n{row.layer}: {row.note}.", end="")
    print()
    return 0 if all(row.is_good or row.skipped for row in rows) else 1


def _tell(row: Row) -> None:
    print(
        f"{row.layer}: {row.points} points, {len(row.failures)} failures, {row.seconds:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    for label, problem in row.failures[:10]:
        print(f"  {label}\n    {problem[-300:]}", file=sys.stderr, flush=True)
    for label in row.not_reached[:5]:
        print(f"  not reached: {label[:300]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
