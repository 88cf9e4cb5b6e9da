"""Frames on two descriptors, and a dispatcher: one table of requests, three lanes.

`now` is answered by the reading thread. `line` carries out what changes state, one after the other in order of
arrival. `beside` runs in a thread of its own once everything that arrived before it in the line is done, so that a
request sent right after a change sees it.
"""

from __future__ import annotations

import json
import os
import queue
import select
import struct
import sys
import threading
import traceback
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional

from orchestrator.agent.errors import AgentError, failed

MAX_FRAME = 16 << 20
LAST_WORDS_S = 10.0


class FrameError(Exception):
    """What arrived is no frame; the stream cannot be read any further."""


def pack(message: Mapping[str, Any]) -> bytes:
    """ASCII JSON: lone surrogates of odd file names travel as escapes."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return struct.pack(">I", len(body)) + body


class Wire:
    """Whole frames, however the bytes are cut, on descriptors that may be non-blocking. Any thread may `send`."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._lock = threading.Lock()

    def receive(self) -> Optional[Dict[str, Any]]:
        """The next frame, None at a clean end. Raises FrameError on anything else."""
        head = self._exactly(4)
        if head is None:
            return None
        (length,) = struct.unpack(">I", head)
        if length > MAX_FRAME:
            raise FrameError(f"a frame of {length} bytes: {MAX_FRAME} at most")
        body = self._exactly(length)
        if body is None:
            raise FrameError("the stream ended inside a frame")
        try:
            message = json.loads(body)
        except ValueError as error:
            raise FrameError(f"a frame that is not JSON: {error}") from error
        if not isinstance(message, dict):
            raise FrameError("a frame that is not a JSON object")
        return message

    def _exactly(self, size: int) -> Optional[bytes]:
        taken = bytearray()
        while len(taken) < size:
            try:
                block = os.read(self._read_fd, size - len(taken))
            except BlockingIOError:
                select.select([self._read_fd], [], [])
                continue
            if not block:
                if taken:
                    raise FrameError("the stream ended inside a frame")
                return None
            taken += block
        return bytes(taken)

    def send(self, packed: bytes) -> None:
        """One frame from `pack`. Raises OSError when nobody reads any more."""
        frame = memoryview(packed)
        with self._lock:
            while frame:
                try:
                    frame = frame[os.write(self._write_fd, frame) :]
                except BlockingIOError:
                    select.select([], [self._write_fd], [])


Handle = Callable[[Mapping[str, Any]], Any]


class Route(NamedTuple):
    """How one request is carried out; `lane` is now, line or beside."""

    handle: Handle
    lane: str


class Dispatcher:
    """Reads requests until the end of the stream and answers each exactly once."""

    def __init__(self, wire: Wire, routes: Mapping[str, Route]) -> None:
        self._wire, self._routes = wire, routes
        self._queue: queue.Queue[Optional[Callable[[], None]]] = queue.Queue()
        self._arrived = 0
        self._done = 0
        self._progress = threading.Condition()
        self._ended = False
        self._line = threading.Thread(target=self._walk_line, name="line", daemon=True)

    def serve(self) -> None:
        """Until EOF. The change that is under way then is carried to its end, for up to `LAST_WORDS_S`; those that
        wait behind it are dropped, as if they had never arrived."""
        self._line.start()
        try:
            while True:
                message = self._wire.receive()
                if message is None:
                    break
                self._accept(message)
        finally:
            self._ended = True
            self._queue.put(None)
            self._line.join(LAST_WORDS_S)

    def emit(self, event: str, data: Mapping[str, Any]) -> None:
        """Send an event; when nobody reads any more it is dropped, since what it tells is in journal and log too."""
        self._send(pack({"id": None, "event": event, "data": data}))

    def _accept(self, message: Dict[str, Any]) -> None:
        number, name, given = message.get("id"), message.get("do"), message.get("with")
        route = self._routes.get(str(name))
        arguments: Mapping[str, Any] = given if isinstance(given, dict) else {}
        if route is None:
            known = ", ".join(sorted(self._routes))
            self._reply(number, error=AgentError("usage", f"no request is called {name!r}", {"known": known}))
        elif route.lane == "now":
            self._answer(number, str(name), route.handle, arguments)
        elif route.lane == "line":
            self._arrived += 1
            self._queue.put(lambda: self._answer(number, str(name), route.handle, arguments))
        else:
            after = self._arrived
            threading.Thread(
                target=self._beside, args=(after, number, str(name), route.handle, arguments), daemon=True
            ).start()

    def _walk_line(self) -> None:
        while True:
            job = self._queue.get()
            if job is None or self._ended:
                return
            job()
            with self._progress:
                self._done += 1
                self._progress.notify_all()

    def _beside(self, after: int, number: Any, name: str, handle: Handle, given: Mapping[str, Any]) -> None:  # noqa: ANN401
        with self._progress:
            self._progress.wait_for(lambda: self._done >= after)
        self._answer(number, name, handle, given)

    def _answer(self, number: Any, name: str, handle: Handle, given: Mapping[str, Any]) -> None:  # noqa: ANN401
        try:
            result = handle(given)
        except AgentError as error:
            self._reply(number, error=error)
        except OSError as error:
            traceback.print_exc()
            self._reply(number, error=failed(error, name))
        except (KeyError, TypeError, ValueError) as error:
            # Almost always a request that lacks a key or has one of another type; the traceback tells.
            traceback.print_exc()
            what = f"{name}: {type(error).__name__}: {error}"
            self._reply(number, error=AgentError("usage", what, {"traceback": traceback.format_exc()}))
        except Exception as error:  # the controller must get an answer, whatever broke
            traceback.print_exc()
            what = f"{name}: {type(error).__name__}: {error}"
            self._reply(number, error=AgentError("failed", what, {"traceback": traceback.format_exc(), "call": name}))
        else:
            self._reply(number, ok=result)

    def _reply(self, number: Any, *, ok: Any = None, error: Optional[AgentError] = None) -> None:  # noqa: ANN401
        message = {"id": number, "ok": ok} if error is None else {"id": number, "error": error.as_reply()}
        packed = pack(message)
        if len(packed) - 4 > MAX_FRAME:
            too_long = AgentError("failed", f"the reply is longer than {MAX_FRAME} bytes: ask for less at once")
            packed = pack({"id": number, "error": too_long.as_reply()})
        self._send(packed)

    def _send(self, packed: bytes) -> None:
        try:
            self._wire.send(packed)
        except OSError as error:
            # The reader sees the same end; until then work goes on, and the lease decides.
            print(f"not sent: {error}", file=sys.stderr)
