"""Which system calls one thread makes, and the same run again with one of them killed or failing: strace.

strace attaches to a single thread, so a call is addressed by its name and its number among the calls of that name on
that thread. Calls of `openat` are counted by path, since how often /proc is read depends on the machine, and so are
those of `write` to files: others are answers to the controller, and a disk that fails for ever does not break a pipe.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.agents import TooLate, wait_until

FILE_CALLS = (
    "openat", "write", "pwrite64", "fsync", "fdatasync", "fallocate", "ftruncate", "fchown", "fchmod", "utimensat",
    "fsetxattr", "fremovexattr", "rename", "renameat2", "link", "linkat", "symlink", "unlink", "unlinkat", "mkdir",
    "rmdir", "chmod",
)  # fmt: skip
OTHER_CALLS = ("flock", "sendto", "pidfd_send_signal", "fork", "vfork", "clone", "clone3", "bind", "listen", "wait4")
ERRORS = ("ENOSPC", "EIO", "EROFS", "EDQUOT")
_LINE = re.compile(r"^(?:\[pid +\d+\] )?(?P<call>\w+)\((?P<rest>.*)$")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Point:
    """The `number`-th call of this name, of this path for `openat` and for `write` to a file; `counts` are the calls of
    each name before it."""

    call: str
    number: int
    path: str | None
    shown: str
    is_file: bool
    counts: tuple[tuple[str, int], ...] = field(repr=False, default=())

    def __str__(self) -> str:
        return f"{self.call}#{self.number} {self.shown}"

    @property
    def is_time_above(self) -> bool:
        """The call that puts back the time of the directory above the tree: see `Scene.forgive_time_above`."""
        return self.call == "utimensat" and self.shown == "/work"


@dataclass(frozen=True)
class Fault:
    """`what`: KILL, STOP or the name of an error. `for_ever`: from this call on, all calls that change files; for a
    point with a path for all calls of that name on that path."""

    point: Point
    what: str
    for_ever: bool = False

    def __str__(self) -> str:
        return f"{self.what}{' for ever' if self.for_ever else ''} at {self.point}"

    def arguments(self, base: Path) -> list[str]:
        point = self.point
        effect = f"signal={self.what}" if self.what in ("KILL", "STOP") else f"error={self.what}"
        if point.path is not None:
            when = f"{point.number}{'+' if self.for_ever else ''}"
            path = _put_in(point.path, base)
            return ["-P", path, "-e", f"trace={point.call}", "-e", f"inject={point.call}:{effect}:when={when}"]
        if not self.for_ever:
            return ["-e", f"trace={point.call}", "-e", f"inject={point.call}:{effect}:when={point.number}"]
        before = dict(point.counts)
        calls = [call for call in FILE_CALLS if call not in ("openat", "write")]
        words = ["-e", "trace=" + ",".join(f"?{call}" for call in calls)]
        for call in calls:
            first = point.number if call == point.call else before.get(call, 0) + 1
            words += ["-e", f"inject=?{call}:{effect}:when={first}+"]
        return words


class Tracer:
    """An strace on one thread of a running process, attached when this returns."""

    def __init__(self, thread: int, log: Path, arguments: Sequence[str]) -> None:
        self._log = log
        command = ["strace", "-y", "-s", "256", "-o", str(log), "-p", str(thread), *arguments]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the tracer
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors)
        wait_until(lambda: "attached" in self._said() or self.process.poll() is not None, "strace attaches")
        if "attached" not in self._said():
            raise RuntimeError(f"strace: {self._said()}")

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace")

    def detach(self) -> str:
        """What it wrote. The traced process goes on, unless it is dead."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            raise TooLate("strace did not detach") from error
        self._errors.close()
        return self._log.read_text(errors="replace")


def has_struck(text: str, fault: Fault) -> bool:
    """Whether the fault came to pass in this run."""
    if fault.what == "KILL":
        return "killed by SIGKILL" in text
    return "(INJECTED)" in text or "SIGSTOP" in text


def trace_arguments() -> list[str]:
    return ["-e", "trace=" + ",".join(f"?{call}" for call in (*FILE_CALLS, *OTHER_CALLS))]


def parse_points(text: str, base: Path) -> list[Point]:
    """Every call that changes something, in order. `base` is taken out of the paths, so that a point of one run can be
    met in another."""
    counts: Counter[str] = Counter()
    opened: Counter[str] = Counter()
    written: Counter[str] = Counter()
    points = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        call, rest = found["call"], found["rest"]
        shown = _shorten(rest, base)
        if call == "write" and rest.partition("<")[2].startswith("/") and not _is_memory(rest):
            path = rest.partition("<")[2].partition(">")[0]
            written[path] += 1
            points.append(Point(call, written[path], _take_out(path, base), shown, True, tuple(counts.items())))
            counts[call] += 1
            continue
        if call == "openat":
            path = _path_of(rest)
            opened[path] += 1
            if "O_CREAT" in rest or "O_TRUNC" in rest:
                generic = _take_out(path, base)
                points.append(Point(call, opened[path], generic, shown, True, tuple(counts.items())))
            continue
        number = counts[call] + 1
        is_file = call in FILE_CALLS and "socket:" not in rest and "pipe:" not in rest and not _is_memory(rest)
        if not (call == "wait4" or _is_of_proc(rest)):
            points.append(Point(call, number, None, shown, is_file, tuple(counts.items())))
        counts[call] = number
    return points


def _state_name(base: Path) -> str:
    """The name that the agent gives the state directory: by device and inode of the root."""
    root = os.stat(base / "work" / "tree")
    return f".orchestrator-{root.st_dev:x}-{root.st_ino:x}"


def _put_in(path: str, base: Path) -> str:
    work = str((base / "work").resolve())
    return path.replace("STATE", _state_name(base)).replace("WORK", work).replace("BASE", str(base))


def _take_out(path: str, base: Path) -> str:
    work = str((base / "work").resolve())
    return path.replace(_state_name(base), "STATE").replace(work, "WORK").replace(str(base), "BASE")


def _is_memory(rest: str) -> bool:
    return "anon_inode:" in rest or "<UNIX" in rest or "agent.err" in rest or "/dev/null" in rest


def _is_of_proc(rest: str) -> bool:
    return "/proc/" in rest.split(" = ")[0] and "socket" not in rest


def _path_of(rest: str) -> str:
    found = _QUOTED.search(rest)
    return found[1] if found else "?"


def _shorten(rest: str, base: Path) -> str:
    names = re.findall(r'<(/[^>]*)>|"((?:[^"\\]|\\.)*)"', rest.split(" = ")[0])
    paths = [one or other for one, other in names if (one or other).startswith("/") and (one or other) != "/"]
    paths = [path for path in paths if path != os.getcwd()]  # of AT_FDCWD
    short = [re.sub(r"\.orchestrator-[0-9a-f]+-[0-9a-f]+", "STATE", path.replace(str(base), "")) for path in paths[:2]]
    short = [re.sub(r"/tmp/orc-[0-9a-f]+", "/tmp/orc-", path) for path in short]
    return " ".join(short)


def why_not() -> str | None:
    """The reason for which nothing can be traced here, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(
        ["strace", "-o", "/dev/null", "-e", "inject=getppid:retval=1", "true"], capture_output=True, text=True
    )
    return None if tried.returncode == 0 else f"strace may not trace here: {tried.stderr.strip()[-100:]}"
