"""Real file systems that lose power: what was not synced is gone, the log is not flushed.

Needs root and loop mounts; elsewhere the simulated disk of `test_files.py` has to do. The power is cut with the
SHUTDOWN ioctl of ext4 and xfs; btrfs has none, so its backing file is copied while it is in use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.fs import Fs
from tests.agent import scene
from tests.agent.scene import FaultFs, Kill

SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)
SIZES_MIB = {"ext4": 64, "xfs": 320, "btrfs": 256}
STRIDE = 4  # every fourth call: the simulated disk covers all of them

pytestmark = pytest.mark.faults


class Disk:
    """An image on a loop device of its own. One device for all mounts: two of them would not see each other's cache."""

    def __init__(self, kind: str, image: Path) -> None:
        self.kind = kind
        self.image = image
        self.device = attach(image)

    @contextmanager
    def mounted(self, at: Path) -> Iterator[str]:
        at.mkdir(exist_ok=True)
        subprocess.run(["mount", self.device, str(at)], check=True)
        try:
            yield str(at)
        finally:
            subprocess.run(["umount", str(at)], check=True)

    @contextmanager
    def mounted_until_power_cut(self, at: Path) -> Iterator[str]:
        """What was not synced at the end is lost."""
        after = self.image.with_name("after.img")
        with self.mounted(at) as home:
            yield home
            if self.kind == "btrfs":
                subprocess.run(["cp", "--sparse=always", str(self.image), str(after)], check=True)
            else:
                shut_down(home)
        if self.kind == "btrfs":
            self.detach()
            after.replace(self.image)
            self.device = attach(self.image)

    def detach(self) -> None:
        subprocess.run(["losetup", "-d", self.device], check=True)


def attach(image: Path) -> str:
    done = subprocess.run(["losetup", "-f", "--show", str(image)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop devices here: {done.stderr.strip()}")
    return done.stdout.strip()


def shut_down(mount: str) -> None:
    fd = os.open(mount, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, NO_LOG_FLUSH)
    finally:
        os.close(fd)


@pytest.fixture
def disk(kind: str, tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0 or shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"needs root and mkfs.{kind}")
    image = tmp_path / f"{kind}.img"
    with image.open("wb") as file:
        file.truncate(SIZES_MIB[kind] << 20)
    subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
    made = Disk(kind, image)
    yield made
    made.detach()


def journal_dir(is_split: bool, tmp_path: Path) -> dict[str, Any]:
    """On another file system, whose log does not make the tree's names durable by the way."""
    if not is_split:
        return {}
    (tmp_path / "journals").mkdir(exist_ok=True)
    return {"journal_dir": str(tmp_path / "journals")}


def run(root: str, fs: Fs, **more: Any) -> None:
    tree = scene.take(root, fs, **more)
    try:
        tree.apply(f"e{tree.epoch}", scene.three_changes(root))
        tree.revert(f"e{tree.epoch}", "done")
    finally:
        tree.leave()


@pytest.mark.parametrize("is_split", [False, True], ids=["same", "split"])
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_after_a_power_cut_the_tree_is_as_found(disk: Disk, is_split: bool, tmp_path: Path) -> None:
    """Killed at a call, power cut, mounted again, recovered: every path is as it was."""
    mount, more = tmp_path / "mnt", journal_dir(is_split, tmp_path)
    with disk.mounted(mount) as home:
        scene.plant(f"{home}/tree")
        counting = FaultFs()
        run(f"{home}/tree", Fs(), **more)
        run(f"{home}/tree", counting, **more)
        before = scene.picture(f"{home}/tree")
    for at in range(len(counting.calls) % STRIDE or STRIDE, len(counting.calls) + STRIDE, STRIDE):
        with disk.mounted_until_power_cut(mount) as home, suppress(Kill):
            run(f"{home}/tree", FaultFs(at), **more)
        with disk.mounted(mount) as home:
            recover(f"{home}/tree")
            assert scene.picture(f"{home}/tree") == before, f"power cut at call {at}"


def recover(root: str) -> None:
    tree = scene.take(root, boot_id="boot-2")
    try:
        assert tree.recover_files("power cut")["state"] == "clean"
        assert scene.staged(tree) == []
    finally:
        tree.leave()
