"""The guard's socket: its name in the state directory, and what goes over it."""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Dict, List, Mapping, Optional

from orchestrator.agent import kernel
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


class Door:
    """A listening socket at `guard.sock`, whatever the length of the path. Whoever had the name before is dead or was
    given up: the agent that asked for this guard holds the lock of the tree."""

    def __init__(self, state_dir: str) -> None:
        self._path = os.path.join(state_dir, SOCKET)
        if os.path.lexists(self._path):
            os.unlink(self._path)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _Folder(state_dir) as folder:
            self._sock.bind(f"{folder}/{SOCKET}")
        self._inode = os.lstat(self._path).st_ino
        self._sock.listen(4)

    def fileno(self) -> int:
        return self._sock.fileno()

    def accept(self) -> socket.socket:
        """A connection whose sends give up after a second: an agent that is stopped must not stop its guard."""
        sock, _ = self._sock.accept()
        sock.settimeout(1.0)
        return sock

    def close(self) -> None:
        """Take the name away, unless it is another guard's by now."""
        self._sock.close()
        try:
            if os.lstat(self._path).st_ino == self._inode:
                os.unlink(self._path)
        except FileNotFoundError:
            return


def peer_pid(sock: socket.socket) -> int:
    """Of the process at the other end, by the kernel's word."""
    return kernel.peer_of(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))


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


class _Folder:
    """A short name for a directory: socket paths hold 107 bytes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> str:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._fd}"

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
