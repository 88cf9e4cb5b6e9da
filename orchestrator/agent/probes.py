"""Looking at the host: commands with a deadline, files, patterns."""

from __future__ import annotations

import base64
import errno
import glob
import hashlib
import os
import select
import signal
import stat as stat_bits
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterable, List, Mapping, Set

from orchestrator.agent import kernel

MAX_OUTPUT = 1 << 20
MAX_CONTENT = 1 << 20
MAX_HASHED = 1 << 30
_lock = threading.Lock()
_running: Set[subprocess.Popen[bytes]] = set()
_AFTER_EXIT_S = 0.2
_AFTER_KILL_S = 1.0


def run_commands(commands: List[Mapping[str, Any]]) -> Dict[str, Any]:
    """All at once, each with its own deadline; the reply to `run`. `env` is the whole environment when it is given."""
    if not commands:
        return {}
    with ThreadPoolExecutor(max_workers=min(len(commands), 32)) as pool:
        results = list(pool.map(_run_one, commands))
    names = [str(command["name"]) for command in commands]
    return dict(zip(names, results))  # noqa: B905 - `strict` is not in 3.8


def _run_one(command: Mapping[str, Any]) -> Dict[str, Any]:
    stdin = command.get("stdin")
    try:
        process = subprocess.Popen(
            list(command["argv"]),
            env=command.get("env"),
            cwd=command.get("cwd"),
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return {"rc": None, "stdout": "", "stderr": "", "timed_out": False, "error": str(error)}
    with _lock:
        _running.add(process)
    talk = _Talk(process, (stdin or "").encode("utf-8", "surrogateescape"), int(command.get("max_bytes") or MAX_OUTPUT))
    try:
        return talk.until(time.monotonic() + float(command["timeout_s"]))
    finally:
        with _lock:
            _running.discard(process)


def end_commands() -> None:
    """KILL to the sessions of all commands under way: nobody waits for their answers any more."""
    with _lock:
        for process in _running:
            if process.returncode is None:
                _kill_session(process)


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    """Of a child of ours that is not reaped: the group's number is its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class _Talk:
    """Feeds and drains one command. A grandchild that keeps the pipes open does not keep us waiting."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, max_bytes: int) -> None:
        self._process = process
        self._stdin = stdin
        self._max_bytes = max_bytes
        pipes = [p for p in (process.stdout, process.stderr) if p is not None]
        self._taken = {pipe.fileno(): bytearray() for pipe in pipes}
        self._open = set(self._taken)
        self._pipes = pipes
        self._pidfd = kernel.open_pidfd(process.pid)

    def until(self, deadline: float) -> Dict[str, Any]:
        timed_out = False
        drain_until = deadline
        try:
            while True:
                ended = self._process.poll() is not None
                if ended:
                    drain_until = min(drain_until, time.monotonic() + _AFTER_EXIT_S)
                if (ended and not self._open) or time.monotonic() >= drain_until:
                    break
                self._move(min(0.05, max(drain_until - time.monotonic(), 0)))
            timed_out = self._process.poll() is None
            if timed_out:
                self._kill()
        finally:
            self._close()
        out, err = (bytes(self._taken[pipe]).decode("utf-8", "replace") for pipe in self._taken)
        rc = None if timed_out else self._process.returncode
        return {"rc": rc, "stdout": out, "stderr": err, "timed_out": timed_out}

    def _move(self, timeout_s: float) -> None:
        stdin = self._process.stdin
        writing = [stdin.fileno()] if stdin is not None and not stdin.closed else []
        if not self._open and not writing:
            self._await_end(timeout_s)
            return
        poller = select.poll()
        for fd in self._open:
            poller.register(fd, select.POLLIN)
        for fd in writing:
            poller.register(fd, select.POLLOUT)
        ready = {fd for fd, _ in poller.poll(timeout_s * 1000)}
        for fd in ready & self._open:
            self._read(fd)
        if stdin is not None and ready.intersection(writing):
            try:
                self._stdin = self._stdin[os.write(stdin.fileno(), self._stdin[:65536]) :] if self._stdin else b""
            except BrokenPipeError:
                self._stdin = b""
            if not self._stdin:
                stdin.close()

    def _await_end(self, timeout_s: float) -> None:
        """Both pipes are closed: most often it ends in the same moment, which a fixed pause would sleep through."""
        if self._pidfd is None:
            time.sleep(timeout_s)
            return
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        poller.poll(timeout_s * 1000)

    def _read(self, fd: int) -> None:
        data = os.read(fd, 65536)
        if not data:
            self._open.discard(fd)
        taken = self._taken[fd]
        taken += data[: self._max_bytes - len(taken)]

    def _kill(self) -> None:
        """The whole session of the command. One that is stuck in the kernel is left behind, unreaped."""
        _kill_session(self._process)
        try:
            self._process.wait(_AFTER_KILL_S)
        except subprocess.TimeoutExpired:
            return

    def _close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
        for pipe in (self._process.stdin, *self._pipes):
            if pipe is not None and not pipe.closed:
                pipe.close()


def read_paths(paths: Iterable[str], max_bytes: int) -> Dict[str, Any]:
    """The reply to `read`. Nothing is followed; content travels when all of it fits into `max_bytes`."""
    return {path: _read_one(path, max_bytes) for path in paths}


def _read_one(path: str, max_bytes: int) -> Dict[str, Any]:
    try:
        seen = os.lstat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return {"kind": "absent"}
        raise
    facts: Dict[str, Any] = {
        "kind": _kind(seen.st_mode),
        "size": seen.st_size,
        "mode": stat_bits.S_IMODE(seen.st_mode),
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "mtime_ns": seen.st_mtime_ns,
    }
    if facts["kind"] == "link":
        facts["target"] = os.readlink(path)
    elif facts["kind"] == "file" and seen.st_size <= MAX_HASHED:
        facts.update(_content(path, max_bytes))
    return facts


def _kind(mode: int) -> str:
    if stat_bits.S_ISREG(mode):
        return "file"
    if stat_bits.S_ISDIR(mode):
        return "dir"
    return "link" if stat_bits.S_ISLNK(mode) else "other"


def _content(path: str, max_bytes: int) -> Dict[str, Any]:
    """sha256 of all of it. Files of /proc say size 0 and hold text: read to the end, not to the size."""
    digest = hashlib.sha256()
    kept = bytearray()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except PermissionError as error:
        return {"error": str(error)}
    with open(fd, "rb", buffering=0) as file:
        while True:
            block = file.read(1 << 20)
            if not block:
                break
            digest.update(block)
            if len(kept) <= max_bytes:
                kept += block
    facts: Dict[str, Any] = {"sha256": digest.hexdigest()}
    if len(kept) <= max_bytes:
        facts["content_b64"] = base64.b64encode(kept).decode("ascii")
    return facts


def match_patterns(patterns: Iterable[str]) -> Dict[str, List[str]]:
    """The reply to `glob`: sorted, `**` for any depth."""
    return {pattern: sorted(glob.glob(pattern, recursive=True)) for pattern in patterns}
