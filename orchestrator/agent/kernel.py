"""System calls that Python 3.8 has no name for, through ctypes: pidfds, prctl, inotify."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
from typing import Iterator

_libc = ctypes.CDLL(None, use_errno=True)

# The same on every architecture: both were added after the tables were unified.
_PIDFD_SEND_SIGNAL = 424
_PIDFD_OPEN = 434
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NAME = 15

IN_MODIFY = 0x2
IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""What nursery and guard do not listen to."""


def _call(name: str, *args: object) -> int:
    result = int(getattr(_libc, name)(*args))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def open_pidfd(pid: int) -> int | None:
    """A close-on-exec descriptor of the process, or None where the kernel has none to give.

    Raises ProcessLookupError when there is no such process. None: before Linux 5.3, or filtered (gVisor, seccomp).
    """
    try:
        return _call("syscall", ctypes.c_long(_PIDFD_OPEN), ctypes.c_int(pid), ctypes.c_uint(0))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
            return None
        raise


def send_through_pidfd(pidfd: int, number: int) -> None:
    """Raises ProcessLookupError when the process has been reaped, PermissionError when it is not ours to signal."""
    _call(
        "syscall",
        ctypes.c_long(_PIDFD_SEND_SIGNAL),
        ctypes.c_int(pidfd),
        ctypes.c_int(number),
        ctypes.c_void_p(None),
        ctypes.c_uint(0),
    )


def become_subreaper() -> None:
    """Orphans below this process come back to it instead of to pid 1. Not inherited by children."""
    set_subreaper(True)


def set_subreaper(wanted: bool) -> None:
    zero = ctypes.c_ulong(0)
    _call("prctl", ctypes.c_int(_PR_SET_CHILD_SUBREAPER), ctypes.c_ulong(int(wanted)), zero, zero, zero)


def set_name(name: str) -> None:
    """What `ps -o comm` shows; 15 bytes are kept."""
    zero = ctypes.c_ulong(0)
    _call("prctl", ctypes.c_int(_PR_SET_NAME), ctypes.c_char_p(name.encode()[:15]), zero, zero, zero)


def watch_file(path: str) -> int | None:
    """A non-blocking inotify descriptor that turns readable when `path` is written; None where there is none left."""
    try:
        fd = _call("inotify_init1", ctypes.c_int(os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EMFILE, errno.ENFILE):
            return None
        raise
    try:
        _call("inotify_add_watch", ctypes.c_int(fd), ctypes.c_char_p(os.fsencode(path)), ctypes.c_uint32(IN_MODIFY))
    except OSError as error:
        os.close(fd)
        if error.errno == errno.ENOSPC:  # the user's watches are used up
            return None
        raise
    return fd


def ignore_signals() -> None:
    """The end of a terminal, a connection or a session is no reason to go."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)


def reset_signals() -> None:
    """Give a program about to be executed the default of every signal that Python or we changed."""
    for number in (*IGNORED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def open_fds() -> Iterator[int]:
    """Descriptors of this process, the one used to list them included."""
    for name in os.listdir("/proc/self/fd"):
        yield int(name)


def close_all_but(keep: set[int]) -> None:
    """Close every other descriptor."""
    for fd in sorted(open_fds()):
        if fd not in keep:
            try:
                os.close(fd)
            except OSError as error:
                if error.errno != errno.EBADF:  # the listing's own
                    raise


def peer_of(sock_fd_credentials: bytes) -> int:
    """Process id out of SO_PEERCRED."""
    return int(struct.unpack("3i", sock_fd_credentials)[0])
