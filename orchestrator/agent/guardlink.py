"""The agent's connection to the guard: requests one at a time, and what the guard pushes."""

from __future__ import annotations

import queue
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, Mapping, Optional

from orchestrator.agent import ending, guardsocket, processes
from orchestrator.agent.errors import AgentError
from orchestrator.agent.processes import Identity
from orchestrator.agent.rpc import FrameError, Wire, pack

REPLY_S = 10.0
SILENT_S = 5.0
_POKE = 0


class GuardLink:
    """Connected to a living guard until `is_alive` turns false; `on_lost` is called then, unless we told it to go."""

    def __init__(
        self, sock: socket.socket, boot: str, on_exit: Callable[[Dict[str, Any]], None], on_lost: Callable[[], None]
    ) -> None:
        sock.settimeout(None)
        self._sock, self._on_exit, self._on_lost = sock, on_exit, on_lost
        self._wire = Wire(sock.fileno(), sock.fileno())
        self._replies: queue.Queue[Optional[Dict[str, Any]]] = queue.Queue()
        self._lock = threading.Lock()
        self._number = 0
        self._leaving = False
        self._poked_at: Optional[float] = None
        self.is_alive = True
        threading.Thread(target=self._read, name="guard", daemon=True).start()
        self._known: Optional[Identity] = None
        hello = self.call("hello")
        self.identity = self._known = Identity(hello["pid"], hello["start_ticks"], boot)
        self.exits: Dict[str, Dict[str, Any]] = hello["exits"]

    @classmethod
    def dial(
        cls, state_dir: str, boot: str, on_exit: Callable[[Dict[str, Any]], None], on_lost: Callable[[], None]
    ) -> Optional[GuardLink]:
        """None when no guard of this tree lives. One that does not answer is ended: what it should watch is ours."""
        sock = guardsocket.dial(state_dir, REPLY_S)
        if sock is None:
            return None
        guard = processes.identity_of(guardsocket.peer_pid(sock), boot)
        silent = False

        def lost() -> None:
            if not silent:
                on_lost()

        try:
            return cls(sock, boot, on_exit, lost)
        except AgentError:
            silent = True
            if guard is not None:
                ending.kill_and_wait(guard, boot, REPLY_S)
            return None

    def poke(self) -> None:
        """Ask without waiting; a guard that left the last question unanswered for `SILENT_S` is ended, and so lost."""
        now = time.monotonic()
        if self._poked_at is None:
            self._poked_at = now
            try:
                self._wire.send(pack({"id": _POKE, "do": "hello"}))
            except OSError:
                return  # the reading thread sees the same
        elif now - self._poked_at > SILENT_S:
            ending.kill_and_wait(self.identity, self.identity.boot_id, SILENT_S)  # the reading thread sees its end

    def call(self, do: str, arguments: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
        """Raises what the guard answers, or `refused` when it does not: then it is ended, since it could still carry
        out what nobody waits for any more."""
        with self._lock:
            self._number += 1
            try:
                self._wire.send(pack({**(arguments or {}), "id": self._number, "do": do}))
                answer = self._next_reply()
            except (OSError, queue.Empty) as error:
                if self._known is not None:
                    self.is_alive = not ending.kill_and_wait(self._known, self._known.boot_id, SILENT_S)
                raise _lost(do) from error
        if "error" in answer:
            said = answer["error"]
            raise AgentError(said["kind"], said["what"], said["facts"], said["hint"])
        result: Dict[str, Any] = answer["ok"]
        return result

    def _next_reply(self) -> Dict[str, Any]:
        while True:
            answer = self._replies.get(timeout=REPLY_S)
            if answer is None:
                raise ConnectionResetError("the guard is gone")
            if answer.get("id") == self._number:  # not the late answer to a request that was given up
                return answer

    def leave(self) -> None:
        """Have the guard go; it is no longer needed."""
        self._leaving = True
        self.call("leave")

    def _read(self) -> None:
        try:
            while True:
                message = self._wire.receive()
                if message is None:
                    break
                if message.get("id") == _POKE:
                    self._poked_at = None
                elif message.get("event") == "exit":
                    self._on_exit(message["data"])
                else:
                    self._replies.put(message)
        except (OSError, FrameError) as error:
            print(f"the connection to the guard ended: {error}", file=sys.stderr)
        self.is_alive = False
        self._replies.put(None)
        self._sock.close()
        if not self._leaving:
            self._on_lost()


def _lost(do: str) -> AgentError:
    return AgentError("refused", f"the guard did not answer to {do}: it is gone", {"call": do}, "recover the tree")
