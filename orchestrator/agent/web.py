"""One HTTP exchange with a total deadline, which another thread can cut short."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from orchestrator.agent.errors import AgentError

MAX_BODY = 8 << 20


def prepare() -> None:
    """Load what a request needs, before its time is taken."""
    import http.client  # noqa: F401


class Exchange:
    """Request and reply. Every error is an `AgentError` of kind `unreachable` with the fact `reason`."""

    def __init__(
        self,
        method: str,
        url: str,
        *,
        headers: Optional[Mapping[str, str]] = None,
        body: Optional[bytes] = None,
        timeout_s: float,
    ) -> None:
        self._method, self._url, self._headers, self._body = method, url, dict(headers or {}), body
        self._deadline = time.monotonic() + timeout_s
        self._sock: Optional[socket.socket] = None
        self._lock = threading.Lock()
        self._aborted = False

    def abort(self) -> None:
        """Make the thread that waits for this exchange return at once, with reason `reset`."""
        with self._lock:
            self._aborted = True
            sock = self._sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:  # closed already: nobody waits on it
                return

    def run(self) -> Tuple[int, Dict[str, str], bytes]:
        """(status, headers, body)."""
        status, headers, blocks = self.start()
        taken = bytearray()
        for block in blocks:
            taken += block
            if len(taken) > MAX_BODY:
                what = f"the reply of {self._url} is longer than {MAX_BODY} bytes"
                raise AgentError("failed", what, {"url": self._url})
        return status, headers, bytes(taken)

    def start(self) -> Tuple[int, Dict[str, str], Iterator[bytes]]:
        """(status, headers, blocks of the body as they arrive)."""
        import http.client  # standard library, 20 ms, and most connections never need it

        parts = urlsplit(self._url)
        secure = parts.scheme == "https"
        make = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection: Any = make(parts.hostname or "127.0.0.1", parts.port, timeout=self._remaining())
        try:
            connection.connect()
            self._hold(connection.sock)
            connection.request(self._method, path, self._body, {"Connection": "close", **self._headers})
            self._limit()
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, headers, self._blocks(connection, response)

    def _blocks(self, connection: Any, response: Any) -> Iterator[bytes]:  # noqa: ANN401 - http.client is imported late
        import http.client

        try:
            # Since 3.11.8 and 3.12.2 a reply is closed with its last byte, and the socket with it.
            while not response.isclosed():
                self._limit()
                block = response.read1(65536)
                if not block:
                    break
                yield block
            missing = getattr(response, "length", None)
            if missing:
                raise http.client.IncompleteRead(b"", missing)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            response.close()
            connection.close()

    def _hold(self, sock: socket.socket) -> None:
        with self._lock:
            self._sock = sock
            if self._aborted:
                raise ConnectionAbortedError("given up")
        self._limit()

    def _remaining(self) -> float:
        return max(self._deadline - time.monotonic(), 0.001)

    def _limit(self) -> None:
        if self._sock is not None:
            self._sock.settimeout(self._remaining())

    def _unreachable(self, error: Exception) -> AgentError:
        facts = {"reason": _reason(error), "url": self._url, "error": f"{type(error).__name__}: {error}"}
        return AgentError("unreachable", f"{self._url} did not answer: {facts['reason']}", facts)


def _reason(error: Exception) -> str:
    if isinstance(error, (socket.timeout, TimeoutError)):
        return "timeout"
    if isinstance(error, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)):
        return "reset"
    if isinstance(error, OSError):
        return "refused"
    return "incomplete"


def request(method: str, url: str, headers: Mapping[str, str], body: Optional[str], timeout_s: float) -> Dict[str, Any]:
    """The reply to `http`."""
    raw = body.encode("utf-8", "surrogateescape") if body is not None else None
    exchange = Exchange(method, url, headers=headers, body=raw, timeout_s=timeout_s)
    status, found, content = exchange.run()
    return {"status": status, "headers": found, "body": content.decode("utf-8", "replace")}
