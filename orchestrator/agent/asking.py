"""Requests to a server of ours that runs: tokens timed, a benchmark beside it. Each ends with the server."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Mapping, Optional

from orchestrator.agent import decode, ready
from orchestrator.agent.benching import Bench
from orchestrator.agent.errors import AgentError
from orchestrator.agent.guardlink import GuardLink
from orchestrator.agent.observing import Observer
from orchestrator.agent.server import Server
from orchestrator.agent.vigil import Vigil


def time_tokens(server: Server, spec: Mapping[str, Any]) -> Dict[str, Any]:
    """The reply to `decode`."""
    headers = ready.authorization(server, spec.get("api_key_env"))
    host = ready.address_of(server, int(spec["port"]))
    observer = Observer(spec, f"http://{host}:{spec['port']}", headers, server.run.log)
    probe = decode.Probe(spec, headers, host, observer)
    server.on_end(lambda: probe.stop(server.end_sentence()))
    with server.quiet(), Vigil(server, probe, spec.get("stall_s")) as vigil:
        result = probe.run()
    return {**result, "hung": vigil.hung} if vigil.hung is not None else result


class Benches:
    """At most one benchmark command at a time; a child of the guard, like the server it is run against."""

    def __init__(self, guard: Callable[[], GuardLink]) -> None:
        self._guard = guard
        self._bench: Optional[Bench] = None
        self._lock = threading.Lock()

    def run(self, server: Server, request: Mapping[str, Any]) -> Dict[str, Any]:
        """The reply to `bench`."""
        headers = ready.authorization(server, request.get("api_key_env"))
        base = f"http://{ready.address_of(server, int(request['port']))}:{request['port']}"
        bench = Bench(server, self._guard(), request, Observer(request, base, headers, server.run.log))
        with self._lock:
            if self._bench is not None:
                raise AgentError("refused", "a benchmark is running already", {"launch_id": server.launch_id})
            self._bench = bench
        server.on_end(lambda: bench.stop(server.end_sentence()))
        try:
            with server.quiet(), Vigil(server, bench, request.get("stall_s")) as vigil:
                result = bench.run(server.note_helper)
        finally:
            with self._lock:
                self._bench = None
        return {**result, "hung": vigil.hung} if vigil.hung is not None else result

    def take_exit(self, end: Dict[str, Any]) -> None:
        """A child of the guard that is no server has ended."""
        with self._lock:
            bench = self._bench
        if bench is not None:
            bench.take_exit(end)
