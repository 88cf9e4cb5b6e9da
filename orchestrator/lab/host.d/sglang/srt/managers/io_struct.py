"""What passes between the main process and the ranks: one JSON object a line over a socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]


class Pipe:
    """One end of the connection between main and a rank."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._rest = b""

    def fileno(self) -> int:
        return self.end.fileno()

    def send(self, message: Message) -> None:
        """Whole or not at all; raises OSError when the other side is gone."""
        self.end.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Iterator[Message]:
        """The messages that one read completes. Raises EOFError when the other side is gone."""
        data = self.end.recv(1 << 16)
        if not data:
            raise EOFError
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield json.loads(line)
