"""Every file operation of the agent's state half, behind one object.

Tests subclass it: they count, fail or kill at each change (`step`), or replace the calls by a simulated disk that
forgets whatever was not synced. Nothing here decides anything.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import struct
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from orchestrator.agent import linux

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_FS_IOC_GETFLAGS = 0x80086601
_FICLONE = 0x40049409
_CANNOT_CLONE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM)
_FROZEN_FLAGS = 0x10 | 0x20  # immutable, append only
_NO_XATTRS = (errno.ENOTSUP, errno.EOPNOTSUPP)
_CHUNK = 1 << 20
_REMEMBERED_BYTES = 16 << 20


class Stat(NamedTuple):
    """What we look at in a `stat`; size in bytes, mtime in nanoseconds, mode with the type bits."""

    mode: int
    ino: int
    dev: int
    nlink: int
    uid: int
    gid: int
    size: int
    mtime_ns: int

    @property
    def kind(self) -> str:
        if stat.S_ISREG(self.mode):
            return "file"
        if stat.S_ISDIR(self.mode):
            return "dir"
        return "link" if stat.S_ISLNK(self.mode) else "other"


def _stat(found: os.stat_result) -> Stat:
    return Stat(
        found.st_mode,
        found.st_ino,
        found.st_dev,
        found.st_nlink,
        found.st_uid,
        found.st_gid,
        found.st_size,
        found.st_mtime_ns,
    )


class Fs:
    """The real file system."""

    def __init__(self) -> None:
        self._paths: Dict[int, str] = {}
        self._renameat2: Optional[Callable[[bytes, bytes, int], None]] = None
        self._known: Dict[int, List[Tuple[bytes, str]]] = {}
        self._mounts: Tuple[bytes, List[linux.Mount]] = (b"", [])

    def step(self, call: str, path: str) -> None:
        """Called before each change with its name and path; the place where tests count, fail and kill."""

    # -- descriptors ---------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        if flags & (os.O_CREAT | os.O_TRUNC):
            self.step("open", path)
        fd = os.open(path, flags | os.O_CLOEXEC, mode)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        os.close(fd)

    def path_of(self, fd: int) -> str:
        return self._paths.get(fd, f"fd {fd}")

    def read(self, fd: int, size: int) -> bytes:
        return os.read(fd, size)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def write(self, fd: int, data: bytes) -> int:
        self.step("write", self.path_of(fd))
        return os.write(fd, data)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self.step("pwrite", self.path_of(fd))
        return os.pwrite(fd, data, offset)

    def fsync(self, fd: int) -> None:
        self.step("fsync", self.path_of(fd))
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        self.step("fdatasync", self.path_of(fd))
        os.fdatasync(fd)

    def fallocate(self, fd: int, length: int) -> None:
        """Reserves the first `length` bytes, so that writing there cannot fail for want of space."""
        self.step("fallocate", self.path_of(fd))
        os.posix_fallocate(fd, 0, length)

    def fstat(self, fd: int) -> Stat:
        return _stat(os.fstat(fd))

    def fchown(self, fd: int, uid: int, gid: int) -> None:
        self.step("fchown", self.path_of(fd))
        os.fchown(fd, uid, gid)

    def fchmod(self, fd: int, mode: int) -> None:
        self.step("fchmod", self.path_of(fd))
        os.fchmod(fd, mode)

    def futime(self, fd: int, mtime_ns: int) -> None:
        self.step("futime", self.path_of(fd))
        os.utime(fd, ns=(mtime_ns, mtime_ns))

    def set_xattr(self, fd: int, name: str, value: bytes) -> None:
        self.step("setxattr", self.path_of(fd))
        os.setxattr(fd, name, value)

    def remove_xattr(self, fd: int, name: str) -> None:
        self.step("removexattr", self.path_of(fd))
        os.removexattr(fd, name)

    def lock(self, fd: int) -> bool:
        """Takes the exclusive lock if nobody has it; it goes with the descriptor."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def clone(self, source_fd: int, fd: int) -> bool:
        """Lets a new file share the blocks of another until one is written to; False where the disk cannot."""
        self.step("clone", self.path_of(fd))
        try:
            fcntl.ioctl(fd, _FICLONE, source_fd)
        except OSError as error:
            if error.errno not in _CANNOT_CLONE:
                raise
            return False
        return True

    # -- names ---------------------------------------------------------------------------------------------------

    def rename(self, old: str, new: str) -> None:
        self.step("rename", new)
        os.rename(old, new)

    def exchange(self, one: str, other: str) -> None:
        """Swaps two names in one step; EINVAL or ENOSYS where the file system cannot."""
        self.step("exchange", other)
        self._call_renameat2(one, other, _RENAME_EXCHANGE)

    def rename_noreplace(self, old: str, new: str) -> None:
        """Renames unless `new` exists (EEXIST); EINVAL or ENOSYS where the file system cannot."""
        self.step("rename_noreplace", new)
        self._call_renameat2(old, new, _RENAME_NOREPLACE)

    def _call_renameat2(self, old: str, new: str, flags: int) -> None:
        if self._renameat2 is None:
            self._renameat2 = linux.find_renameat2()
        self._renameat2(os.fsencode(old), os.fsencode(new), flags)

    def link(self, old: str, new: str) -> None:
        self.step("link", new)
        os.link(old, new, follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        self.step("symlink", path)
        os.symlink(target, path)

    def unlink(self, path: str) -> None:
        self.step("unlink", path)
        os.unlink(path)

    def mkdir(self, path: str, mode: int) -> None:
        self.step("mkdir", path)
        os.mkdir(path, mode)

    def rmdir(self, path: str) -> None:
        self.step("rmdir", path)
        os.rmdir(path)

    # -- looking -------------------------------------------------------------------------------------------------

    def lstat(self, path: str) -> Stat:
        return _stat(os.lstat(path))

    def scan(self, path: str) -> List[Tuple[str, Stat]]:
        """Names and stats of a directory, in the order of the names; what vanishes meanwhile is left out."""
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    found.append((entry.name, _stat(entry.stat(follow_symlinks=False))))
                except FileNotFoundError:
                    continue
        found.sort()
        return found

    def names(self, path: str) -> List[str]:
        return sorted(os.listdir(path))

    def readlink(self, path: str) -> str:
        return os.readlink(path)

    def resolve(self, path: str) -> str:
        """The path without symbolic links; what does not exist stays as written."""
        return os.path.realpath(path)

    def xattrs(self, path: str) -> Dict[str, bytes]:
        """All readable extended attributes of the path itself, ACLs and capabilities included."""
        try:
            names = os.listxattr(path, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_XATTRS:
                return {}
            raise
        return {name: os.getxattr(path, name, follow_symlinks=False) for name in names} if names else {}

    def digest(self, path: str, size_hint: int = _CHUNK) -> Tuple[str, Dict[str, bytes]]:
        """sha256 of a regular file in hexadecimal, and its extended attributes."""
        chunk = min(size_hint + 1, _CHUNK)  # a large buffer for a small file costs more than reading it
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = os.read(fd, chunk)
            sha256 = self._recall(data) if len(data) < chunk else None
            if sha256 is None:
                digest = hashlib.sha256(data)
                while len(data) == chunk:
                    data = os.read(fd, chunk)
                    digest.update(data)
                sha256 = digest.hexdigest()
            xattrs = _list_xattrs(fd)
        finally:
            os.close(fd)
        return sha256, xattrs

    def sha256_of(self, content: bytes) -> str:
        """In hexadecimal. Until `forget_contents`, a file of the same bytes is compared instead of hashed again."""
        known = self._recall(content)
        if known is not None:
            return known
        sha256 = hashlib.sha256(content).hexdigest()
        kept = sum(size * len(entries) for size, entries in self._known.items())
        if len(content) < _CHUNK and kept + len(content) <= _REMEMBERED_BYTES:
            self._known.setdefault(len(content), []).append((content, sha256))
        return sha256

    def forget_contents(self) -> None:
        self._known.clear()

    def _recall(self, data: bytes) -> Optional[str]:
        return next((sha256 for content, sha256 in self._known.get(len(data), ()) if content == data), None)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return (found.f_bfree if os.geteuid() == 0 else found.f_bavail) * found.f_frsize

    def may_write(self, directory: str) -> bool:
        """Whether entries of the directory may be changed: permission, and a mount that is not read only."""
        return os.access(directory, os.W_OK | os.X_OK) and not os.statvfs(directory).f_flag & os.ST_RDONLY

    def is_frozen(self, path: str) -> bool:
        """Whether the immutable or append-only flag is set; false where the file system has no flags."""
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            flags = struct.unpack("l", fcntl.ioctl(fd, _FS_IOC_GETFLAGS, b"\0" * struct.calcsize("l")))[0]
        except OSError as error:
            if error.errno in (errno.ENOTTY, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
                return False
            raise
        finally:
            os.close(fd)
        return bool(flags & _FROZEN_FLAGS)

    def writers(self, path: str) -> List[int]:
        """Processes that have the file open for writing; `[0]` when the kernel knows of one that we cannot see."""
        verdict = linux.has_writer(path)
        if verdict is False:
            return []
        found = linux.scan_writers(os.stat(path, follow_symlinks=False))
        return found or ([0] if verdict else [])

    def mounts(self) -> List[linux.Mount]:
        with open("/proc/self/mountinfo", "rb") as file:
            raw = file.read()
        if raw != self._mounts[0]:
            self._mounts = raw, [linux.parse_mount(line) for line in raw.splitlines()]
        return self._mounts[1]

    def now_ns(self) -> int:
        return time.time_ns()

    # -- composed of the above -----------------------------------------------------------------------------------

    def write_all(self, fd: int, data: bytes) -> None:
        """Writes everything, however short the single writes are."""
        done = 0
        while done < len(data):
            done += self.write(fd, data[done : done + _CHUNK])

    def pwrite_all(self, fd: int, data: bytes, offset: int) -> None:
        done = 0
        while done < len(data):
            done += self.pwrite(fd, data[done:], offset + done)

    def sync_dir(self, path: str) -> None:
        """Makes the entries and the times of a directory durable."""
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def set_dir_time(self, path: str, mtime_ns: int) -> None:
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.futime(fd, mtime_ns)
        finally:
            self.close(fd)

    def read_file(self, path: str) -> bytes:
        fd = self.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            chunk = min(self.fstat(fd).size + 1, _CHUNK)  # as for `digest`
            parts = [self.read(fd, chunk)]
            while parts[-1]:
                parts.append(self.read(fd, chunk))
        finally:
            self.close(fd)
        return b"".join(parts)

    def write_file(self, path: str, data: bytes) -> None:
        """Replaces a file of ours as a whole: after a crash it is the old or the new one."""
        fresh = path + ".new"
        fd = self.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            self.write_all(fd, data)
            self.fsync(fd)
        finally:
            self.close(fd)
        self.rename(fresh, path)
        self.sync_dir(os.path.dirname(path))

    def find(self, path: str) -> Optional[Stat]:
        """`lstat`, or None when nothing is there."""
        try:
            return self.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _list_xattrs(fd: int) -> Dict[str, bytes]:
    try:
        names = os.listxattr(fd)
    except OSError as error:
        if error.errno in _NO_XATTRS:
            return {}
        raise
    return {name: os.getxattr(fd, name) for name in names} if names else {}
