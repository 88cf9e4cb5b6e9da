"""Waiting for a server: polled on its own host, ended at once by what can be known.

Ready means, in this order: a process of this launch owns the listening socket, health is 200, every expectation
holds, a generation gave something. Every other end has a state of its own.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from orchestrator.agent import holders, processes, stacks
from orchestrator.agent.errors import AgentError
from orchestrator.agent.progress import SAMPLE_S, Progress
from orchestrator.agent.server import Server
from orchestrator.agent.web import Exchange

_HEALTH_S = 30.0
"""SGLang's health check generates a token and gives up after 20 s by itself."""
_UNAVAILABLE = 503  # not yet, or not now: asked again until the limit
_MAX_TEXT = 500
_LOCAL = {"0.0.0.0", "::", "127.0.0.1", "::1", "::ffff:127.0.0.1"}  # noqa: S104 - addresses compared, not bound


class _Verdict(Exception):
    """An end of the wait, not an error."""

    def __init__(self, state: str, facts: Dict[str, Any]) -> None:
        super().__init__(state)
        self.state, self.facts = state, facts


class Waiter:
    """One `await_ready`. The waiting thread never blocks for longer than a poll: requests run beside it."""

    def __init__(self, server: Server, spec: Mapping[str, Any]) -> None:
        self._server, self._spec = server, spec
        self._port = int(spec["port"])
        self._poll_s = float(spec.get("poll_s") or 0.05)
        self._started = time.monotonic()
        self._deadline = self._started + float(spec["limit_s"])
        self._wake = threading.Event()
        self._last: Dict[str, Any] = {"seen": "nothing listens on the port"}
        self._progress = Progress(server, float(spec["stall_s"]), spec.get("memory_argv"))

    def run(self) -> Dict[str, Any]:
        """`{state, seconds, facts}`."""
        self._server.on_end(self._wake.set)
        try:
            facts = self._until_ready()
            state = "ready"
        except _Verdict as verdict:
            state, facts = verdict.state, verdict.facts
        return {"state": state, "seconds": round(time.monotonic() - self._started, 3), "facts": facts}

    def _until_ready(self) -> Dict[str, Any]:
        while True:
            address, pid = self._owner()
            if address is not None and self._is_healthy(address):
                break
            self._pause()
        for expectation in self._spec.get("expect") or ():
            self._expect(address, expectation)
        text = self._generate(address)
        # A server that dies of its first request, or a port that changed hands, is not ready.
        self._check()
        if self._owner()[1] != pid:
            raise _Verdict("wrong_server", {"why": "the port changed hands while it was asked", "pid": pid})
        self._server.relax()
        return {"address": address, "pid": pid, "generated": text}

    # -- ends of the wait ------------------------------------------------------------------------------------------

    def _pause(self) -> None:
        self._wake.wait(self._poll_s)
        self._check()

    def _check(self) -> None:
        server = self._server
        if server.end is not None:
            raise _Verdict("exited", {**server.end, "last_line": _last_line(server)})
        now = time.monotonic()
        if now >= self._deadline:
            raise _Verdict("timeout", {**self._last, "last_line": _last_line(server)})
        if self._progress.look():
            raise _Verdict("hung", self._describe_hang())

    def _describe_hang(self) -> Dict[str, Any]:
        stalled_s = round(self._progress.stalled_s, 3)
        return {
            **self._last,
            "stalled_s": stalled_s,
            "last_line": _last_line(self._server),
            **stacks.collect(self._server),
        }

    # -- who listens -----------------------------------------------------------------------------------------------

    def _owner(self) -> Tuple[Optional[str], Optional[int]]:
        """(address to ask, pid) once a process of this launch listens; (None, None) while nobody does."""
        listeners = [one for one in holders.read_listeners() if one.port == self._port]
        if not listeners:
            return None, None
        owners = _owners(listeners, self._young(carriers=False))
        strangers = [one for one in listeners if one.inode not in owners and one.address in _LOCAL]
        if strangers:
            owners = _owners(listeners, self._young(carriers=True))
            self._refuse_strangers([one for one in strangers if one.inode not in owners])
        mine = [one for one in listeners if one.inode in owners]
        if not mine:
            return None, None
        best = next((one for one in mine if one.address in _LOCAL), mine[0])
        return ("127.0.0.1" if best.address in _LOCAL - {"::1"} else best.address), min(owners[best.inode])

    def _young(self, *, carriers: bool) -> Set[int]:
        """Processes of this launch that began after it: what an earlier one left below the guard serves old code."""
        since = self._server.launched.since_ticks
        return {one.pid for one in self._server.family(carriers=carriers) if one.start_ticks >= since}

    def _refuse_strangers(self, strangers: List[holders.Listener]) -> None:
        if not strangers:
            return
        self._check()  # an owner that ended with the server is no stranger
        everybody = _owners(strangers, None)
        still = {one.inode for one in holders.read_listeners()}
        strangers = [one for one in strangers if one.inode in still]
        if not strangers:
            return
        one = strangers[0]
        pids = sorted(everybody.get(one.inode, ()))
        facts: Dict[str, Any] = {"address": one.address, "port": one.port, "pid": pids[0] if pids else None}
        stat = processes.read_stat(pids[0]) if pids else None
        if stat is not None:
            facts["cmdline"] = processes.read_cmdline(stat.pid)
            facts["age_s"] = round(processes.boottime_s() - stat.start_ticks / processes.TICKS_PER_S, 2)
            uid = processes.owner_of(stat.pid)
            facts["user"] = processes.user_name(uid) if uid is not None else None
        else:
            facts["why"] = "its owner is not visible to us: another user's or another container's"
        raise _Verdict("stranger", facts)

    # -- what it answers -------------------------------------------------------------------------------------------

    def _is_healthy(self, address: str) -> bool:
        answer = self._ask("GET", address, str(self._spec["health"]), None, _HEALTH_S)
        if answer is None:
            return False
        status, _ = answer
        self._last = {"seen": f"{self._spec['health']} answers {status}"}
        return status == 200

    def _expect(self, address: Optional[str], expectation: Mapping[str, Any]) -> None:
        path = str(expectation["path"])
        while True:
            answer = self._ask("GET", address, path, None, _HEALTH_S)
            if answer is not None and answer[0] == 200:
                break
            self._last = {"seen": f"{path} answers {answer[0] if answer else 'nothing'}"}
            self._pause()
        body = _json(answer[1])
        for key, wanted in expectation["json"].items():
            found = look_up(body, key)
            if found != wanted:
                raise _Verdict("wrong_server", {"path": path, "key": key, "expected": wanted, "found": found})

    def _generate(self, address: Optional[str]) -> Any:  # noqa: ANN401 - whatever JSON the key leads to
        wanted = self._spec.get("generate")
        if not wanted:
            return None
        path, body = str(wanted["path"]), json.dumps(wanted["body"])
        while True:
            self._last = {"seen": f"{path} has not answered"}
            answer = self._ask("POST", address, path, body, max(self._deadline - time.monotonic(), 1.0))
            if answer is None:
                self._check_after_loss()
                raise _Verdict("generation_failed", {**self._last, "path": path})
            status, text = answer
            if status != _UNAVAILABLE:
                break
            self._last = {"seen": f"{path} answers {status}: called healthy before it can generate"}
            self._pause()
        found = look_up(_json(text), str(wanted["text_key"])) if status == 200 else None
        if not found:
            facts = {"path": path, "status": status, "body": text[:_MAX_TEXT], "text_key": wanted["text_key"]}
            raise _Verdict("generation_failed", facts)
        return found

    def _check_after_loss(self) -> None:
        """A connection that broke is most often a server that is about to be seen dead: that is the better answer."""
        self._server.ended.wait(0.5)
        self._check()

    def _ask(
        self, method: str, address: Optional[str], path: str, body: Optional[str], timeout_s: float
    ) -> Optional[Tuple[int, str]]:
        """(status, text), or None when it did not answer. Any verdict cuts the exchange short."""
        host = f"[{address}]" if address is not None and ":" in address else address
        headers = {**self._headers(), **({"Content-Type": "application/json"} if body is not None else {})}
        raw = body.encode() if body is not None else None
        exchange = Exchange(method, f"http://{host}:{self._port}{path}", headers=headers, body=raw, timeout_s=timeout_s)
        done = threading.Event()
        answer: List[Tuple[int, str]] = []

        def talk() -> None:
            try:
                status, _, content = exchange.run()
                answer.append((status, content.decode("utf-8", "replace")))
            except AgentError as error:
                self._last = {"seen": error.what, "error": error.facts.get("error", "")}
            finally:
                done.set()
                self._wake.set()

        threading.Thread(target=talk, name=f"{method} {path}", daemon=True).start()
        try:
            while not done.is_set():
                self._wake.clear()
                self._check()
                if not done.is_set():
                    self._wake.wait(SAMPLE_S / 4)
        except _Verdict:
            exchange.abort()
            raise
        self._wake.clear()
        if answer and answer[0][0] in (401, 403):
            raise _Verdict("auth_required", {"path": path, "status": answer[0][0]})
        return answer[0] if answer else None

    def _headers(self) -> Dict[str, str]:
        return authorization(self._server, self._spec.get("api_key_env"))


