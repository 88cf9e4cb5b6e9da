"""The guard's socket: its name in the state directory, and what goes over it."""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Dict, List, Mapping, Optional

from orchestrator.agent.processes import Identity
from orchestrator.agent.rpc import pack

SOCKET = "guard.sock"


class Peer:
    """A connected agent. What it sends is cut into frames as it comes."""

    def __init__(self, sock: socket.socket, identity: Optional[Identity]) -> None:
        self.sock, self.identity = sock, identity
        self._data = b""

    def frames(self) -> Optional[List[Dict[str, Any]]]:
        """Complete frames; None at the end of the connection."""
        try:
            block = self.sock.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not block:
            return None
        self._data += block
        found = []
        while len(self._data) >= 4 and len(self._data) >= 4 + int.from_bytes(self._data[:4], "big"):
            size = 4 + int.from_bytes(self._data[:4], "big")
            found.append(json.loads(self._data[4:size]))
            self._data = self._data[size:]
        return found

    def send(self, message: Mapping[str, Any]) -> bool:
        """False when it cannot take a message of some bytes: stopped for good, or gone."""
        try:
            self.sock.sendall(pack(message))
        except OSError:
            return False
        return True


def listen(state_dir: str) -> socket.socket:
    """A listening socket at `guard.sock`, whatever the length of the path. Whoever had the name before is dead: the
    caller's agent holds the lock of the tree and asked."""
    unlink_socket(state_dir)
    with _Folder(state_dir) as folder:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(f"{folder}/{SOCKET}")
    sock.listen(4)
    return sock


def dial(state_dir: str, timeout_s: float) -> Optional[socket.socket]:
    """A connection to the living guard of this tree, or None."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout_s)
    try:
        with _Folder(state_dir) as folder:
            sock.connect(f"{folder}/{SOCKET}")
    except (FileNotFoundError, ConnectionRefusedError):
        sock.close()
        return None
    return sock


def unlink_socket(state_dir: str) -> None:
    try:
        os.unlink(os.path.join(state_dir, SOCKET))
    except FileNotFoundError:
        return


class _Folder:
    """A short name for a directory: socket paths hold 107 bytes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> str:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._fd}"

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
