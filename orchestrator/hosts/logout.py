"""Whether the guard outlives our logout: pure decisions over what the host's logind says.

With `KillUserProcesses=yes` logind ends all of a login's scope when the login ends, a detached guard with it. It is
then moved, before it holds anything, into a scope that the login does not own: of the system manager for root, of the
user's manager where the user lingers. Where neither is possible nothing of ours would survive a lost connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_TIMEOUT_S = 10.0
_MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
PID = "{pid}"
"""Stands for the guard's pid in the command."""


class Way(StrEnum):
    STAYS = "stays"  # nothing ends it
    SYSTEM_SCOPE = "system scope"
    USER_SCOPE = "user scope"
    NONE = "none"


@dataclass(frozen=True)
class Escape:
    """How the guard outlives the login. `argv` moves it there; empty where it stays, or cannot."""

    way: Way
    why: str
    argv: tuple[str, ...] = ()


def logout_commands(user: str) -> list[dict[str, Any]]:
    """Requests for the agent's `run`. They look, and change nothing."""
    commands = {
        "logind": ["loginctl", "show-user"],
        "linger": ["loginctl", "show-user", user, "-p", "Linger"],
        "cgroup": ["cat", "/proc/self/cgroup"],
    }
    return [{"name": name, "argv": argv, "timeout_s": _TIMEOUT_S} for name, argv in commands.items()]


def plan_escape(outputs: Mapping[str, Mapping[str, Any]], user: str, uid: int) -> Escape:
    """What to do about the guard, by the replies to `logout_commands`."""
    manager = outputs["logind"]
    if manager.get("error") or manager["rc"] != 0:
        return Escape(Way.STAYS, "no systemd-logind that could end processes at logout")
    kills = _value("KillUserProcesses", manager["stdout"]) == "yes"
    spared = _value("KillExcludeUsers", manager["stdout"]).split()
    if not kills or user in spared or (uid == 0 and not spared):
        return Escape(Way.STAYS, "processes stay when we log out")
    cgroup = outputs.get("cgroup", {})
    if cgroup.get("rc") == 0 and not re.search(r"/session-[^/]+\.scope", cgroup["stdout"]):
        return Escape(Way.STAYS, "we are in no login's scope: processes stay when we log out")
    if uid == 0:
        why = "logind ends root's processes at logout: the guard moves into a scope of the system"
        return Escape(Way.SYSTEM_SCOPE, why, _move("--system"))
    if _value("Linger", outputs["linger"]["stdout"]) == "yes":
        why = "logind ends this user's logins, and the user lingers: the guard moves into a scope of the user's manager"
        return Escape(Way.USER_SCOPE, why, _move("--user"))
    why = "systemd-logind ends this user's processes at logout (KillUserProcesses=yes), guard and server too"
    return Escape(Way.NONE, why)


def hint_for(user: str) -> str:
    return f"run `loginctl enable-linger {user}` there"


def _move(manager: str) -> tuple[str, ...]:
    """What `systemd-run --scope` does with itself, done to a process that runs already."""
    properties = ("1", "PIDs", "au", "1", PID, "0")
    return ("busctl", manager, "call", *_MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))",
            f"orchestrator-guard-{PID}.scope", "fail", *properties)  # fmt: skip


def _value(name: str, text: str) -> str:
    found = re.search(rf"(?m)^{name}=(.*)$", text)
    return found[1].strip() if found else ""
