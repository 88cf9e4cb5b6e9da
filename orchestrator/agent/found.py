"""What served before, as it was found: enough to start it again just so, and to tell that it is back.

Kept in the state directory, readable for its owner only; its environment never leaves the host.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat as stat_bits
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Union

from orchestrator.agent import holders, processes, programs, supervisors
from orchestrator.agent.errors import AgentError
from orchestrator.agent.processes import Identity, Table
from orchestrator.agent.supervisors import Chain, Kin, Unclear

FILE = "service.json"
LOG = "service.log"


def digest_of(value: Union[Mapping[str, str], Sequence[str]]) -> str:
    """Of an environment (in any order) or of the words of a command line."""
    items = sorted(value.items()) if isinstance(value, Mapping) else list(value)
    return hashlib.sha256(repr(items).encode("utf-8", "surrogateescape")).hexdigest()


class Serving(NamedTuple):
    """Who answers on a port now: pids that listen, and the chain above, or why there is none to be told."""

    listeners: Set[int]
    chain: Union[Chain, Unclear]


def look(port: int) -> Optional[Serving]:
    """None when nobody listens. Raises `refused` for a listener whose process cannot be seen."""
    listeners = [one for one in holders.read_listeners() if one.port == port]
    if not listeners:
        return None
    table = processes.read_table()
    pids = _pids(listeners) & set(table)
    if not pids:
        what = f"whoever listens on port {port} cannot be seen from here"
        hint = "reach the host as its user, as root, or outside of the container"
        raise AgentError("refused", what, {"port": str(port)}, hint)
    own = processes.ancestors(table, os.getpid())
    return Serving(pids, supervisors.trace(pids, _kin(table, pids), own))


def _pids(listeners: Sequence[holders.Listener]) -> Set[int]:
    found = holders.scan(holders.NOTHING, {one.inode for one in listeners}).inodes
    return {pid for pids in found.values() for pid in pids}


def _kin(table: Table, pids: Set[int]) -> Dict[int, Kin]:
    wanted = {one for pid in pids for one in processes.ancestors(table, pid)}
    seen: Dict[int, Kin] = {}
    for pid in wanted:
        uid = processes.owner_of(pid)
        if uid is not None:
            stat = table[pid]
            seen[pid] = Kin(pid, stat.ppid, uid, stat.comm, processes.read_cmdline(pid), cgroup_of(pid))
    return seen


def cgroup_of(pid: int) -> str:
    """The text of /proc/PID/cgroup; empty when it may not be read or the process is gone."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        if processes.is_gone(error) or error.errno in (errno.EACCES, errno.EPERM):
            return ""
        raise


# -- the description -------------------------------------------------------------------------------------------------


def describe(port: int, serving: Serving, state_dir: str, start: Sequence[str], boot: str) -> Dict[str, Any]:
    """All that has to be known to end it and to start it again. `start`: the words that start it, when the outermost
    process was started otherwise. Raises `refused` where it cannot be told or would not be ours to start."""
    chain = serving.chain
    if isinstance(chain, Unclear):
        raise AgentError("refused", f"what serves on port {port} is not ours to stop: {chain.why}", hint=chain.hint)
    table = processes.read_table()
    top = (chain.above or [chain.main])[0]
    family = {top, *processes.descendants(table, [top])}
    identities = {pid: Identity(pid, table[pid].start_ticks, boot) for pid in family if pid in table}
    if not {*chain.above, chain.main} <= set(identities):
        raise AgentError("refused", "what served has just ended", {"port": str(port)}, "try again")
    return {
        "port": port,
        "boot_id": boot,
        "main": identities[chain.main],
        "above": [identities[pid] for pid in chain.above],
        "family": sorted(identities.values()),
        "server": describe_server(chain.main),
        "server_env": _environ(chain.main),
        "top": _describe_top(top, start, state_dir),
    }


def describe_managed(port: int, serving: Optional[Serving], ways: Mapping[str, Any], boot: str) -> Dict[str, Any]:
    """As `describe`, for what has a manager that stops and starts it: who serves is noted as far as it can be seen."""
    pid = min(serving.listeners) if serving is not None else None
    if serving is not None and isinstance(serving.chain, Chain):
        pid = serving.chain.main
    environ = (processes.read_environ(pid) if pid is not None else None) or {}
    return {
        "port": port,
        "boot_id": boot,
        "main": Identity(0, 0, boot),
        "above": [],
        "family": [],
        "server": describe_server(pid) if pid is not None and environ else None,
        "server_env": environ,
        "top": None,
        "check": list(ways["check"]),
        "expect": str(ways["expect"]),
    }


def describe_server(pid: int) -> Dict[str, Any]:
    """By what one start of the server is held against another; pids, times and values of variables left out."""
    return {
        "cmdline": processes.read_cmdline(pid),
        "cwd": processes.read_link(pid, "cwd"),
        "uid": processes.owner_of(pid),
        "env_sha256": digest_of(_environ(pid)),
    }


def _environ(pid: int) -> Dict[str, str]:
    found = processes.read_environ(pid)
    if not found:
        facts = {"pid": str(pid)}
        hint = "reach the host as its user, or put `sudo: true` into the route"
        raise AgentError("refused", "the environment of what serves cannot be read", facts, hint)
    return found


