"""The client of the agent: frames, pipelined requests, events. One connection, one channel, no second process."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import queue
import secrets
import shlex
import struct
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Self

from orchestrator.core.model import Route
from orchestrator.core.ports import Json
from orchestrator.errors import Bug, OrchestratorError, Unreachable
from orchestrator.hosts import replies
from orchestrator.hosts.argv import route_argv, route_command
from orchestrator.hosts.bootstrap import MARKER_LIMIT, marker, start_argv
from orchestrator.hosts.bundle import Bundle, bundle
from orchestrator.hosts.deadline import Deadline
from orchestrator.hosts.failures import Ending, explain
from orchestrator.hosts.keys import Prompt
from orchestrator.hosts.wire import Wire

FRAME_LIMIT = 16 << 20
_CLOSE_S = 2.0
_LAST_WORDS_S = 0.3
_SHOWN = 1000  # characters of output in an error
Listener = Callable[[str, Json], None]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Traffic:
    """What a connection cost. Requests sent while others are under way share their round trip."""

    connect_s: float = 0.0
    archive_sent: bool = False
    requests: int = 0
    round_trips: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


class Connection:
    """A `HostPort`: one agent at the end of one route. Safe to use from several threads."""

    def __init__(self, name: str, route: Route, wire: Wire, nonce: str, argv: tuple[str, ...]) -> None:
        self.name = name
        self.route = route
        self._wire = wire
        self._argv = argv
        self._marker = marker(nonce)
        self._answer: Future[str] = Future()
        self._pending: dict[int, Future[dict[str, Any]]] = {}
        self._ids = itertools.count(1)
        self._listeners: list[Listener] = []
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._lost: OrchestratorError | None = None
        self._closing = False
        self._noise = b""
        self._traffic = Traffic()
        self._reader = threading.Thread(target=self._read, name=f"orchestrator-read-{name}", daemon=True)
        self._writer = threading.Thread(target=self._write, name=f"orchestrator-write-{name}", daemon=True)
        self._reader.start()
        self._writer.start()

    def __repr__(self) -> str:
        return f"<Connection {self.name} ({self.route}) {'alive' if self.alive else 'closed'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether requests can still be sent. A dead link may take a while to show."""
        return self._lost is None

    @property
    def traffic(self) -> Traffic:
        return self._traffic

    @functools.cached_property
    def hello(self) -> dict[str, Any]:
        """Who answers: protocol, python, pid, uid, user, home, hostname, boot_id, kernel, cwd, agent_dir."""
        return self.call("hello")

    # ------------------------------------------------------------ requests

    def submit(self, do: str, with_: Json | None = None) -> Future[dict[str, Any]]:
        """Send a request and return at once. The future raises what `call` raises, apart from its time limit."""
        reply: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._lost:
                raise self._lost
            number = next(self._ids)
            body = json.dumps({"id": number, "do": do, "with": with_ or {}}, separators=(",", ":")).encode()
            if len(body) > FRAME_LIMIT:
                raise Bug(f"a `{do}` of {len(body)} bytes does not fit one frame", facts={"host": self.name})
            alone = not self._pending
            self._pending[number] = reply
            self._traffic = replace(
                self._traffic,
                requests=self._traffic.requests + 1,
                round_trips=self._traffic.round_trips + alone,
            )
            self._outbox.put(struct.pack(">I", len(body)) + body)
        return reply

    def call(self, do: str, with_: Json | None = None, *, timeout_s: float = 60.0) -> dict[str, Any]:
        """See `HostPort.call`. Ctrl-C interrupts the wait, not the request."""
        if threading.current_thread() is self._reader:
            raise Bug(f"`{do}` called from a listener, where its reply can never be read")
        try:
            return self.submit(do, with_).result(timeout_s)
        except TimeoutError as error:
            raise Unreachable(
                f"{self.name} did not answer `{do}` within {timeout_s:g} s",
                facts={"host": self.name, "route": str(self.route), "reason": "timeout"},
                hint="the host may still carry it out; what it changed is undone when the lease ends",
            ) from error

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """See `HostPort.on_event`. What a listener raises is logged, and the connection goes on."""
        self._listeners = [*self._listeners, listener]

        def unsubscribe() -> None:
            self._listeners = [other for other in self._listeners if other is not listener]

        return unsubscribe

    def close(self, *, grace_s: float = _CLOSE_S) -> None:
        """End of input for the agent, a moment for it to leave, then everything is dropped. Lease and guard stay."""
        self._closing = True
        self._outbox.put(None)
        self._reader.join(grace_s)
        if not self._reader.is_alive():
            self._wire.exit_code(grace_s)  # its output ends a moment before it does
        self._wire.close()
        self._reader.join(_CLOSE_S)
        self._writer.join(_CLOSE_S)

    # ------------------------------------------------------------ start

    def start(self, archive: Bundle, deadline: Deadline, started: float) -> None:
        """Wait for the bootstrap and give it the archive if it asks. Raises `Unreachable`."""
        try:
            need = self._answer.result(deadline.left_s()) == "need"
        except TimeoutError:
            raise self._no_agent(f"no agent within {deadline.seconds:g} s") from None
        if need:
            self._outbox.put(archive.content)
            self._traffic = replace(self._traffic, archive_sent=True)
        self._traffic = replace(self._traffic, connect_s=time.monotonic() - started)

    def _no_agent(self, what: str) -> Unreachable:
        ending = Ending(
            argv=self._argv,
            stderr=self._wire.stderr.text(_LAST_WORDS_S),
            noise=self._noise.decode("utf-8", "replace"),
            exit_code=self._wire.exit_code(_LAST_WORDS_S),
            python=self.route.python,
        )
        cause, hint = explain(ending)
        facts = self._facts(ending.stderr, ending.exit_code, ending.noise)
        return Unreachable(f"{what}: {cause}", facts=facts, hint=hint)

    # ------------------------------------------------------------ threads

    def _write(self) -> None:
        while (data := self._outbox.get()) is not None:
            try:
                self._wire.send(data)
            except (OSError, EOFError):
                return  # the reader sees the end too, and knows more about it
            self._traffic = replace(self._traffic, bytes_sent=self._traffic.bytes_sent + len(data))
        self._wire.finish()

    def _read(self) -> None:
        buffer = bytearray()
        try:
            while chunk := self._receive():
                buffer += chunk
                if not self._answer.done():
                    self._seek_marker(buffer)
                if self._answer.done():
                    self._take_frames(buffer)
        except OrchestratorError as error:
            self._end(error)
        except (ValueError, KeyError, TypeError) as error:
            self._end(self._garbage(bytes(buffer), repr(error)))
        else:
            self._end(self._loss())

    def _receive(self) -> bytes:
        try:
            chunk = self._wire.recv()
        except (OSError, EOFError):
            return b""
        self._traffic = replace(self._traffic, bytes_received=self._traffic.bytes_received + len(chunk))
        return chunk

    def _seek_marker(self, buffer: bytearray) -> None:
        found = self._marker.search(buffer)
        self._noise = bytes(buffer[: found.start() if found else None])
        if found:
            self._answer.set_result(found[1].decode())
            del buffer[: found.end()]
        elif len(buffer) > MARKER_LIMIT:
            raise self._no_agent("the route prints more than 1 MiB and no agent speaks")

    def _take_frames(self, buffer: bytearray) -> None:
        at = 0
        while len(buffer) >= at + 4:
            (length,) = struct.unpack_from(">I", buffer, at)
            if length > FRAME_LIMIT:
                raise self._garbage(bytes(buffer[at:]), f"a frame of {length} bytes")
            if len(buffer) < at + 4 + length:
                break
            self._dispatch(json.loads(buffer[at + 4 : at + 4 + length]))
            at += 4 + length
        del buffer[:at]

    def _dispatch(self, frame: Mapping[str, Any]) -> None:
        if frame["id"] is None:
            self._announce(frame["event"], frame["data"])
            return
        with self._lock:
            reply = self._pending.pop(frame["id"], None)
        if reply is None:
            return  # nobody waits any more
        if "error" in frame:
            _settle(reply, error=replies.error_of(frame["error"], self.name))
        else:
            _settle(reply, result=frame["ok"])

    def _announce(self, event: str, data: Json) -> None:
        for listener in self._listeners:
            try:
                listener(event, data)
            except Exception:
                log.exception("a listener of %s failed on %s", self.name, event)

    def _garbage(self, data: bytes, why: str) -> Unreachable:
        return Unreachable(
            f"{self.name} sent something that is not a frame",
            facts={"host": self.name, "route": str(self.route), "why": why, "bytes": repr(data[:64])},
            hint="does a hop add text of its own to standard output?",
        )

    def _loss(self) -> OrchestratorError:
        if self._closing:
            return Unreachable(f"the connection to {self.name} is closed", facts={"host": self.name})
        if not self._answer.done():
            return self._no_agent("no agent at the end of the route")
        facts = self._facts(self._wire.stderr.text(_LAST_WORDS_S), self._wire.exit_code(_LAST_WORDS_S))
        hint = "connect again; what is open on the host is kept until the lease ends, and then undone by its guard"
        return Unreachable(f"the connection to {self.name} is lost", facts=facts, hint=hint)

    def _facts(self, stderr: str, exit_code: int | None, noise: str = "") -> dict[str, str]:
        facts = {
            "host": self.name,
            "route": str(self.route),
            "ran": shlex.join(self._argv),
            "exit_code": "unknown" if exit_code is None else str(exit_code),
        }
        texts = {"stderr": stderr.strip()[-_SHOWN:], "output": noise.strip()[-_SHOWN:]}
        return facts | {key: text for key, text in texts.items() if text}

    def _end(self, error: OrchestratorError) -> None:
        with self._lock:
            self._lost = error
            waiting, self._pending = list(self._pending.values()), {}
        if not self._answer.done():
            self._answer.set_exception(error)
        for reply in waiting:
            _settle(reply, error=error)
        self._outbox.put(None)


