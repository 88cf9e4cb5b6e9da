"""A child of the agent that forks guards: made before the agent has any thread, so safe to fork from at any time."""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from typing import Any, Dict, Mapping, NoReturn, Optional

from orchestrator.agent import kernel, processes
from orchestrator.agent.errors import AgentError
from orchestrator.agent.guard import Guard
from orchestrator.agent.processes import Identity
from orchestrator.agent.rpc import FrameError, Wire, pack

LOG = "guard.log"
START_S = 10.0


class Nursery:
    """The agent's side: a child with one thread that forks guards, and leaves with the agent."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._wire_socket = ours
        agent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _rear(theirs, agent)
        theirs.close()

    def start_guard(self, params: Mapping[str, Any]) -> Identity:
        """Returns when the guard listens. Raises `refused` when it cannot."""
        self._wire_socket.settimeout(START_S)
        self._wire_socket.sendall(pack(params))
        try:
            answer = _receive(self._wire_socket)
        except (OSError, FrameError) as error:
            raise AgentError("refused", f"the guard did not start: {error}", hint="see guard.log") from error
        if answer is None or "error" in answer:
            said = (answer or {}).get("error", "its process ended")
            raise AgentError("refused", f"the guard did not start: {said}", hint="nothing was changed")
        return Identity(answer["pid"], answer["start_ticks"], answer["boot_id"])


def _receive(sock: socket.socket) -> Optional[Dict[str, Any]]:
    """One frame from a blocking socket with a timeout."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        block = sock.recv(65536)
        if not block:
            return None
        data += block
    result: Dict[str, Any] = json.loads(data[4:])
    return result


def _rear(sock: socket.socket, agent: int) -> NoReturn:
    """The nursery: holds nothing of the agent's but the socket, so that no channel stays open for it."""
    try:
        kernel.set_name("orc-nursery")
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        kernel.close_all_but({0, 1, 2, sock.fileno()})
        kernel.ignore_signals()
        boot = processes.boot_id()
        parent = processes.identity_of(agent, boot)
        wire = Wire(sock.fileno(), sock.fileno())
        while True:
            params = wire.receive()
            if params is None:
                break
            child = os.fork()
            if child == 0:
                os.setsid()
                if os.fork() == 0:
                    _guard(sock, params, parent, boot)
                os._exit(0)
            os.waitpid(child, 0)
    finally:
        os._exit(0)


def _guard(sock: socket.socket, params: Mapping[str, Any], agent: Optional[Identity], boot: str) -> NoReturn:
    code = 1
    try:
        log = os.open(os.path.join(params["state_dir"], LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 2)
        os.close(log)
        os.chdir("/")
        kernel.set_name("orc-guard")
        kernel.become_subreaper()
        guard = Guard(params, agent, boot)
        me = processes.identity_of(os.getpid(), boot)
        assert me is not None
        sock.sendall(pack({"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": boot}))
        sock.close()
        guard.watch()
        code = 0
    except BaseException as error:
        traceback.print_exc()
        if sock.fileno() >= 0:
            sock.sendall(pack({"error": f"{type(error).__name__}: {error}"}))
    finally:
        sys.stderr.flush()
        os._exit(code)
