"""Power cuts on a simulated disk that promises the least a file system may: any subset of what was not synced is lost.

Two disks of it: one that can exchange names, one that only links and renames. The journal's file is on the same disk
and is forgotten like everything else.
"""

from __future__ import annotations

import errno
import os
import random
import time

from orchestrator.agent.errors import AgentError
from tests.agent import scene
from tests.agent.simfs import SimFs, subsets
from tests.faults.table import Row

ROOT = "/work/tree"
_REBOOTED = "boot-2"


class Linking(SimFs):
    """Without the flags of renameat2, as NFS and old FUSE."""

    def exchange(self, one: str, other: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), other)

    def rename_noreplace(self, old: str, new: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), new)


def _plant(disk: SimFs) -> None:
    for folder in ("/work", ROOT, f"{ROOT}/pkg"):
        disk.mkdir(folder, 0o755)
    disk.make(f"{ROOT}/a.py", scene.OLD_A, 0o640)
    disk.make(f"{ROOT}/pkg/b.py", scene.OLD_B, 0o755)
    disk.make(f"{ROOT}/pkg/__init__.py", b"")
    fd = disk.open(f"{ROOT}/a.py", os.O_RDONLY)
    disk.set_xattr(fd, "user.note", b"kept")
    disk.close(fd)
    disk.settle()


def _story(disk: SimFs) -> None:
    tree = scene.take(ROOT, disk)
    tree.snapshot()
    tree.apply("e1", scene.three_changes(ROOT))
    tree.revert("e1", "done")
    tree.apply("e2", [scene.replace(f"{ROOT}/a.py", scene.OLD_A, scene.NEW_A)])
    tree.revert("e2", "done")
    tree.close()


def cut_everywhere(layer: str, disk: SimFs, samples: int, seed: int, stop_at: int = 0) -> Row:
    """Before every call, every subset of few pending operations, the edges and `samples` draws of many."""
    row = Row(layer, is_simulated=True)
    started = time.monotonic()
    _plant(disk)
    before = disk.picture(ROOT)
    _story(disk)
    disk.step("end", "")
    rng = random.Random(seed)
    seen: set[int] = set()
    for moment in list(disk.moments):
        for kept in subsets(moment.pending, rng, samples):
            image = type(disk).after_power_cut(disk, moment, kept)
            mark = hash(repr(sorted((ino, repr(inode)) for ino, inode in image.state.items())))
            if mark in seen:
                continue
            seen.add(mark)
            row.points += 1
            for problem in _recover(image, before):
                row.differs += 1
                row.failures.append((f"{moment.call}, kept {sorted(kept)}", problem))
            if stop_at and len(row.failures) >= stop_at:
                row.seconds = time.monotonic() - started
                return row
    row.seconds = time.monotonic() - started
    return row


def _recover(image: SimFs, before: dict[str, tuple[object, ...]]) -> list[str]:
    try:
        tree = scene.take(ROOT, image, boot_id=_REBOOTED)
        said = tree.recover_files("power cut")
    except AgentError as error:
        return [f"recovery refused: {error}"]
    now = image.picture(ROOT)
    bad = [f"differs: {path}" for path in sorted(now.keys() | before.keys()) if now.get(path) != before.get(path)]
    left = image.names(f"{tree.state_dir}/stage")
    if said["state"] != "clean":
        bad.append(f"recovery says {said}")
    if left:
        bad.append(f"left in the stage: {left}")
    return bad[:1]