def authorization(server: Server, name: Optional[str]) -> Dict[str, str]:
    """The key is read from the server's own environment, so that it travels nowhere."""
    if not name:
        return {}
    key = (processes.read_environ(server.launched.pid) or {}).get(name)
    return {"Authorization": f"Bearer {key}"} if key else {}


def look_up(body: Any, dotted: str) -> Any:  # noqa: ANN401 - JSON
    """The value at `a.0.b`, None where the path leads nowhere."""
    for part in dotted.split("."):
        if isinstance(body, dict):
            body = body.get(part)
        elif isinstance(body, list) and part.isdigit() and int(part) < len(body):
            body = body[int(part)]
        else:
            return None
    return body


def _json(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text)
    except ValueError:
        return None


def _owners(listeners: List[holders.Listener], among: Optional[Set[int]]) -> Dict[int, Set[int]]:
    """Inode of the listening socket → pids that hold it."""
    return holders.scan(holders.NOTHING, {one.inode for one in listeners}, among).inodes


def _last_line(server: Server) -> str:
    return server.tail.last_line if server.tail is not None else ""


def address_of(server: Server, port: int) -> str:
    """Where a process of this launch listens on the port, as the host part of a URL; loopback when none does."""
    listeners = [one for one in holders.read_listeners() if one.port == port]
    owners = _owners(listeners, {identity.pid for identity in server.family(carriers=False)}) if listeners else {}
    mine = [one.address for one in listeners if one.inode in owners]
    if not mine or any(address in _LOCAL - {"::1"} for address in mine):
        return "127.0.0.1"
    return f"[{mine[0]}]" if ":" in mine[0] else mine[0]
