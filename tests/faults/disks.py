"""File systems of our own in loop mounts and in memory: made, filled, cut off from their power, mounted again."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TRIES, _PAUSE_S = 100, 0.05
_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_MIB = {"ext4": 24, "xfs": 320, "btrfs": 128}
_MAKE = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f"), "btrfs": ("mkfs.btrfs", "-q", "-f")}
_OPTIONS = {"btrfs": "commit=300"}


@dataclass
class Disk:
    """One file system of `kind`, mounted at `point`; `image` is its backing file."""

    kind: str
    image: Path
    point: Path

    def format(self) -> None:
        with self.image.open("wb") as file:
            file.truncate(_MIB[self.kind] << 20)
        _run(*_MAKE[self.kind], str(self.image))

    def mount(self) -> None:
        self.point.mkdir(exist_ok=True)
        options = ["-o", ",".join(filter(None, ["loop", _OPTIONS.get(self.kind)]))]
        _run("mount", "-t", self.kind, *options, str(self.image), str(self.point))

    def unmount(self) -> None:
        """A process that was just killed may take a moment to let go of its files."""
        for _ in range(_TRIES):
            if subprocess.run(["umount", str(self.point)], capture_output=True, check=False).returncode == 0:
                return
            threading.Event().wait(_PAUSE_S)
        _run("umount", str(self.point))

    def settle(self) -> None:
        """Everything so far is on the disk."""
        fd = os.open(self.point, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        _run("sync", "-f", str(self.point))

    def cut_power(self) -> None:
        """What was not synced is lost; the disk is mounted again as after a reboot. No process may use it."""
        if self.kind == "btrfs":
            copy = self.image.with_suffix(".cut")
            _run("cp", "--sparse=always", str(self.image), str(copy))
            self.unmount()
            copy.replace(self.image)
        else:
            fd = os.open(self.point, os.O_RDONLY)
            try:
                fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
            finally:
                os.close(fd)
            self.unmount()
        self.mount()

    def abort(self) -> None:
        """Read-only at once, whoever has files open: what ext4 does when its own disk fails."""
        _run("mount", "-o", "remount,abort", str(self.point))

    def clear(self) -> None:
        """An empty disk again, without making it anew."""
        for name in os.listdir(self.point):
            path = self.point / name
            if path.is_dir() and name != "lost+found":
                shutil.rmtree(path)
            elif path.is_file():
                path.unlink()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(done.returncode, f"{' '.join(command)}: {done.stderr.strip()}")


@contextmanager
def disk(kind: str, work: Path, name: str = "disk") -> Iterator[Disk]:
    """Made, mounted, and taken down at the end."""
    made = Disk(kind, work / f"{name}.img", work / name)
    made.format()
    made.mount()
    try:
        yield made
    finally:
        made.unmount()
        made.image.unlink()


@contextmanager
def memory(point: Path, size: str = "3m") -> Iterator[Path]:
    point.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "faults", str(point))
    try:
        yield point
    finally:
        _run("umount", str(point))


@contextmanager
def overlay(work: Path) -> Iterator[Path]:
    """An overlay whose upper directory is a small ext4."""
    with disk("ext4", work, "upper") as upper:
        for name in ("lower", "merged"):
            (work / name).mkdir(exist_ok=True)
        for name in ("up", "scratch"):
            (upper.point / name).mkdir()
        options = f"lowerdir={work}/lower,upperdir={upper.point}/up,workdir={upper.point}/scratch"
        _run("mount", "-t", "overlay", "-o", options, "faults", str(work / "merged"))
        try:
            yield work / "merged"
        finally:
            _run("umount", str(work / "merged"))


@contextmanager
def any_disk(kind: str, work: Path) -> Iterator[Path]:
    if kind == "tmpfs":
        with memory(work / "memory") as point:
            yield point
    elif kind == "overlay":
        with overlay(work) as point:
            yield point
    else:
        with disk(kind, work) as made:
            yield made.point


def fill(folder: Path) -> Path:
    """Until not one byte is free; the file that takes the room."""
    path = folder / "ballast"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (1 << 20, 1 << 12, 512, 1):
            while True:
                try:
                    if os.write(fd, b"x" * size) == 0:
                        break
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    break
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    finally:
        os.close(fd)
    return path


def why_not(kind: str) -> str | None:
    """The reason for which this kind of disk cannot be had here, or None."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if kind in _MAKE and shutil.which(_MAKE[kind][0]) is None:
        return f"{_MAKE[kind][0]} is not installed"
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        try:
            with any_disk(kind, Path(folder)):
                return None
        except OSError as error:
            return str(error)
