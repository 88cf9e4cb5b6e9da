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


@contextmanager
def mounted(image: Path, at: Path) -> Iterator[str]:
    at.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-o", "loop", str(image), str(at)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop mounts here: {done.stderr.strip()}")
    try:
        yield str(at)
    finally:
        subprocess.run(["umount", str(at)], check=True)


def make_image(kind: str, tmp_path: Path) -> Path:
    if os.geteuid() != 0 or shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"needs root and mkfs.{kind}")
    image = tmp_path / f"{kind}.img"
    with image.open("wb") as file:
        file.truncate(SIZES_MIB[kind] << 20)
    subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
    return image


def cut_power(kind: str, image: Path, mount: str) -> Path:
    """The image as it is at this moment."""
    if kind == "btrfs":
        after = image.with_name("after.img")
        subprocess.run(["cp", "--sparse=always", str(image), str(after)], check=True)
        return after
    fd = os.open(mount, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, SHUTDOWN, NO_LOG_FLUSH)
    finally:
        os.close(fd)
    return image


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
def test_after_a_power_cut_the_tree_is_as_found(kind: str, is_split: bool, tmp_path: Path) -> None:
    """Killed at a call, power cut, mounted again, recovered: every path is as it was."""
    image, mount = make_image(kind, tmp_path), tmp_path / "mnt"
    more = journal_dir(is_split, tmp_path)
    with mounted(image, mount) as home:
        scene.plant(f"{home}/tree")
        counting = FaultFs()
        run(f"{home}/tree", Fs(), **more)
        run(f"{home}/tree", counting, **more)
        before = scene.picture(f"{home}/tree")
        os.sync()
    for at in range(len(counting.calls) % STRIDE or STRIDE, len(counting.calls) + STRIDE, STRIDE):
        with mounted(image, mount) as home:
            with suppress(Kill):
                run(f"{home}/tree", FaultFs(at), **more)
            after = cut_power(kind, image, home)
        after.replace(image)
        with mounted(image, mount) as home:
            tree = scene.take(f"{home}/tree", boot_id="boot-2")
            assert tree.recover_files("power cut")["state"] == "clean"
            assert scene.staged(tree) == []
            tree.close()
            assert scene.picture(f"{home}/tree") == before, f"power cut at call {at}"
