"""Linux calls that Python does not wrap: atomic exchange, leases as a question, writers, mounts."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import signal
from typing import Callable, List, NamedTuple, Optional

_AT_FDCWD = -100
_RENAMEAT2 = {"x86_64": 316, "amd64": 316, "aarch64": 276, "arm64": 276, "riscv64": 276}
_F_SETSIG = 10


class Mount(NamedTuple):
    """One line of mountinfo: where, what is shown there, and of which type."""

    point: str
    root: str
    type: str
    source: str


def find_renameat2() -> Callable[[bytes, bytes, int], None]:
    """A function (old, new, flags) around renameat2, by libc's wrapper or by number."""
    try:
        import ctypes
    except ImportError:  # a Python built without libffi: the callers fall back to link and rename
        return _no_renameat2
    libc = ctypes.CDLL(None, use_errno=True)
    wrapper = getattr(libc, "renameat2", None)
    number = _RENAMEAT2.get(platform.machine().lower())
    if wrapper is None and number is None:
        return _no_renameat2

    def call(old: bytes, new: bytes, flags: int) -> None:
        if wrapper is not None:
            done = wrapper(_AT_FDCWD, old, _AT_FDCWD, new, flags)
        else:
            done = libc.syscall(number, _AT_FDCWD, old, _AT_FDCWD, new, flags)
        if done != 0:
            number_of_error = ctypes.get_errno()
            raise OSError(number_of_error, os.strerror(number_of_error), os.fsdecode(new))

    return call


def _no_renameat2(_old: bytes, new: bytes, _flags: int) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), os.fsdecode(new))


def has_writer(path: str) -> Optional[bool]:
    """Whether somebody writes to the file: a read lease is refused then. None where leases do not exist."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # An opener in the microseconds of the lease would send SIGIO, which kills; SIGURG is ignored by default.
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(fd)
    return False


def scan_writers(target: os.stat_result) -> List[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        folder = f"/proc/{pid}/fd"
        try:
            held = os.listdir(folder)
        except OSError:  # ended meanwhile, or another user's
            continue
        if any(_writes(pid, fd, target) for fd in held):
            found.append(int(pid))
    return found


def _writes(pid: str, fd: str, target: os.stat_result) -> bool:
    try:
        there = os.stat(f"/proc/{pid}/fd/{fd}")
        if (there.st_dev, there.st_ino) != (target.st_dev, target.st_ino):
            return False
        with open(f"/proc/{pid}/fdinfo/{fd}") as file:
            flags = next((int(line.split()[1], 8) for line in file if line.startswith("flags:")), 0)
    except OSError:  # closed meanwhile
        return False
    return flags & os.O_ACCMODE != os.O_RDONLY


def parse_mount(line: bytes) -> Mount:
    """One mountinfo line: `36 35 98:0 /root /point opts shared:1 - type source superopts`."""
    head, _, tail = line.partition(b" - ")
    fields, more = head.split(b" "), tail.split(b" ")
    return Mount(_unescape(fields[4]), _unescape(fields[3]), os.fsdecode(more[0]), _unescape(more[1]))


def _unescape(field: bytes) -> str:
    """mountinfo writes space, tab, newline and backslash as three octal digits."""
    parts = field.split(b"\\")
    plain = parts[0] + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in parts[1:])
    return os.fsdecode(plain)
