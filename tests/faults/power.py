"""Power cuts: killed before a call, then everything that was not synced is lost, on real file systems. Layer 8."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.faults import calls, table
from tests.faults.agents import Agent, AgentError, processes_of
from tests.faults.disks import Disk, disk
from tests.faults.examining import Story, Verdict, recover
from tests.faults.scenery import Scene
from tests.faults.table import Case, NotReached, Row
from tests.faults.tracing import Fault, Point, Tracer, has_struck, parse_points, trace_arguments


def _walk(scene: Scene, agent: Agent) -> str:
    """Without a launch: what a server does is no matter of disks, and no process outlives a power cut."""
    try:
        story = Story(scene, agent, with_launch=False)
        story.open()
    except AgentError:
        return "unknown"
    return story.run()


def trace(work: Path) -> list[Point]:
    base = work / "power-trace."
    base.mkdir(parents=True)
    scene = Scene(base).plant()
    agent = Agent(base)
    tracer = Tracer(agent.line_thread(), base / "strace", trace_arguments())
    try:
        story = Story(scene, agent, with_launch=False)
        for step in (story.open, *story.steps()):
            step()
        agent.leave()
    finally:
        agent.kill()
        text = tracer.detach()
    points = parse_points(text, base)
    table.clean_up(base)
    return points


class Bench:
    """One disk for the tree and perhaps a second one for the journal; used for one point after the other."""

    def __init__(self, tree: Disk, journal: Disk | None) -> None:
        self._disks = [tree] if journal is None else [tree, journal]
        self._tree, self._journal = tree, journal
        self._number = 0

    def cut(self, home: Path, fault: Fault) -> Verdict:
        """`home` is on a disk that does not lose its power: HOME, strace's log."""
        self._number += 1
        for one in self._disks:
            one.clear()
        scene = Scene(home, journal_dir=self._journal.point if self._journal else None)
        place = self._tree.point / f"{self._number}"
        place.mkdir()
        (home / "work").symlink_to(place)
        scene.plant()
        for one in self._disks:
            one.settle()
        _, text = calls.run_faulty(scene, fault, _walk)
        if not has_struck(text, fault):
            raise NotReached(text[-200:])
        _end_all(scene)
        for one in self._disks:
            one.cut_power()
        return recover(scene, token="after the reboot")


def _end_all(scene: Scene) -> None:
    """No process outlives a power cut."""
    deadline = time.monotonic() + 10
    while found := processes_of(str(scene.base)):
        for pid in found:
            table.end(pid)
        assert time.monotonic() < deadline, found


def carry_out(kind: str, split: bool, points: Sequence[Point], work: Path) -> Row:
    """One row: every kill point on this kind of disk. The benches are two, each used by one thread at a time."""
    name = f"power {kind}, journal {'apart' if split else 'beside'}"
    folder = work / name.replace(" ", "-").replace(",", "")
    folder.mkdir()
    with ExitStack() as stack:
        benches = []
        for number in range(table.WORKERS):
            tree = stack.enter_context(disk(kind, folder, f"tree{number}"))
            journal = stack.enter_context(disk(kind, folder, f"journal{number}")) if split else None
            benches.append(Bench(tree, journal))
        lock = threading.Lock()

        def run(home: Path, fault: Fault) -> Verdict:
            with lock:
                bench = benches.pop()
            try:
                return bench.cut(home, fault)
            finally:
                with lock:
                    benches.append(bench)

        cases = [
            Case(f"{kind}: {Fault(point, 'KILL')}", run, (Fault(point, "KILL"),))
            for point in points
            if not (split and "journal" in (point.path or ""))  # there it has another path
        ]
        row = table.carry_out(name, cases, folder)
    shutil.rmtree(folder)
    return row
