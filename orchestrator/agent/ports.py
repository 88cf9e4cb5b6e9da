"""A TCP port as a server would find it: who listens, what else holds it, and whether it can be bound."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

if TYPE_CHECKING:
    from orchestrator.agent.holders import Holding, Listener

_STATES = {
    "01": "ESTABLISHED", "02": "SYN_SENT", "03": "SYN_RECV", "04": "FIN_WAIT1", "05": "FIN_WAIT2", "06": "TIME_WAIT",
    "07": "CLOSE", "08": "CLOSE_WAIT", "09": "LAST_ACK", "0A": "LISTEN", "0B": "CLOSING", "0C": "NEW_SYN_RECV",
}  # fmt: skip


def look_at_port(port: int, listeners: List[Listener], holding: Holding) -> Dict[str, Any]:
    """`listeners`: those on this port, with the pids that can be seen to hold them; none for another container's or, to
    an ordinary account, another user's. `states`: how many sockets of this port are in which state. `refused_plain` and
    `refused_reuse`: the error's name when it cannot be bound on the loopback, without and with SO_REUSEADDR."""
    states: Dict[str, int] = {}
    for state in _states(port):
        states[state] = states.get(state, 0) + 1
    return {
        "port": port,
        "listeners": [{"address": one.address, "pids": sorted(holding.inodes.get(one.inode, ()))} for one in listeners],
        "states": states,
        "refused_plain": _refusal(port, reuse=False),
        "refused_reuse": _refusal(port, reuse=True),
    }


def _states(port: int) -> Iterator[str]:
    for path in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            with open(path, encoding="ascii") as file:
                next(file)
                rows: List[Tuple[str, str]] = [(fields[1], fields[3]) for fields in map(str.split, file)]
        except FileNotFoundError:  # a kernel without IPv6
            continue
        for local, state in rows:
            if int(local.rpartition(":")[2], 16) == port:
                yield _STATES.get(state, state)


def _refusal(port: int, *, reuse: bool) -> Optional[str]:
    """Bound and let go at once, never listened on: nobody can connect to it meanwhile."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        if reuse:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, os.strerror(error.errno or 0))
    return None
