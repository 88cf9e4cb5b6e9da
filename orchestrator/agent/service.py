"""What served before: stopped through its own supervisor, and given back. The journal has each step before it is taken.

The steps, and what is on the disk when it stops between two of them, are in docs/recovery.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from orchestrator.agent import ending, processes
from orchestrator.agent import found as founds
from orchestrator.agent.detach import Starter, start_detached
from orchestrator.agent.errors import AgentError
from orchestrator.agent.processes import Grip, Identity
from orchestrator.agent.tree import Tree

SUPERVISOR_S = 1.0
"""How long a supervising process may take to end by itself: one that waits for its server's end never does."""
SETTLE_S = 0.5
COMMAND_S = 60.0
_KILL_S = 45.0
_POLL_S = 0.05

Start = Callable[[], int]
"""Starts the outermost process as `service.json` says, in a process that may do so; its pid."""


class Ways:
    """How one service is ended and started. `start`: words instead of those found. `commands`, for what has a manager
    of its own: those that stop it, those that start it, and one that prints what is expected of it when it runs."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        commands = request.get("commands") or {}
        self.kind = str(request["kind"])
        self.start = [str(word) for word in request.get("start") or ()]
        self.stop_commands = [[str(word) for word in words] for words in commands.get("stop", ())]
        self.start_commands = [[str(word) for word in words] for words in commands.get("start", ())]
        self.commands = commands


# -- stopping --------------------------------------------------------------------------------------------------------


def stop(tree: Tree, boot: str, request: Mapping[str, Any], start: Start) -> Dict[str, Any]:
    """The reply to `service_stop`. Nobody on the port: nothing is done, and nothing will be started. Raises `refused`
    when it cannot be stopped; what had been ended is started again then."""
    held = tree.open_service()
    if held is not None:
        if held["stage"] == "intent":
            _finish(tree, boot, held)
        return {"state": "stopped", "already": True, "pid": None}
    port, ways = int(request["port"]), Ways(request)
    description = _describe(port, ways, tree.state_dir, boot)
    if description is None:
        return {"state": "absent", "already": False, "pid": None}
    founds.save(tree.state_dir, description)
    tree.note("SERVICE_INTENT", _record(ways, description, float(request["grace_s"])))
    try:
        held = tree.open_service()
        assert held is not None
        ended = _finish(tree, boot, held)
        _refuse_risen(port)
    except AgentError:
        give_back(tree, boot, start)
        raise
    return {"state": "stopped", "already": False, "pid": description["main"].pid, "ended": ended}


def _describe(port: int, ways: Ways, state_dir: str, boot: str) -> Optional[Dict[str, Any]]:
    """None when nobody is there to be stopped."""
    if not ways.commands:
        serving = founds.look(port)
        return founds.describe(port, serving, state_dir, ways.start, boot) if serving is not None else None
    try:
        serving = founds.look(port)
    except AgentError:  # another user's, or in a container: its manager knows it all the same
        serving = None
    return founds.describe_managed(port, serving, ways.commands, boot)


def _record(ways: Ways, description: Mapping[str, Any], grace_s: float) -> Dict[str, Any]:
    """What the journal says: identities and digests, no command line and no environment."""
    server = description["server"]
    return {
        "kind": ways.kind,
        "port": description["port"],
        "boot_id": description["boot_id"],
        "grace_s": grace_s,
        "main": description["main"],
        "above": description["above"],
        "family": description["family"],
        "cmdline_sha256": founds.digest_of(server["cmdline"]) if server is not None else None,
        "env_sha256": server["env_sha256"] if server is not None else None,
        "stop": ways.stop_commands,
        "start": ways.start_commands,
    }


def _finish(tree: Tree, boot: str, held: Mapping[str, Any]) -> List[int]:
    """Everything of it is ended, however far an earlier attempt came; noted when it is."""
    ended: List[int] = []
    for words in held["stop"]:
        _run(words)
    if held["boot_id"] == boot and not held["stop"]:
        ended = _end(held)
    tree.note("SERVICE_STOPPED", {"port": held["port"], "ended": ended, "boot_id": boot})
    return ended


def _end(held: Mapping[str, Any]) -> List[int]:
    """Supervisors first, from the outermost: none of them is left to start anything again. Then the server."""
    main = Identity(*held["main"])
    family = {Identity(*one) for one in held["family"]}
    table = processes.read_table()
    alive = [one.pid for one in family if one.pid in table and table[one.pid].start_ticks == one.start_ticks]
    family |= {Identity(p, table[p].start_ticks, main.boot_id) for p in processes.descendants(table, alive)}
    for one in held["above"]:
        _end_supervisor(Identity(*one))
    since = min(one.start_ticks for one in family)
    launched = ending.Launched("", main.pid, main.start_ticks, main.boot_id, since, "")
    ours = ending.Ours(launched, None, family, {os.getpid()})
    ended = ending.end_launch(ours, grace_s=float(held["grace_s"]), kill_s=_KILL_S)
    if ended.left:
        facts = {f"pid {stat.pid}": ending.why_alive(stat) for stat in ended.left}
        raise AgentError("refused", "what served does not end", facts)
    return sorted(one.pid for one in family)


def _end_supervisor(one: Identity) -> None:
    grip = Grip.take(one, one.boot_id)
    if grip is None:
        return
    try:
        for number, wait_s in ((signal.SIGTERM, SUPERVISOR_S), (signal.SIGKILL, _KILL_S)):
            with contextlib.suppress(ProcessLookupError):
                grip.send(number)
            deadline = time.monotonic() + wait_s
            while not grip.has_ended() and time.monotonic() < deadline:
                ending.wait_for_end([grip], _POLL_S)
            if grip.has_ended():
                return
        raise AgentError("refused", "the supervisor of what serves does not end", {"pid": str(one.pid)})
    except PermissionError as error:
        facts = {"pid": str(one.pid)}
        raise AgentError("refused", "the supervisor of what serves may not be signalled", facts) from error
    finally:
        grip.close()


def _refuse_risen(port: int) -> None:
    """Whoever starts it again was not seen above it: such a one is not fought."""
    pause, deadline = threading.Event(), time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        risen = founds.look(port)
        if risen is not None:
            pids = ", ".join(str(pid) for pid in sorted(risen.listeners))
            what = f"something started it again at once on port {port}"
            hint = "name what supervises it with `service:` in the target, or stop it by hand"
            raise AgentError("refused", what, {"pids": pids}, hint)
        pause.wait(_POLL_S)


def _run(words: Sequence[str]) -> str:
    """One command of a service manager, to its end; what it printed. Raises `failed` with what it said."""
    try:
        done = subprocess.run(
            list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=COMMAND_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AgentError("failed", f"{' '.join(words)}: {error}", {"command": " ".join(words)}) from error
    if done.returncode != 0:
        said = done.stdout.decode("utf-8", "replace").strip()[-500:]
        facts = {"command": " ".join(words), "exit_code": str(done.returncode), "said": said}
        raise AgentError("failed", f"{' '.join(words)} ended with {done.returncode}: {said}", facts)
    return done.stdout.decode("utf-8", "replace").strip()


# -- giving back -----------------------------------------------------------------------------------------------------


def give_back(tree: Tree, boot: str, start: Start) -> List[str]:
    """Starts what was stopped, unless it is there already; sentences about what was done. Idempotent. Raises `dirty`
    while a launch or a change in the tree that it runs from is open."""
    held = tree.open_service()
    if held is None:
        return []
    if tree.open_launch() is not None or (tree.open_transaction() is not None and tree.open_shadow() is None):
        what = "a change or a launch is open, so what served before stays stopped"
        raise AgentError("dirty", what, {"port": str(held["port"])}, "recover")
    description = founds.load(tree.state_dir)
    if description is None:
        facts = {"path": os.path.join(tree.state_dir, founds.FILE)}
        raise AgentError("dirty", "the description of what served is gone", facts, "start it by hand, then forget")
    did = []
    if held["stage"] == "intent":
        try:
            _finish(tree, boot, held)
        except AgentError as error:
            if not held["start"]:
                raise
            did.append(f"it could not be stopped: {error.what}")  # its manager knows what to do about a start then
        did.append(f"finished the stop of what served on port {held['port']}")
    tree.note("SERVICE_START_INTENT", {"boot_id": boot, "at_s": processes.boottime_s()})
    if held["start"]:
        for words in held["start"]:
            _run(words)
        started = None
    else:
        started = start()
    tree.note("SERVICE_STARTED", {"port": held["port"], "pid": started, "boot_id": boot})
    return [*did, f"gave back what served on port {held['port']}"]


def start_found(state_dir: str) -> int:
    """In a process with one thread: the outermost process of what was found is started, or found running. Its pid."""
    with Starter(state_dir) as lock_fd:
        description = founds.load(state_dir)
        if description is None:
            raise AgentError("dirty", "the description of what served is gone", {"path": state_dir})
        there = founds.find_top(description)
        return there if there is not None else start_detached(description["top"], lock_fd)


# -- looking ---------------------------------------------------------------------------------------------------------


def report(tree: Tree, guard: Optional[Identity]) -> Optional[Dict[str, Any]]:
    """For `verify`: None where no service was ever stopped; else {state, why, pid, port}, where `state` is `stopped`
    (by us, and not given back yet), `same`, `differs` or `absent`."""
    description = founds.load(tree.state_dir)
    if description is None:
        return None
    port = int(description["port"])
    if tree.open_service() is not None:
        return {"state": "stopped", "why": "it is stopped by us, and not given back yet", "pid": None, "port": port}
    back = _compare(description, guard)
    return {"state": back.state, "why": back.why, "pid": back.pid, "port": port}


def _compare(description: Mapping[str, Any], guard: Optional[Identity]) -> founds.Back:
    if description.get("check"):
        try:
            said = _run(description["check"])
        except AgentError as error:
            return founds.Back("absent", error.what)
        if said != description["expect"]:
            return founds.Back("absent", f"its manager says {said}, and not {description['expect']}")
    return founds.compare(description, guard)


def await_back(
    state_dir: str,
    guard: Callable[[], Optional[Identity]],
    limit_s: float,
    is_well: Callable[[int], bool],
    clock: Callable[[], float] = time.monotonic,
) -> Dict[str, Any]:
    """Until it answers as it did before, or `limit_s` is over: {state, why, pid, seconds}. `is_well` asks the port."""
    description = founds.load(state_dir)
    if description is None:
        return {"state": "absent", "why": "no service was stopped", "pid": None, "seconds": 0.0}
    began, pause = clock(), threading.Event()
    while True:
        back = _compare(description, guard())
        is_there = back.state == "same" and is_well(int(description["port"]))
        if is_there or clock() - began > limit_s:
            break
        pause.wait(0.1)
    state, why = back.state, back.why
    if state == "same" and not is_there:
        state, why = "silent", "it listens, and does not say that it is well"
    return {"state": state, "why": why, "pid": back.pid, "seconds": round(clock() - began, 3)}


def summary(held: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    """For `open` and `survey`: what is stopped, without a word of its environment."""
    if held is None:
        return None
    return {name: json.loads(json.dumps(held[name])) for name in ("kind", "port", "stage")}
