"""The simulated twin of `Fs`: a disk in memory that promises as little as a file system may.

Every change is an operation in a log. It becomes durable only when what it belongs to is synced: bytes and size with
`fsync` or `fdatasync` of the file, owner, mode, times and attributes with `fsync` of the file, names with `fsync` of
every directory they are in. A power cut keeps the durable operations and any subset of the others, sector by sector.
A rename or exchange is kept or lost as a whole, as on every journalling file system.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from orchestrator.agent.fs import Fs, Stat
from orchestrator.agent.linux import Mount

SECTOR = 512
ROOT_INO = 2
DEV = 0x51


@dataclass
class Inode:
    kind: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    size: int = 0
    sectors: dict[int, bytes] = field(default_factory=dict)
    xattrs: dict[str, bytes] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    target: str = ""

    def copy(self) -> Inode:
        return Inode(
            self.kind, self.mode, self.uid, self.gid, self.mtime_ns, self.size,
            dict(self.sectors), dict(self.xattrs), dict(self.entries), self.target,
        )  # fmt: skip


State = dict[int, Inode]


@dataclass
class Op:
    """One change: how it acts on a state, and what still has to be synced before it is durable."""

    what: str
    act: Callable[[State], None]
    waits_for: set[tuple[str, int]]


@dataclass(frozen=True)
class Moment:
    """A point between two calls: how much of the log exists, and which of it is not durable yet."""

    call: str
    length: int
    pending: tuple[int, ...]


class SimFs(Fs):
    """A disk that forgets. `moments` lists the state of the log before every changing call."""

    def __init__(self, state: State | None = None, now_ns: int = 1_700_000_000_000_000_000) -> None:
        super().__init__()
        uid = os.geteuid()
        self.state = state or {ROOT_INO: Inode(stat.S_IFDIR, 0o755, uid, 0, now_ns)}
        self.base = {ino: inode.copy() for ino, inode in self.state.items()}
        self.log: list[Op] = []
        self.moments: list[Moment] = []
        self.clock_ns = now_ns
        self.uid = uid
        self._next_ino = max(self.state) + 1
        self._open: dict[int, list[Any]] = {}
        self._next_fd = 1000

    # -- the log ---------------------------------------------------------------------------------------------------

    def step(self, call: str, path: str) -> None:
        self.clock_ns += 1_000_003
        pending = tuple(index for index, op in enumerate(self.log) if op.waits_for)
        self.moments.append(Moment(f"{call} {path}", len(self.log), pending))

    def settle(self) -> None:
        """Everything so far is on the disk; the log starts again."""
        self.base = {ino: inode.copy() for ino, inode in self.state.items()}
        self.log, self.moments = [], []

    def after_power_cut(self, moment: Moment, kept: frozenset[int]) -> SimFs:
        """The disk after a power cut at `moment`, when of the pending operations those in `kept` had reached it."""
        state = {ino: inode.copy() for ino, inode in self.base.items()}
        lost = set(moment.pending) - kept
        for index in range(moment.length):
            if index not in lost:
                self.log[index].act(state)
        return type(self)(state, self.clock_ns + 3_600_000_000_000)

    def _do(self, what: str, act: Callable[[State], None], *waits_for: tuple[str, int]) -> None:
        act(self.state)
        self.log.append(Op(what, act, set(waits_for)))

    def _sync(self, *keys: tuple[str, int]) -> None:
        for op in self.log:
            op.waits_for.difference_update(keys)

    # -- paths -----------------------------------------------------------------------------------------------------

    def _walk(self, path: str) -> int:
        ino = ROOT_INO
        for name in filter(None, path.split("/")):
            inode = self.state[ino]
            if inode.kind != stat.S_IFDIR:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if name not in inode.entries:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            ino = inode.entries[name]
        return ino

    def _place(self, path: str) -> tuple[int, str]:
        return self._walk(os.path.dirname(path)), os.path.basename(path)

    def _name(self, what: str, *entries: tuple[int, str, int | None]) -> None:
        """Sets names, all of them or none: (directory, name, inode or nothing)."""
        now_ns = self.clock_ns

        def act(state: State) -> None:
            for folder, name, ino in entries:
                state[folder].mtime_ns = now_ns
                if ino is None:
                    state[folder].entries.pop(name, None)
                else:
                    state[folder].entries[name] = ino

        self._do(what, act, *(("dir", folder) for folder, _, _ in entries))

    def _new(self, kind: int, mode: int, target: str = "") -> int:
        ino, self._next_ino = self._next_ino, self._next_ino + 1
        uid, now_ns = self.uid, self.clock_ns

        def act(state: State) -> None:
            state[ino] = Inode(kind, mode, uid, 0, now_ns, target=target)

        self._do("new", act)  # an inode without a name is nowhere
        return ino

    # -- descriptors -----------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        changes = bool(flags & (os.O_CREAT | os.O_TRUNC))
        if changes:
            self.step("open", path)
        try:
            ino = self._walk(path)
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            folder, name = self._place(path)
            ino = self._new(stat.S_IFREG, mode)
            self._name("create", (folder, name, ino))
        if flags & os.O_TRUNC:
            self._do("truncate", lambda state: _truncate(state[ino]), ("data", ino))
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._open[fd] = [ino, 0]
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        del self._open[fd]
        self._paths.pop(fd, None)

    def read(self, fd: int, size: int) -> bytes:
        ino, position = self._open[fd]
        data = self._bytes(ino, position, size)
        self._open[fd][1] += len(data)
        return data

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return self._bytes(self._open[fd][0], offset, size)

    def _bytes(self, ino: int, offset: int, size: int) -> bytes:
        inode = self.state[ino]
        end = min(inode.size, offset + size)
        first, last = offset // SECTOR, -(-end // SECTOR)
        raw = b"".join(inode.sectors.get(index, bytes(SECTOR)) for index in range(first, last))
        return raw[offset - first * SECTOR : end - first * SECTOR] if end > offset else b""

    def write(self, fd: int, data: bytes) -> int:
        self.step("write", self.path_of(fd))
        ino, position = self._open[fd]
        self._store(ino, data, position)
        self._open[fd][1] += len(data)
        return len(data)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self.step("pwrite", self.path_of(fd))
        self._store(self._open[fd][0], data, offset)
        return len(data)

    def _store(self, ino: int, data: bytes, offset: int) -> None:
        end = offset + len(data)
        if end > self.state[ino].size:
            self._do("size", lambda state: setattr(state[ino], "size", end), ("data", ino))
        now_ns = self.clock_ns
        self._do("mtime", lambda state: setattr(state[ino], "mtime_ns", now_ns), ("meta", ino))
        for index in range(offset // SECTOR, -(-end // SECTOR)):
            self._do("sector", _sector_write(ino, index, data, offset), ("data", ino))

    def fsync(self, fd: int) -> None:
        self.step("fsync", self.path_of(fd))
        ino = self._open[fd][0]
        self._sync(("data", ino), ("meta", ino), ("dir", ino))

    def fdatasync(self, fd: int) -> None:
        self.step("fdatasync", self.path_of(fd))
        self._sync(("data", self._open[fd][0]))

    def fallocate(self, fd: int, length: int) -> None:
        self.step("fallocate", self.path_of(fd))
        ino = self._open[fd][0]
        if length > self.state[ino].size:
            self._do("size", lambda state: setattr(state[ino], "size", length), ("data", ino))

    def fstat(self, fd: int) -> Stat:
        return self._stat(self._open[fd][0])

    def fchown(self, fd: int, uid: int, gid: int) -> None:
        self.step("fchown", self.path_of(fd))
        self._meta(fd, "uid", uid)
        self._meta(fd, "gid", gid)

    def fchmod(self, fd: int, mode: int) -> None:
        self.step("fchmod", self.path_of(fd))
        self._meta(fd, "mode", mode)

    def futime(self, fd: int, mtime_ns: int) -> None:
        self.step("futime", self.path_of(fd))
        self._meta(fd, "mtime_ns", mtime_ns)

    def _meta(self, fd: int, field_name: str, value: int) -> None:
        ino = self._open[fd][0]
        kind = "dir" if self.state[ino].kind == stat.S_IFDIR else "meta"
        self._do(field_name, lambda state: setattr(state[ino], field_name, value), (kind, ino))

    def set_xattr(self, fd: int, name: str, value: bytes) -> None:
        self.step("setxattr", self.path_of(fd))
        ino = self._open[fd][0]
        self._do("setxattr", lambda state: state[ino].xattrs.update({name: value}), ("meta", ino))

    def remove_xattr(self, fd: int, name: str) -> None:
        self.step("removexattr", self.path_of(fd))
        ino = self._open[fd][0]
        self._do("removexattr", lambda state: _drop(state[ino].xattrs, name), ("meta", ino))

    def lock(self, fd: int) -> bool:
        return fd in self._open

    # -- names -----------------------------------------------------------------------------------------------------

    def rename(self, old: str, new: str) -> None:
        self.step("rename", new)
        ino, (old_dir, old_name), (new_dir, new_name) = self._walk(old), self._place(old), self._place(new)
        if self.state[new_dir].entries.get(new_name) != ino:  # two names of one file: rename(2) does nothing
            self._name("rename", (old_dir, old_name, None), (new_dir, new_name, ino))

    def exchange(self, one: str, other: str) -> None:
        self.step("exchange", other)
        first, second = self._walk(one), self._walk(other)
        self._name("exchange", (*self._place(one), second), (*self._place(other), first))

    def rename_noreplace(self, old: str, new: str) -> None:
        self.step("rename_noreplace", new)
        if self.find(new) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        ino = self._walk(old)
        self._name("rename", (*self._place(old), None), (*self._place(new), ino))

    def link(self, old: str, new: str) -> None:
        self.step("link", new)
        if self.find(new) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        self._name("link", (*self._place(new), self._walk(old)))

    def symlink(self, target: str, path: str) -> None:
        self.step("symlink", path)
        folder, name = self._place(path)
        self._name("symlink", (folder, name, self._new(stat.S_IFLNK, 0o777, target)))

    def unlink(self, path: str) -> None:
        self.step("unlink", path)
        self._walk(path)
        self._name("unlink", (*self._place(path), None))

    def mkdir(self, path: str, mode: int) -> None:
        self.step("mkdir", path)
        if self.find(path) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        folder, name = self._place(path)
        self._name("mkdir", (folder, name, self._new(stat.S_IFDIR, mode)))

    def rmdir(self, path: str) -> None:
        self.step("rmdir", path)
        if self.state[self._walk(path)].entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._name("rmdir", (*self._place(path), None))

    # -- looking ---------------------------------------------------------------------------------------------------

    def _stat(self, ino: int) -> Stat:
        inode = self.state[ino]
        names = sum(list(folder.entries.values()).count(ino) for folder in self.state.values())
        mode = inode.kind | inode.mode
        return Stat(mode, ino, DEV, names, inode.uid, inode.gid, inode.size, inode.mtime_ns)

    def lstat(self, path: str) -> Stat:
        return self._stat(self._walk(path))

    def scan(self, path: str) -> list[tuple[str, Stat]]:
        return [(name, self._stat(ino)) for name, ino in sorted(self.state[self._walk(path)].entries.items())]

    def names(self, path: str) -> list[str]:
        return sorted(self.state[self._walk(path)].entries)

    def readlink(self, path: str) -> str:
        return self.state[self._walk(path)].target

    def resolve(self, path: str) -> str:
        """Links are followed at the end of a path only."""
        found = self.find(path)
        return self.readlink(path) if found is not None and found.kind == "link" else os.path.normpath(path)

    def xattrs(self, path: str) -> dict[str, bytes]:
        return dict(self.state[self._walk(path)].xattrs)

    def digest(self, path: str, size_hint: int = 0) -> tuple[str, dict[str, bytes]]:
        ino = self._walk(path)
        data = self._bytes(ino, 0, self.state[ino].size)
        return hashlib.sha256(data).hexdigest(), dict(self.state[ino].xattrs)

    def free_bytes(self, path: str) -> int:
        return 1 << 40

    def may_write(self, directory: str) -> bool:
        return True

    def is_frozen(self, path: str) -> bool:
        return False

    def writers(self, path: str) -> list[int]:
        return []

    def mounts(self) -> list[Mount]:
        return [Mount("/", "/", "sim", "sim")]

    def now_ns(self) -> int:
        return self.clock_ns

    # -- for tests -------------------------------------------------------------------------------------------------

    def make(self, path: str, content: bytes, mode: int = 0o644) -> None:
        fd = self.open(path, os.O_WRONLY | os.O_CREAT)
        self.write_all(fd, content)
        self.fchmod(fd, mode)
        self.close(fd)

    def picture(self, path: str) -> dict[str, tuple[object, ...]]:
        """Everything below a path that a revert promises, and the link counts."""
        seen: dict[str, tuple[object, ...]] = {}
        for at, ino in self._below(path, self._walk(path)):
            inode = self.state[ino]
            content = self._bytes(ino, 0, inode.size)
            meta = (inode.kind, inode.mode, inode.uid, inode.gid, inode.mtime_ns, tuple(sorted(inode.xattrs.items())))
            seen[at] = (*meta, content, self._stat(ino).nlink if inode.kind == stat.S_IFREG else 0)
        return seen

    def _below(self, path: str, ino: int) -> Iterator[tuple[str, int]]:
        yield path, ino
        for name, child in sorted(self.state[ino].entries.items()):
            yield from self._below(f"{path}/{name}", child)


def subsets(pending: tuple[int, ...], rng: random.Random, samples: int) -> Iterator[frozenset[int]]:
    """Which pending operations a power cut keeps: all subsets of few, else the edges and a sample."""
    if len(pending) <= 4:
        for bits in range(1 << len(pending)):
            yield frozenset(op for index, op in enumerate(pending) if bits >> index & 1)
        return
    everything = frozenset(pending)
    yield from (frozenset(), everything)
    for op in pending:
        yield from (frozenset({op}), everything - {op})
    for _ in range(samples):
        yield frozenset(op for op in pending if rng.random() < 0.5)


def _drop(entries: dict[str, bytes], name: str) -> None:
    entries.pop(name, None)


def _truncate(inode: Inode) -> None:
    inode.size = 0
    inode.sectors = {}


def _sector_write(ino: int, index: int, data: bytes, offset: int) -> Callable[[State], None]:
    start = max(index * SECTOR, offset)
    end = min((index + 1) * SECTOR, offset + len(data))
    piece, at = data[start - offset : end - offset], start - index * SECTOR

    def act(state: State) -> None:
        old = state[ino].sectors.get(index, bytes(SECTOR))
        state[ino].sectors[index] = old[:at] + piece + old[at + len(piece) :]

    return act
