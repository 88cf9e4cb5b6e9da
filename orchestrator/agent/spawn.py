"""Starting the server: fork, a session of its own, its log as output, exec; and the reason when that fails."""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, NoReturn

from orchestrator.agent import kernel
from orchestrator.agent.errors import AgentError


class Command(NamedTuple):
    """`env` is the whole environment. `log` is appended to. `what` names it where it cannot be started."""

    argv: List[str]
    env: Dict[str, str]
    cwd: str
    log: str
    what: str = "the server"


def spawn(command: Command) -> int:
    """Pid of the new process, once it has executed the program. Raises `refused` with facts `call` and `errno`.

    For a process with one thread: between fork and exec runs Python.
    """
    report, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(command, told)
    os.close(told)
    try:
        with open(report, "rb") as pipe:
            problem = pipe.read()
    except BaseException:
        os.kill(pid, 9)  # our own child, not yet reaped
        raise
    if not problem:
        return pid
    os.waitpid(pid, 0)
    call, number = problem.decode().split()
    code = int(number)
    culprit = {"chdir": command.cwd, "open": command.log}.get(call, command.argv[0])
    facts = {"call": call, "errno": str(code), "path": culprit}
    raise AgentError("refused", f"{command.what} could not be started: {call} {culprit}: {os.strerror(code)}", facts)


def _become(command: Command, told: int) -> NoReturn:
    """The child's part: never returns, and tells through `told` which call failed."""
    call = "setsid"
    try:
        os.setsid()
        call = "open"
        log = os.open(command.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(fd, target)
        call = "chdir"
        os.chdir(command.cwd)
        kernel.reset_signals()
        kernel.close_all_but({0, 1, 2, told})
        call = "exec"
        os.execvpe(command.argv[0], command.argv, command.env)  # noqa: S606 - a shell is what we avoid
    except OSError as error:
        os.write(told, f"{call} {error.errno}".encode())
    finally:
        os._exit(127)
