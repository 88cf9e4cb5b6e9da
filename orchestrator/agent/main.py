"""The agent's entry: reads requests from one descriptor and answers on another, until the first ends."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import sys
import time
from typing import Any, Callable, Dict, Mapping, Optional

from orchestrator.agent import ending, holders, neighbours, probes, processes, servicing, state, survey, web
from orchestrator.agent.cache import Cache
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.manifest import manifest
from orchestrator.agent.nursery import Nursery
from orchestrator.agent.processes import Identity
from orchestrator.agent.rpc import Dispatcher, FrameError, Handle, Route, Wire
from orchestrator.agent.session import Session, shadow_of
from orchestrator.agent.tree import Tree

PROTOCOL = 1

_BASICS = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ",
    "LD_LIBRARY_PATH", "CUDA_HOME", "XDG_CACHE_HOME",
)  # fmt: skip
"""What is told of the account's environment: what a server needs. Anything else may be a secret and stays here."""


def run_agent(stdin_fd: int, stdout_fd: int) -> int:
    """Serve until EOF; the exit code. Descriptors 0 and 1 are pointed elsewhere, so that no print ends up in a frame
    and no child holds the channel open."""
    nursery = Nursery()
    wire = Wire(os.dup(stdin_fd), os.dup(stdout_fd))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    agent = Agent(nursery)
    dispatcher = Dispatcher(wire, agent.routes())
    agent.emit = dispatcher.emit
    code = 0
    try:
        dispatcher.serve()
    except (FrameError, OSError) as error:
        print(f"the agent ends: {error}", file=sys.stderr)
        code = 1
    sys.stderr.flush()
    probes.end_commands()
    # Threads may wait for a server's answer for minutes; nobody waits for them any more.
    os._exit(code)


