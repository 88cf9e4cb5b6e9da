"""Starting a process that is nobody's of ours: no ancestor, no session, no descriptor, as the user it had.

Whoever starts holds a lock until the program is executed, so that one who comes after a kill knows what came of it.
"""

from __future__ import annotations

import fcntl
import os
import resource
import time
from typing import Any, Dict, List, Mapping, NoReturn

from orchestrator.agent import kernel
from orchestrator.agent.errors import AgentError

LOCK = "service.lock"
_PATIENCE_S = 10.0
_POLL_S = 0.01
_LIMITS = {
    "Max open files": resource.RLIMIT_NOFILE,
    "Max locked memory": resource.RLIMIT_MEMLOCK,
    "Max processes": resource.RLIMIT_NPROC,
    "Max stack size": resource.RLIMIT_STACK,
    "Max core file size": resource.RLIMIT_CORE,
}


class Starter:
    """The right to start the service of one tree; waited for, since a child of a killed starter may still hold it."""

    def __init__(self, state_dir: str) -> None:
        self._path = os.path.join(state_dir, LOCK)

    def __enter__(self) -> int:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(self._fd)
                    raise AgentError("failed", "another start of the service hangs", {"path": self._path}) from None
                time.sleep(_POLL_S)
            else:
                return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)  # a child that has not executed yet keeps it


def start_detached(what: Mapping[str, Any], lock_fd: int) -> int:
    """Pid of the new process once it has executed its program. For a process with one thread that may be a subreaper.

    `what`: `argv`, `program` (or None), `env`, `cwd`, `uid`, `gid`, `groups`, `umask`, `limits`, `nice`, `outputs` (two
    paths, appended to). Raises `failed` with facts `call` and `errno`.
    """
    report, told = os.pipe()
    kernel.set_subreaper(False)  # for a moment: the orphan goes to process 1, or to whose it would be without us
    try:
        between = os.fork()
        if between == 0:
            _leave_behind(what, told, lock_fd)
        os.close(told)
        with open(report, "rb") as pipe:
            said = pipe.read().decode().split("\n")
        os.waitpid(between, 0)
    finally:
        kernel.set_subreaper(True)
    problem = said[1] if len(said) > 1 else "fork 11"
    if problem:
        call, _, number = problem.partition(" ")
        facts = {"call": call, "errno": number, "path": str(what["argv"][0])}
        raise AgentError("failed", f"the service could not be started: {call}: {os.strerror(int(number))}", facts)
    return int(said[0])


def _leave_behind(what: Mapping[str, Any], told: int, lock_fd: int) -> NoReturn:
    try:
        if os.fork() == 0:
            _become(what, told, lock_fd)
    finally:
        os._exit(0)


def _become(what: Mapping[str, Any], told: int, lock_fd: int) -> NoReturn:
    """Never returns; tells its pid, and which call failed."""
    call = "setsid"
    os.write(told, f"{os.getpid()}\n".encode())
    try:
        os.setsid()
        call = "open"
        _open_outputs(list(what["outputs"]))
        kernel.reset_signals()
        kernel.close_all_but({0, 1, 2, told, lock_fd})
        call = "setrlimit"
        _set_limits(what["limits"])
        call = "setuid"
        _become_user(what)
        call = "chdir"
        os.umask(int(what["umask"]))
        os.chdir(what["cwd"])
        call = "exec"
        argv: List[str] = list(what["argv"])
        env: Dict[str, str] = dict(what["env"])
        if what.get("program"):
            os.execve(what["program"], argv, env)  # noqa: S606 - a shell is what we avoid
        os.execvpe(argv[0], argv, env)  # noqa: S606
    except OSError as error:
        os.write(told, f"{call} {error.errno}".encode())
    finally:
        os._exit(127)


def _open_outputs(paths: List[str]) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for target, path in enumerate(paths, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), target)


def _set_limits(limits: Mapping[str, Mapping[str, str]]) -> None:
    """As found, as far as we may: a hard limit above ours needs root, and then ours is the most there is."""
    for name, which in _LIMITS.items():
        if name not in limits:
            continue
        most = resource.getrlimit(which)[1]
        hard = _capped(limits[name]["hard"], most) if os.geteuid() else _capped(limits[name]["hard"], -1)
        resource.setrlimit(which, (_capped(limits[name]["soft"], hard), hard))


def _capped(text: str, most: int) -> int:
    value = resource.RLIM_INFINITY if text == "unlimited" else int(text)
    if most == resource.RLIM_INFINITY:
        return value
    return most if value == resource.RLIM_INFINITY else min(value, most)


def _become_user(what: Mapping[str, Any]) -> None:
    if os.geteuid() == 0 and int(what["uid"]) != 0:
        os.setgroups([int(group) for group in what["groups"]])
        os.setgid(int(what["gid"]))
        os.setuid(int(what["uid"]))
