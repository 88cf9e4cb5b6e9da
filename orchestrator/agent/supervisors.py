"""Who would start a server again: its ancestors up to a login, a terminal, a service manager or process 1.

The decision is pure: processes as seen go in, a chain comes out, or the reason why it cannot be told.
"""

from __future__ import annotations

import os
import re
from typing import List, Mapping, NamedTuple, Optional, Sequence, Set, Union

_LOGINS = frozenset({"sshd", "sshd-session", "sshd-auth", "login", "su", "sudo", "doas", "runuser", "mosh-server"})
_TERMINALS = re.compile(r"^(tmux|screen|SCREEN|zellij|dtach|abduco)")
_SCHEDULERS = frozenset({"cron", "crond", "atd", "slurmstepd"})
_MANAGERS = frozenset({"systemd", "init"})
_RESTARTERS = frozenset(
    {"supervisord", "runsv", "s6-supervise", "monit", "PM2", "pm2", "circusd", "supervise", "daemontools", "god"}
)
_RUNTIMES = re.compile(r"^(containerd-shim|conmon|dockerd|podman|lxc-start|runc|crun)")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "ash", "tcsh", "csh", "busybox"})
_ROOFS = frozenset({"ssh.service", "sshd.service", "cron.service", "crond.service", "atd.service", "docker.service"})
"""Services under which whatever somebody started with them goes on running."""
_UNIT = re.compile(r"/([^/]+\.service)$")
_USER_MANAGER = re.compile(r"/user@\d+\.service/")
_BORN = re.compile(r"multiprocessing\.(spawn|forkserver|resource_tracker)")
_TITLE = re.compile(r"^(sglang|vllm|VLLM|ray)::")


class Kin(NamedTuple):
    """One process as far as the chain needs it. `cgroup`: the text of /proc/PID/cgroup."""

    pid: int
    ppid: int
    uid: int
    comm: str
    cmdline: Sequence[str]
    cgroup: str = ""


class Chain(NamedTuple):
    """`above`: who is stopped before the server, the outermost first; `main`: the server's own main process."""

    above: List[int]
    main: int


class Unclear(NamedTuple):
    """Why nothing may be stopped here as a mere process, and what would."""

    why: str
    hint: str


def trace(listeners: Set[int], kin: Mapping[int, Kin], own: Set[int]) -> Union[Chain, Unclear]:
    """From the processes that listen on the port up to the outermost that belongs to the service.

    `own`: ancestors of ours, where every chain ends. Pure.
    """
    main = _main_of(listeners, kin)
    above: List[int] = []
    at = kin[main]
    while True:
        if at.pid == 1:
            what = "it is process 1 of this container"
            return Unclear(what, "end the route at the container's host, and write `service: {docker: NAME}`")
        parent = kin.get(at.ppid)
        if parent is None or at.ppid in own:
            break
        refusal = _refusal(at, parent)
        if refusal is not None:
            return refusal
        if is_boundary(parent):
            break
        above.insert(0, parent.pid)
        at = parent
    return Chain(above, main)


def _main_of(listeners: Set[int], kin: Mapping[int, Kin]) -> int:
    """The outermost listener, or above it the process that spawned it as a worker of its own."""
    tops = [pid for pid in sorted(listeners) if not (_above(pid, kin) & listeners)]
    main = tops[0]
    while _is_worker(kin[main]) and kin[main].ppid in kin and kin[main].ppid != 1:
        main = kin[main].ppid
    return main


def _above(pid: int, kin: Mapping[int, Kin]) -> Set[int]:
    seen: Set[int] = set()
    at = kin[pid].ppid if pid in kin else 0
    while at in kin and at not in seen:
        seen.add(at)
        at = kin[at].ppid
    return seen


def _is_worker(one: Kin) -> bool:
    words = list(one.cmdline)
    return bool(words) and (bool(_TITLE.match(words[0])) or any(_BORN.search(word) for word in words[1:4]))


def is_boundary(one: Kin) -> bool:
    """Whether it is no part of a service: a login, a terminal, a scheduler, a service manager, a shell for a person."""
    first = one.comm
    if one.pid == 1 or first in _LOGINS or first in _SCHEDULERS or first in _MANAGERS:
        return True
    return bool(_TERMINALS.match(first) or _RUNTIMES.match(first)) or is_interactive(one.cmdline)


def is_interactive(cmdline: Sequence[str]) -> bool:
    """A shell that was given neither a script nor a command: somebody types into it."""
    if not cmdline:
        return False
    name = os.path.basename(cmdline[0]).lstrip("-")
    if name not in _SHELLS:
        return False
    if cmdline[0].startswith("-") and len(cmdline) == 1:
        return True
    return all(word.startswith("-") and not _takes_command(word) for word in cmdline[1:])


def _runs_script(cmdline: Sequence[str]) -> bool:
    """A shell with something to run; one that only keeps a container alive is none."""
    is_shell = bool(cmdline) and os.path.basename(cmdline[0]).lstrip("-") in _SHELLS
    is_idle = any("sleep" in word or "tail -f" in word for word in cmdline[1:])
    return is_shell and not is_idle and not is_interactive(cmdline)


def _takes_command(word: str) -> bool:
    return not word.startswith("--") and "c" in word


def _refusal(at: Kin, parent: Kin) -> Optional[Unclear]:
    if parent.pid == 1 and _runs_script(parent.cmdline):
        what = "process 1 of this container is the script that runs it"
        return Unclear(what, "end the route at the container's host, and write `service: {docker: NAME}`")
    if parent.comm in _RESTARTERS:
        what = f"{parent.comm} (pid {parent.pid}) would start it again"
        return Unclear(what, "stop it there before the run, and start it there afterwards")
    if parent.comm == "systemd" and (unit := unit_of(at.cgroup)) is not None:
        user = ", user: true" if _USER_MANAGER.search(at.cgroup) else ""
        return Unclear(f"systemd runs it as {unit}", f"service: {{systemd: {unit}{user}}}")
    if parent.uid != at.uid and not is_boundary(parent):
        what = f"pid {parent.pid} above it belongs to another user, and may start it again"
        return Unclear(what, "reach the host as that user, or put `sudo: true` into the route")
    return None


def unit_of(cgroup: str) -> Optional[str]:
    """The systemd service that a control group belongs to; None for sessions, scopes and what has none."""
    for line in cgroup.splitlines():
        found = _UNIT.search(line.rstrip())
        if found and found[1] not in _ROOFS and not found[1].startswith("user@"):
            return found[1]
    return None