class Agent:
    """The table of requests. At most one tree is open."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._boot = processes.boot_id()
        self._cache = Cache.of_this_agent()
        self._session: Optional[Session] = None
        self.emit: Callable[[str, Dict[str, Any]], None] = lambda _event, _data: None

    def routes(self) -> Dict[str, Route]:
        now = {"hello": self._hello, "beat": self._with_tree(Session.beat)}
        beside = {
            "run": lambda r: probes.run_commands(r["commands"]),
            "read": lambda r: probes.read_paths(r["paths"], int(r.get("max_bytes") or probes.MAX_CONTENT)),
            "glob": lambda r: probes.match_patterns(r["patterns"]),
            "processes": self._processes,
            "http": lambda r: web.request(
                r["method"], r["url"], r.get("headers") or {}, r.get("body"), float(r["timeout_s"])
            ),
            "manifest": self._manifest,
            "survey": self._survey,
            "service_look": lambda r: servicing.look(int(r["port"])),
            "service_find": lambda r: servicing.find([str(word) for word in r["words"]]),
            "service_await": self._with_tree(Session.service_await),
            "neighbours": self._neighbours,
            "await_ready": self._with_tree(Session.await_ready),
            "decode": self._with_tree(Session.decode),
            "bench": self._with_tree(Session.bench),
            "inspect": self._with_tree(Session.inspect),
            "stacks": self._with_tree(Session.stacks),
        }
        line = {
            "end_processes": lambda r: ending.end_processes(
                r["identities"], float(r["term_s"]), float(r["kill_s"]), self._boot
            ),
            "forget": self._forget,
            "open": self._open,
            "snapshot": self._with_tree(Session.snapshot),
            "apply": self._with_tree(Session.apply),
            "revert": self._with_tree(Session.revert),
            "verify": self._with_tree(Session.verify),
            "release": self._with_tree(Session.release),
            "keep": self._with_tree(Session.keep),
            "restore_kept": self._with_tree(Session.restore_kept),
            "acknowledge": self._with_tree(Session.acknowledge),
            "launch": self._with_tree(Session.launch),
            "adopt": self._with_tree(Session.adopt_launch),
            "stop": self._with_tree(Session.stop),
            "sweep": self._with_tree(Session.sweep),
            "service_stop": self._with_tree(Session.service_stop),
            "service_start": self._with_tree(Session.service_start),
            "recover": self._with_tree(Session.recover),
            "close": self._close,
        }
        lanes: Dict[str, Dict[str, Handle]] = {"now": now, "beside": beside, "line": line}
        return {name: Route(handle, lane) for lane, table in lanes.items() for name, handle in table.items()}

    def _with_tree(self, handle: Callable[[Session, Mapping[str, Any]], Any]) -> Handle:
        def guarded(request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
            session = self._session
            if session is None:
                raise AgentError("refused", "no tree is open on this connection", hint="open one first")
            if handle is not Session.beat:
                session.tree.beat()
            return handle(session, request)

        return guarded

    # -- without a tree --------------------------------------------------------------------------------------------

    def _hello(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        names = os.uname()
        uid = os.getuid()
        home = os.environ.get("HOME", "")
        with contextlib.suppress(KeyError):  # a uid without an entry, as containers have them
            home = home or pwd.getpwuid(uid).pw_dir
        return {
            "protocol": PROTOCOL,
            "python": sys.version.split()[0],
            "pid": os.getpid(),
            "uid": uid,
            "user": processes.user_name(uid),
            "home": home,
            "hostname": socket.gethostname(),
            "boot_id": self._boot,
            "kernel": f"{names.sysname} {names.release} {names.machine}",
            "cwd": os.getcwd(),
            "agent_dir": self._cache.path,
            "environ": {name: os.environ[name] for name in _BASICS if name in os.environ},
        }

    def _processes(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        session = self._session
        identity = session.guard_identity if session is not None else None
        port = request.get("port")
        facts = session.journal_facts() if session is not None else {}
        known = [Identity(**one) for one in facts.get("journal_identities", ())]
        found = holders.find_processes(
            request["devices"],
            int(port) if port is not None else None,
            {*(request.get("run_ids") or ()), *facts.get("journal_run_ids", ())},
            identity,
            also={*(request.get("pids") or ()), *(one.pid for one in known if processes.is_alive(one, self._boot))},
        )
        return {**found, **facts}

    def _manifest(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        """What lies there now; our own state directory, where it lies inside, is left out."""
        started_s = time.monotonic()
        fs, paths = Fs(), [str(path) for path in request["paths"]]
        homes = [state.find_state_dir(fs, *state.resolve_root(fs, path)) for path in paths if os.path.isdir(path)]
        made = manifest(fs, paths, [home for home in homes if home is not None])
        facts: Dict[str, Any] = {"digest": made.digest, "files": made.files, "bytes": made.size_bytes}
        if request.get("full"):
            facts["entries"] = {path: dict(entry._asdict()) for path, entry in made.entries.items()}
        return {**facts, "seconds": time.monotonic() - started_s}

    def _neighbours(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        guard = self._session.guard_identity if self._session is not None else None
        return {"processes": neighbours.find_neighbours(str(request["python"]), str(request["source"]), guard)}

    def _survey(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        root = str(request["root"])
        shadow = shadow_of(Fs(), request)
        if shadow is None:
            return survey.survey(root, self._boot)
        if not os.path.isdir(shadow.home):
            return survey.nothing(root)
        return survey.survey(shadow.home, self._boot)

    def _forget(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        if self._session is not None:
            raise AgentError("refused", "a tree is open on this connection", hint="close it first")
        removed = []
        if request.get("tree"):
            shadow = shadow_of(Fs(), {**request, "root": request["tree"]})
            if shadow is None:
                removed += Tree.forget(Fs(), str(request["tree"]))
            elif os.path.isdir(shadow.home):
                removed += Tree.forget(Fs(), shadow.home)
                Fs().rmdir(shadow.home)
                removed.append(shadow.home)
        left = self._cache.trees()
        if left and not request.get("tree"):
            raise AgentError("refused", "trees are still known here", {"trees": ", ".join(left)}, "forget each first")
        if not left:
            removed += self._cache.remove()
        return {"removed": removed, "trees": left}

    # -- taking and giving back ------------------------------------------------------------------------------------

    def _open(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        if self._session is not None:
            self._leave_lapsed(self._session)
        self._session = session = Session(request, self._nursery, self._boot, self.emit)
        self._cache.remember(session.tree.state_dir, session.tree.root)
        session.adopt()
        return session.describe()

    def _leave_lapsed(self, session: Session) -> None:
        """Take leave of a tree whose lease ran out while nobody asked; a tree that is still held stays open."""
        try:
            session.tree.beat()
        except AgentError:
            session.leave()
            self._session = None
            return
        raise AgentError("refused", "a tree is open on this connection", {"root": session.tree.root}, "close it first")

    def _close(self, _: Mapping[str, Any]) -> Dict[str, Any]:
        session = self._session
        if session is None:
            raise AgentError("refused", "no tree is open on this connection")
        session.close({})
        self._session = None
        return {}
