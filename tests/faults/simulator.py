"""Power cuts on a simulated disk that promises the least a file system may: any subset of what was not synced is lost.

A story is what a controller asks for; `KINDS` are the disks on which it is played. Cuts fall before every call of it.
Then it is killed before every call, which leaves what it changed in memory only: cuts fall while a new process recovers
that, and while it goes on with another transaction upon it.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from orchestrator.agent import changes, journal
from orchestrator.agent.errors import AgentError
from orchestrator.agent.tree import Tree
from tests.agent import scene
from tests.agent.simfs import Moment, SimFs, subsets
from tests.faults.table import Row

ROOT = "/work/tree"
_APART = "/journals"
_REBOOTED = "boot-2"
_SMALL_BYTES = 3 << 10
_NEWER_A = scene.NEW_A + b"# and more\n"


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


@dataclass
class Promises:
    """What must hold after a cut, by the number of calls from which on it must: it was said, so it is on the disk."""

    disk: SimFs
    said: list[tuple[int, str, Any]] = field(default_factory=list)

    def say(self, what: str, value: object) -> None:
        self.said.append((len(self.disk.moments), what, value))

    def at(self, index: int) -> dict[str, Any]:
        return {what: value for calls, what, value in self.said if calls <= index}


Story = Callable[[SimFs, Promises], None]


@dataclass(frozen=True)
class Kind:
    """`is_apart`: the journal lies in another directory. `is_small`: it grows and is compacted within the story."""

    name: str
    disk: type[Simulated]
    story: Story
    is_small: bool = False
    is_apart: bool = False


# -- stories -------------------------------------------------------------------------------------------------------


def _take(disk: SimFs, promises: Promises, boot_id: str = scene.BOOT) -> Tree:
    more: dict[str, Any] = {"journal_dir": _APART} if disk.find(_APART) is not None else {}
    tree = scene.take(ROOT, disk, boot_id=boot_id, **more)
    promises.say("epoch", tree.epoch)
    return tree


def experiments(disk: SimFs, promises: Promises) -> None:
    """Some transactions, and everything of ours is taken away."""
    tree = _take(disk, promises)
    tree.snapshot()
    promises.say("found", True)
    tree.apply("e1", scene.three_changes(ROOT))
    tree.revert("e1", "done")
    for txn in ("e2", "e3", "e4"):  # enough for a small journal to be compacted
        tree.apply(txn, [scene.replace(f"{ROOT}/a.py", scene.OLD_A, scene.NEW_A)])
        tree.revert(txn, "done")
    tree.close()
    for what in ("epoch", "found"):
        promises.say(what, None)
    Tree.forget(disk, ROOT, boot_id=scene.BOOT, clock=scene.Clock())
    promises.say("forgotten", True)


def keeping(disk: SimFs, promises: Promises) -> None:
    """Two changes stay, a third one is tried upon them, and a person takes all of it back."""
    tree = _take(disk, promises)
    tree.snapshot()
    promises.say("found", True)
    tree.apply("k1", [*scene.three_changes(ROOT)[1:], scene.replace(f"{ROOT}/a.py", scene.OLD_A, scene.NEW_A)])
    tree.keep("k1")
    promises.say("kept", 1)
    tree.apply("e2", [scene.replace(f"{ROOT}/a.py", scene.NEW_A, scene.OLD_A)])
    tree.revert("e2", "done")
    tree.apply("k2", [scene.replace(f"{ROOT}/a.py", scene.NEW_A, _NEWER_A)])
    promises.say("kept", None)
    tree.keep("k2")
    promises.say("kept", 2)
    promises.say("kept", None)
    tree.restore_kept()
    promises.say("kept", 0)
    tree.close()


KINDS = (
    Kind("exchange", Simulated, experiments),
    Kind("links", Linking, experiments),
    Kind("small journal", Simulated, experiments, is_small=True),
    Kind("small journal apart", Simulated, experiments, is_small=True, is_apart=True),
    Kind("kept, small journal", Simulated, keeping, is_small=True),
)


class Cuts:
    """All of one kind; `stride`: it is killed before every n-th call only. Subsets, and the calls of the second process
    before which the power goes, are drawn with `seed`."""

    def __init__(self, kind: Kind, *, samples: int, seed: int, stride: int = 1) -> None:
        self._kind, self._samples, self._stride = kind, samples, stride
        self._rng = random.Random(seed)
        self._seen: set[int] = set()
        self._before: dict[str, tuple[object, ...]] = {}

    def carry_out(self, layer: str, stop_at: int = 0) -> Row:
        row = Row(layer, is_simulated=True)
        started = time.monotonic()
        with _capacity(_SMALL_BYTES if self._kind.is_small else journal.CAPACITY_BYTES):
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
        self._before = disk.picture(ROOT)
        promises = Promises(disk)
        self._kind.story(disk, promises)
        disk.step("end", "")
        for index, moment in enumerate(disk.moments):
            yield from self._cut_at(disk, moment, promises.at(index))
        for number in range(1, len(disk.moments), self._stride):
            yield from self._kill_then_cut(number, promises.at(number - 1))

    def _planted(self) -> Simulated:
        disk = self._kind.disk()
        for folder in ("/work", ROOT, f"{ROOT}/pkg", *([_APART] if self._kind.is_apart else [])):
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
        self, disk: SimFs, moment: Moment, promised: dict[str, Any], label: str = ""
    ) -> Iterator[tuple[str, str]]:
        for kept in subsets(moment.pending, self._rng, self._samples):
            image = type(disk).after_power_cut(disk, moment, kept)
            mark = hash(repr(sorted((ino, repr(inode)) for ino, inode in image.state.items())))
            if mark not in self._seen:
                self._seen.add(mark)
                yield f"{label}{moment.call}, kept {sorted(kept)}", next(self._recover(image, promised), "")

    def _kill_then_cut(self, number: int, promised: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """Killed before that call; a new process recovers what is in memory, and goes on."""
        disk = self._planted()
        disk.kill_at = number
        try:
            self._kind.story(disk, Promises(disk))
        except scene.Kill:
            killed_at = len(disk.moments)
        else:
            return
        label = f"killed at call {number}"
        promises = Promises(disk, [(0, what, value) for what, value in promised.items()])
        for problem in self._recover(disk, promised, promises):
            yield label, problem
        recovered_at = len(disk.moments)
        _go_on(disk, promises)
        for first, last in ((killed_at, recovered_at), (recovered_at, len(disk.moments))):
            for index in self._rng.sample(range(first, last), min(last - first, 2 * self._samples)):
                yield from self._cut_at(disk, disk.moments[index], promises.at(index), f"{label}, then ")

    # -- recovery ----------------------------------------------------------------------------------------------------

    def _recover(self, disk: SimFs, promised: dict[str, Any], promises: Promises | None = None) -> Iterator[str]:
        """What is wrong on this disk after recovery by a new process; nothing when all is as promised."""
        if promised.get("forgotten"):
            left = [name for name in disk.names("/work") if name.startswith(".orchestrator-")]
            if left:
                yield f"forgotten, and still there: {left}"
        try:
            tree = _take(disk, promises or Promises(disk), _REBOOTED)
            said = tree.recover_files("power cut")
            yield from self._broken(tree, promised)
            is_clean = said["state"] == "clean" and (tree.found is None or tree.verify()["clean"])
            if tree.kept():
                if promises is not None:
                    promises.say("kept", None)
                said = tree.restore_kept()
                is_clean = is_clean and said["state"] == "clean" and tree.verify()["clean"]
        except (AgentError, ValueError, KeyError) as error:
            yield f"recovery refused: {type(error).__name__}: {error}"
            return
        if not is_clean:
            yield f"recovery says {said}"
        yield from self._left(disk, tree)
        tree.leave()

    def _broken(self, tree: Tree, promised: dict[str, Any]) -> Iterator[str]:
        """Words that were given and do not hold."""
        epoch, kept = promised.get("epoch"), promised.get("kept")
        if epoch is not None and tree.epoch <= epoch:
            yield f"epoch {tree.epoch} after epoch {epoch}"
        if kept is not None and len(tree.kept()) != kept:
            yield f"kept is {tree.kept()}, not {kept} changes"
        if promised.get("found") and tree.found is None:
            yield "the manifest as found is lost"

    def _left(self, disk: SimFs, tree: Tree) -> Iterator[str]:
        now, before = disk.picture(ROOT), self._before
        if now != before:
            paths = (path for path in sorted(now.keys() | before.keys()) if now.get(path) != before.get(path))
            yield f"differs: {', '.join(paths)}"
        staged = disk.names(f"{tree.state_dir}/stage")
        if staged:
            yield f"left in the stage: {staged}"


def _go_on(disk: SimFs, promises: Promises) -> None:
    """Another process, upon what the first recovery left."""
    tree = _take(disk, promises, _REBOOTED)
    tree.apply("later", scene.three_changes(ROOT))
    tree.revert("later", "done")
    tree.leave()


@contextmanager
def _capacity(size_bytes: int) -> Iterator[None]:
    """Of a new journal: one that the story exceeds grows and is compacted. What is reserved for the records that end a
    transaction shrinks with it, since a journal that is more than half empty is left as it is."""
    usual, spare = journal.CAPACITY_BYTES, changes._SPARE_BYTES
    journal.CAPACITY_BYTES, changes._SPARE_BYTES = size_bytes, min(spare, size_bytes // 4)
    try:
        yield
    finally:
        journal.CAPACITY_BYTES, changes._SPARE_BYTES = usual, spare