def _describe_top(pid: int, start: Sequence[str], state_dir: str) -> Dict[str, Any]:
    uid, status = processes.owner_of(pid), _status(pid)
    if uid != os.geteuid() and os.geteuid() != 0:
        what = f"what serves belongs to {processes.user_name(uid or 0)}"
        raise AgentError("refused", what, {"pid": str(pid)}, "reach the host as that user, or put `sudo: true` there")
    cmdline, env = processes.read_cmdline(pid), _environ(pid)
    return {
        "cmdline": cmdline,
        "argv": list(start) or cmdline,
        "program": None if start else programs.program_of(pid),
        "env": env,
        "env_sha256": digest_of(env),
        "cwd": _first_cwd(processes.read_link(pid, "cwd") or "/", env.get("PWD", ""), list(start) or cmdline),
        "uid": uid,
        "gid": int(status.get("Gid", "0").split()[1]) if "Gid" in status else os.getegid(),
        "groups": [int(word) for word in status.get("Groups", "").split()],
        "umask": int(status.get("Umask", "0022"), 8),
        "limits": _limits(pid),
        "outputs": [_output(pid, number, state_dir) for number in (1, 2)],
    }


def _first_cwd(now: str, at_start: str, argv: Sequence[str]) -> str:
    """Where it was started: a script may have gone elsewhere since, and its own relative name tells."""
    relative = [word for word in argv if word and not word.startswith(("/", "-")) and ("/" in word or "." in word)]
    for word in relative[:2]:
        for folder in (now, at_start):
            if folder and os.path.isfile(os.path.join(folder, word)):
                return folder
    return now


def _status(pid: int) -> Dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        pairs = (line.partition(":") for line in file)
        return {name: value.strip() for name, _, value in pairs}


def _limits(pid: int) -> Dict[str, Dict[str, str]]:
    with open(f"/proc/{pid}/limits", encoding="ascii") as file:
        lines = file.read().splitlines()[1:]
    return {line[:25].strip(): {"soft": line[26:46].strip(), "hard": line[47:67].strip()} for line in lines}


def _output(pid: int, number: int, state_dir: str) -> str:
    """A file that it wrote to is written to again; a terminal or a pipe has nobody at its other end any more."""
    path = processes.read_link(pid, f"fd/{number}")
    if path is not None and path.startswith("/"):
        try:
            kind = os.stat(path).st_mode
        except OSError:  # deleted meanwhile, or not ours to look at
            kind = 0
        if path == os.devnull or (stat_bits.S_ISREG(kind) and os.access(path, os.W_OK)):
            return path
    return os.path.join(state_dir, LOG)


# -- on disk ---------------------------------------------------------------------------------------------------------


def save(state_dir: str, found: Mapping[str, Any]) -> None:
    """Durable on return."""
    path = os.path.join(state_dir, FILE)
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "w", encoding="ascii") as file:
        json.dump(found, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    folder = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(state_dir: str) -> Optional[Dict[str, Any]]:
    """None when no service was ever stopped for this tree."""
    try:
        with open(os.path.join(state_dir, FILE), encoding="ascii") as file:
            found: Dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    found["main"] = Identity(*found["main"])
    found["above"] = [Identity(*one) for one in found["above"]]
    found["family"] = [Identity(*one) for one in found["family"]]
    return found


# -- is it back? -----------------------------------------------------------------------------------------------------


class Back(NamedTuple):
    """`state`: `absent` (nobody listens), `same`, `differs`; `why` is a sentence."""

    state: str
    why: str
    pid: Optional[int] = None


def compare(found: Mapping[str, Any], guard: Optional[Identity]) -> Back:
    """Whether what listens now is what was found, under a supervisor like the one it had, and nobody of ours."""
    port = int(found["port"])
    if found["server"] is None:  # it could not be looked at, and cannot now
        if any(one.port == port for one in holders.read_listeners()):
            return Back("same", "it runs, and somebody answers who cannot be looked at from here")
        return Back("absent", f"nobody listens on port {port}")
    serving = look(port)
    if serving is None:
        return Back("absent", f"nobody listens on port {port}")
    if isinstance(serving.chain, Unclear):
        pid = min(serving.listeners)
        above: List[int] = []
    else:
        pid, above = serving.chain.main, serving.chain.above
    if pid in processes.below_guard(processes.read_table(), guard):
        return Back("differs", "a server of ours listens", pid)
    now, was = describe_server(pid), found["server"]
    wrong = [name for name in ("cmdline", "env_sha256", "cwd", "uid") if now[name] != was[name]]
    if wrong:
        said = {"cmdline": "command line", "env_sha256": "environment", "cwd": "directory", "uid": "user"}
        return Back("differs", f"another {' and '.join(said[name] for name in wrong)} than before", pid)
    if found["above"] and not any(_is_like(one, found["top"]) for one in above):
        return Back("differs", "it does not run under the supervisor that it had", pid)
    return Back("same", "it answers as it did before", pid)


def find_top(found: Mapping[str, Any]) -> Optional[int]:
    """A living process that is the outermost one, started again by whomever."""
    return next((pid for pid in sorted(processes.read_table()) if _is_like(pid, found["top"])), None)


def _is_like(pid: int, top: Mapping[str, Any]) -> bool:
    """Same words, user and environment. A script's words follow those of its interpreter."""
    words = processes.read_cmdline(pid)
    argv = list(top["argv"])
    if not words or (words != top["cmdline"] and words[-len(argv) :] != argv):
        return False
    stat = processes.read_stat(pid)
    if stat is None or stat.is_defunct or processes.owner_of(pid) != top["uid"]:
        return False
    environ = processes.read_environ(pid)
    return environ is not None and digest_of(environ) == top["env_sha256"]
