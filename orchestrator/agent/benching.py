"""A benchmark command beside the server: started by the guard like the server itself, and gone with it.

It carries the launch's run id, so that whoever ends the launch (the controller, the guard, a recovery) ends it too.
When the server ends, or nothing moves any more, its whole family is killed at once.
"""

from __future__ import annotations

import base64
import glob
import os
import threading
import time
import zlib
from typing import Any, Callable, Dict, List, Mapping, Optional

from orchestrator.agent import processes, ready
from orchestrator.agent.ending import wait_for_end
from orchestrator.agent.errors import AgentError
from orchestrator.agent.guardlink import GuardLink
from orchestrator.agent.observing import Observer
from orchestrator.agent.processes import Grip, Identity
from orchestrator.agent.server import Server

_LOOK_S = 0.5
_KILL_S = 10.0
_MAX_OUTPUT = 1 << 20
_MAX_PACKED = 8 << 20
_OUT = "{out}"


class Bench:
    """One `bench` request. `stop` makes `run` return soon, with its processes gone."""

    def __init__(self, server: Server, link: GuardLink, request: Mapping[str, Any], observer: Observer) -> None:
        self._server, self._link, self._request, self._observer = server, link, request, observer
        name = str(request["name"])
        if not name.replace("-", "").isalnum():
            raise AgentError("usage", f"{name!r} cannot name a file", {"name": name})
        self._name = name
        self._log = os.path.join(server.run.path, f"{name}.log")
        self._out = os.path.join(server.launched.tmp, name)
        self._moved = threading.Event()  # its end, the server's, or a word from `stop`
        self._end: Optional[Dict[str, Any]] = None
        self._why: Optional[str] = None
        self._identity: Optional[Identity] = None
        self._heard_at = time.monotonic()
        self._sizes: tuple[int, int] = (0, 0)
        self._cpu_s = 0.0

    @property
    def pid(self) -> Optional[int]:
        return self._identity.pid if self._identity is not None else None

    @property
    def silent_s(self) -> float:
        """Seconds since the server's log or the command's own output last grew."""
        sizes = (_size(self._server.run.log), _size(self._log))
        if sizes != self._sizes:
            self._sizes, self._heard_at = sizes, time.monotonic()
        return time.monotonic() - self._heard_at

    def stop(self, why: str) -> None:
        self._why = self._why or why
        self._moved.set()

    def take_exit(self, end: Mapping[str, Any]) -> None:
        """The guard has seen a child end that is no server; `pid` tells whose it is."""
        if self._end is None and self._identity is not None and int(end["pid"]) == self._identity.pid:
            self._end = dict(end)
            self._moved.set()

    def run(self, note: Callable[[Identity], None]) -> Dict[str, Any]:
        """The reply to `bench`. `note` is told who was started."""
        os.makedirs(self._out, mode=0o700)
        self._observer.begin()
        began_at = time.monotonic()
        self._start(note)
        deadline = began_at + float(self._request["timeout_s"])
        try:
            while self._end is None and self._why is None and time.monotonic() < deadline:
                self._moved.wait(min(_LOOK_S, max(deadline - time.monotonic(), 0.0)))
                self._moved.clear()
                self._look()
            timed_out = self._end is None and self._why is None
        finally:
            self._kill_family()
        end = self._end or {"exit_code": None, "signal": None}
        return {
            "exit_code": end["exit_code"],
            "signal": end["signal"],
            "seconds": round(time.monotonic() - began_at, 3),
            "cpu_s": self._cpu_s,
            "stopped": self._why,
            "timed_out": timed_out,
            "stdout": _tail(self._log),
            "files": self._files(),
            "observed": self._observer.end(),
        }

    def _start(self, note: Callable[[Identity], None]) -> None:
        argv = [str(word).replace(_OUT, self._out) for word in self._request["argv"]]
        wanted = {"launch_id": self._server.launch_id, "argv": argv, "env": self._environment()}
        started = self._link.call("run", {**wanted, "cwd": str(self._request["cwd"]), "log": self._log})
        self._identity = Identity(int(started["pid"]), int(started["start_ticks"]), self._server.boot)
        note(self._identity)
        if not processes.is_alive(self._identity, self._server.boot):
            end = self._link.call("hello")["commands"].get(str(self._identity.pid))  # it ended before we knew its pid
            if end is not None:
                self.take_exit(end)

    def _environment(self) -> Dict[str, str]:
        env = {str(name): str(value) for name, value in self._request["env"].items()}
        env[processes.RUN_ID] = self._server.launch_id
        env["TMPDIR"] = self._server.launched.tmp
        env["PYTHONDONTWRITEBYTECODE"] = "1"  # it may import the tree, whose compiled files are never touched
        env["PYTHONUNBUFFERED"] = "1"
        header = ready.authorization(self._server, self._request.get("api_key_env")).get("Authorization")
        if header is not None:
            env["OPENAI_API_KEY"] = header.split(" ", 1)[1]
        return env

    def _look(self) -> None:
        """How busy it has been so far: a client that fills a core measures itself."""
        stat = processes.read_stat(self._identity.pid) if self._identity is not None else None
        if stat is not None and self._identity is not None and stat.start_ticks == self._identity.start_ticks:
            self._cpu_s = _cpu_s(stat.pid) or self._cpu_s

    def _kill_family(self) -> None:
        """Everything below it and in its session. What has left both is ended with the launch."""
        if self._identity is None:
            return
        root = self._identity.pid
        table = processes.read_table()
        family = processes.descendants(table, {root}) | {pid for pid, stat in table.items() if stat.sid == root}
        found = [processes.identity_of(pid, self._server.boot) for pid in family | {root}]
        alive = [one for one in found if one is not None and (one.pid != root or one == self._identity)]
        grips = [grip for grip in (Grip.take(one, self._server.boot) for one in alive) if grip is not None]
        deadline = time.monotonic() + _KILL_S
        try:
            for grip in grips:
                grip.send(9)
            while any(not grip.has_ended() for grip in grips) and time.monotonic() < deadline:
                wait_for_end([grip for grip in grips if not grip.has_ended()], 0.05)
        finally:
            for grip in grips:
                grip.close()

    def _files(self) -> Dict[str, Any]:
        """What it wrote that was asked for: name → packed content, or its size where that is too much."""
        found: Dict[str, Any] = {}
        for pattern in self._request.get("files") or ():
            for path in sorted(glob.glob(os.path.join(glob.escape(self._out), str(pattern)))):
                with open(path, "rb") as file:
                    packed = zlib.compress(file.read())
                name = os.path.relpath(path, self._out)
                if len(packed) > _MAX_PACKED:
                    found[name] = {"too_long": os.path.getsize(path)}
                else:
                    found[name] = {"zlib_b64": base64.b64encode(packed).decode("ascii")}
        return found


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _tail(path: str) -> str:
    """The end of what it printed."""
    if not os.path.exists(path):
        return ""
    with open(path, "rb") as file:
        file.seek(max(_size(path) - _MAX_OUTPUT, 0))
        return file.read().decode("utf-8", "replace")


def _cpu_s(pid: int) -> Optional[float]:
    """Processor time of the process itself, None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields: List[str] = file.read().rpartition(")")[2].split()
    except OSError as error:
        if processes.is_gone(error):
            return None
        raise
    return (int(fields[11]) + int(fields[12])) / processes.TICKS_PER_S
