"""Power cuts on a simulated disk that promises the least a file system may: any subset of what was not synced is lost.

Disks of three kinds: one that can exchange names, one that only links and renames, and one whose journal is so small
that it grows and is compacted within the story. Cuts fall before every call; and before every call of a recovery, after
a kill that left its changes in memory only.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.agent import journal
from orchestrator.agent.errors import AgentError
from orchestrator.agent.tree import Tree
from tests.agent import scene
from tests.agent.simfs import Moment, SimFs, subsets
from tests.faults.table import Row

ROOT = "/work/tree"
_REBOOTED = "boot-2"
_SMALL_BYTES = 6 << 10


class Simulated(SimFs):
    """Killed before call number `kill_at`, if given. What was changed by then stays in memory, as after a SIGKILL."""

    kill_at: int | None = None

    def step(self, call: str, path: str) -> None:
        super().step(call, path)
        if self.kill_at is not None and len(self.moments) == self.kill_at:
            self.kill_at = None
            raise scene.Kill


class Linking(Simulated):
    """Without the flags of renameat2, as NFS and old FUSE."""

    def exchange(self, one: str, other: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), other)

    def rename_noreplace(self, old: str, new: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), new)


class Cuts:
    """All of one kind of disk. `share` of the second faults is drawn with `seed`."""

    def __init__(self, kind: type[Simulated], *, samples: int, seed: int, is_small: bool = False) -> None:
        self._kind, self._samples, self._is_small = kind, samples, is_small
        self._rng = random.Random(seed)
        self._seen: set[int] = set()

    def carry_out(self, layer: str, stop_at: int = 0) -> Row:
        row = Row(layer, is_simulated=True)
        started = time.monotonic()
        with _small_journal() if self._is_small else _as_it_is():
            for label, problem in self._all():
                row.points += 1
                if problem:
                    row.differs += 1
                    row.failures.append((label, problem))
                    if stop_at and len(row.failures) >= stop_at:
                        break
        row.seconds = time.monotonic() - started
        return row

    def _all(self) -> Iterator[tuple[str, str]]:
        disk = self._planted()
        before = disk.picture(ROOT)
        found_from = _story(disk)
        disk.step("end", "")
        total = len(disk.moments)
        for index, moment in enumerate(disk.moments):
            yield from self._cut_at(disk, moment, before, must_be_found=index >= found_from)
        for number in range(1, total + 1):
            yield from self._kill_then_cut(number, before, must_be_found=number > found_from)

    def _planted(self) -> Simulated:
        disk = self._kind()
        for folder in ("/work", ROOT, f"{ROOT}/pkg"):
            disk.mkdir(folder, 0o755)
        disk.make(f"{ROOT}/a.py", scene.OLD_A, 0o640)
        disk.make(f"{ROOT}/pkg/b.py", scene.OLD_B, 0o755)
        disk.make(f"{ROOT}/pkg/__init__.py", b"")
        fd = disk.open(f"{ROOT}/a.py", os.O_RDONLY)
        disk.set_xattr(fd, "user.note", b"kept")
        disk.close(fd)
        disk.settle()
        return disk

    def _cut_at(
        self, disk: SimFs, moment: Moment, before: object, *, must_be_found: bool, label: str = ""
    ) -> Iterator[tuple[str, str]]:
        for kept in subsets(moment.pending, self._rng, self._samples):
            image = type(disk).after_power_cut(disk, moment, kept)
            mark = hash(repr(sorted((ino, repr(inode)) for ino, inode in image.state.items())))
            if mark not in self._seen:
                self._seen.add(mark)
                yield f"{label}{moment.call}, kept {sorted(kept)}", _recover(image, before, must_be_found)

    def _kill_then_cut(self, number: int, before: object, *, must_be_found: bool) -> Iterator[tuple[str, str]]:
        """Killed before that call; a new process recovers what is in memory, and the power goes while it does."""
        disk = self._planted()
        disk.kill_at = number
        try:
            _story(disk)
        except scene.Kill:
            killed_at = len(disk.moments)
        else:
            return
        for problem in _recover_on(disk, before, must_be_found):
            yield f"killed at call {number}", problem
        moments = disk.moments[killed_at:]
        for moment in self._rng.sample(moments, min(len(moments), 2 * self._samples)):
            yield from self._cut_at(
                disk, moment, before, must_be_found=must_be_found, label=f"killed at call {number}, then "
            )


def _story(disk: SimFs) -> int:
    """Two transactions; the number of calls after which the manifest must be on the disk."""
    tree = scene.take(ROOT, disk)
    tree.snapshot()
    found_from = len(disk.moments)
    tree.apply("e1", scene.three_changes(ROOT))
    tree.revert("e1", "done")
    tree.apply("e2", [scene.replace(f"{ROOT}/a.py", scene.OLD_A, scene.NEW_A)])
    tree.revert("e2", "done")
    tree.close()
    return found_from


def _recover(image: SimFs, before: object, must_be_found: bool) -> str:
    """What is wrong on this disk after recovery; empty when nothing is."""
    return next(_recover_on(image, before, must_be_found), "")


def _recover_on(disk: SimFs, before: object, must_be_found: bool) -> Iterator[str]:
    try:
        tree = scene.take(ROOT, disk, boot_id=_REBOOTED)
        said = tree.recover_files("power cut")
        is_found = tree.found is not None
        is_clean = not is_found or tree.verify()["clean"]
    except (AgentError, ValueError, KeyError) as error:
        yield f"recovery refused: {type(error).__name__}: {error}"
        return
    if said["state"] != "clean" or not is_clean:
        yield f"recovery says {said}"
    if must_be_found and not is_found:
        yield "the manifest as found is lost"
    yield from _left(disk, tree, before)


def _left(disk: SimFs, tree: Tree, before: object) -> Iterator[str]:
    now = disk.picture(ROOT)
    if now != before:
        assert isinstance(before, dict)
        yield "differs: " + ", ".join(p for p in sorted(now.keys() | before.keys()) if now.get(p) != before.get(p))
    staged = disk.names(f"{tree.state_dir}/stage")
    if staged:
        yield f"left in the stage: {staged}"


@contextmanager
def _small_journal() -> Iterator[None]:
    """A capacity that the story exceeds."""
    usual, journal.CAPACITY_BYTES = journal.CAPACITY_BYTES, _SMALL_BYTES
    try:
        yield
    finally:
        journal.CAPACITY_BYTES = usual


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield
