"""HTTP/1.1 over one non-blocking socket: requests in, answers and event streams out."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

MAX_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class HttpRequest:
    """One request, read whole."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    is_http10: bool

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def wants_close(self) -> bool:
        return self.is_http10 or self.headers.get("connection", "").lower() == "close"


class Connection:
    """A client. What cannot be written at once waits in `unsent`."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.peer = peer
        self.unsent = b""
        self.is_closing = False
        self.is_busy = False  # a request is being answered: the next one waits
        self.is_gone = False
        self._received = b""
        self._request: HttpRequest | None = None

    def fileno(self) -> int:
        return self.sock.fileno()

    def fill(self) -> bool:
        """Read what has arrived; False when the client has left."""
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._received += data
        return bool(data)

    def next_request(self) -> HttpRequest | None:
        """The next request once it is complete. Raises ValueError for what is not HTTP."""
        head, separator, rest = self._received.partition(b"\r\n\r\n")
        if not separator:
            if len(self._received) > MAX_HEAD_BYTES:
                raise ValueError("the request's head is too long")
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, version = first.split(" ")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return None
        self._received = rest[length:]
        self._request = HttpRequest(method, target, headers, rest[:length], version == "HTTP/1.0")
        self.is_busy = True
        return self._request

    def answer(self, status: int, content: Any, content_type: str = "application/json") -> None:  # noqa: ANN401 - JSON
        """One whole answer; text is sent as it is, everything else as JSON."""
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        self._send(self._head(status, content_type, f"Content-Length: {len(body)}") + body)
        self._end()

    def begin_stream(self) -> None:
        framing = "" if self._is_old else "Transfer-Encoding: chunked"
        self._send(self._head(200, "text/event-stream; charset=utf-8", framing))

    def stream(self, data: str) -> None:
        """One server-sent event."""
        event = f"data: {data}\n\n".encode()
        self._send(event if self._is_old else b"%x\r\n%b\r\n" % (len(event), event))

    def end_stream(self) -> None:
        if not self._is_old:
            self._send(b"0\r\n\r\n")
        self._end()

    def flush(self) -> None:
        """Write what the socket takes."""
        while self.unsent and not self.is_gone:
            try:
                sent = self.sock.send(self.unsent)
            except BlockingIOError:
                return
            except OSError:
                self.is_gone = True
                return
            self.unsent = self.unsent[sent:]

    @property
    def _is_old(self) -> bool:
        return self._request is not None and self._request.is_http10

    def _head(self, status: int, content_type: str, framing: str) -> bytes:
        closes = self._request is None or self._request.wants_close
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "server: uvicorn",
            f"Content-Type: {content_type}",
            f"Connection: {'close' if closes else 'keep-alive'}",
        ]
        return "\r\n".join([*lines, *([framing] if framing else []), "", ""]).encode()

    def _send(self, data: bytes) -> None:
        self.unsent += data
        self.flush()

    def _end(self) -> None:
        self.is_closing = self._request is None or self._request.wants_close
        self.is_busy = False