def _settle(
    reply: Future[dict[str, Any]], *, result: dict[str, Any] | None = None, error: OrchestratorError | None = None
) -> None:
    """Fulfil a future that its owner may have cancelled."""
    if not reply.set_running_or_notify_cancel():
        return
    if error:
        reply.set_exception(error)
    else:
        reply.set_result(result or {})


def connect(route: Route, *, name: str, prompt: Prompt | None = None, deadline_s: float | None = None) -> Connection:
    """The agent at the end of `route`, started or about to: the first `call` shows whether it is.

    `prompt(text)` asks a person for a passphrase; its time does not count. By default each leg has the route's
    connect_timeout, and the start of the agent another one. Raises `Unreachable`, or `Refused` for a host key that
    is unknown or changed.
    """
    started = time.monotonic()
    deadline = Deadline(deadline_s or route.connect_timeout * (2 + len(route.jump)))
    archive = bundle()
    nonce = secrets.token_hex(32)  # names a temporary file there too, in the form that `forget` removes
    tail = start_argv(route.python, archive.digest, len(archive.content), nonce)
    bare = tuple(route_argv(route, [route.python]))  # what a person can read and type
    wire: Wire
    if route.is_local:
        from orchestrator.hosts.local import LocalWire

        wire = LocalWire(route_argv(route, tail))
    else:
        from orchestrator.hosts.ssh import open_wire

        wire = open_wire(route, route_command(route, tail), deadline, prompt)
    connection = Connection(name, route, wire, nonce, bare)
    try:
        connection.start(archive, deadline, started)
    except BaseException:
        connection.close(grace_s=0.0)
        raise
    return connection
