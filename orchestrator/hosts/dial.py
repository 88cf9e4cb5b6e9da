"""The first byte to the first banner: name resolution, TCP, proxies, and what went wrong with them."""

from __future__ import annotations

import errno
import socket
import subprocess
from collections.abc import Callable
from typing import TypeVar

from orchestrator.errors import Unreachable
from orchestrator.hosts.deadline import Deadline, within
from orchestrator.hosts.legs import Leg

T = TypeVar("T")
_TRIES = 3


class AckingSocket(socket.socket):
    """Confirms what it reads at once. Linux waits up to 40 ms for data to send along, and sshd holds back its next
    packet for as long (Nagle's algorithm): without this a login takes a round trip more."""

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        data = super().recv(bufsize, flags)
        if hasattr(socket, "TCP_QUICKACK"):
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # the kernel forgets it: set every time
        return data


class Transient(Unreachable):
    """Worth another try: refused, reset, or closed before the banner (a host that boots, or sheds connections)."""


def retried(attempt: Callable[[], T], limit: Deadline) -> T:
    """`attempt`, up to three times while time is left. Never for a host key or a login: those come later."""
    from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

    retrying = Retrying(
        retry=retry_if_exception_type(Transient),
        stop=lambda state: limit.left_s() <= 1.0 or stop_after_attempt(_TRIES)(state),
        wait=wait_exponential(multiplier=0.2, max=2.0),
        reraise=True,
    )
    try:
        return retrying(attempt)
    except Transient as error:
        raise Unreachable(error.what, facts=error.facts, hint=error.hint) from error.__cause__


def _facts(leg: Leg) -> dict[str, str]:
    return {"host": leg.host, "port": str(leg.port)}


def _compare(leg: Leg) -> str:
    return f"compare with `ssh -v -p {leg.port} {leg.user}@{leg.host}`"


def resolve(leg: Leg, limit: Deadline) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    """Addresses to try, in order."""
    try:
        found = within(limit.left_s(), lambda: socket.getaddrinfo(leg.host, leg.port, type=socket.SOCK_STREAM))
    except socket.gaierror as error:
        raise Unreachable(
            f"the name {leg.host} is not known: {error.strerror}",
            facts=_facts(leg),
            hint=f"try `getent hosts {leg.host}`; is it a Host of another ssh configuration?",
        ) from error
    except TimeoutError as error:
        raise Unreachable(
            f"the name {leg.host} was not resolved in time", facts=_facts(leg), hint="is the name server up?"
        ) from error
    return [(family, address[:2]) for family, _, _, _, address in found]  # type: ignore[misc]


def tcp(leg: Leg, limit: Deadline, silence_s: float) -> socket.socket:
    """Connected to the first address that answers. A link that leaves data unconfirmed for `silence_s` is dropped."""
    addresses = resolve(leg, limit)
    failure: OSError | None = None
    for index, (family, address) in enumerate(addresses):
        sock = AckingSocket(family, socket.SOCK_STREAM)
        sock.settimeout(limit.left_s() / (len(addresses) - index) or 0.001)
        try:
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
            continue
        # Small packets one after the other: Nagle's algorithm would add a round trip to each pair.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence_s * 1000))
        return sock
    raise _no_tcp(leg, failure or OSError("no address"))


def _no_tcp(leg: Leg, error: OSError) -> Unreachable:
    where = f"{leg.host}:{leg.port}"
    if isinstance(error, TimeoutError):
        return Unreachable(
            f"no answer from {where}",
            facts={**_facts(leg), "reason": "timeout"},
            hint=f"is the host up, and the port open in its firewall? {_compare(leg)}",
        )
    if isinstance(error, ConnectionRefusedError):
        return Transient(
            f"{where} refuses the connection: nothing listens there",
            facts={**_facts(leg), "reason": "refused"},
            hint=f"is sshd running, and on this port? {_compare(leg)}",
        )
    kind = Transient if error.errno in (errno.ECONNRESET, errno.ENETDOWN) else Unreachable
    return kind(
        f"{where} cannot be reached: {error.strerror or error}",
        facts={**_facts(leg), "reason": errno.errorcode.get(error.errno or 0, "other").lower()},
        hint=_compare(leg),
    )


def no_banner(leg: Leg, error: BaseException, limit: Deadline) -> Unreachable:
    """Connected, and then no ssh: what the transport raised, in words."""
    where = f"{leg.host}:{leg.port}"
    text = str(error) or type(error).__name__
    if limit.left_s() <= 0:
        return Unreachable(
            f"{where} accepts connections and says nothing",
            facts={**_facts(leg), "reason": "timeout", "detail": text},
            hint=f"is it an ssh server, and not overloaded? {_compare(leg)}",
        )
    kind = Transient if "banner" in text or isinstance(error, EOFError | ConnectionError) else Unreachable
    return kind(
        f"no ssh connection with {where}: {text}",
        facts={**_facts(leg), "reason": "handshake"},
        hint=f"is it an ssh server? It may also shed connections (MaxStartups). {_compare(leg)}",
    )


def proxy(command: str) -> socket.socket:
    """A `ProxyCommand`, its standard input and output as a socket. It ends when the socket is closed."""
    ours, its = socket.socketpair()
    with its:
        subprocess.Popen(
            ["sh", "-c", f"exec {command}"], stdin=its.fileno(), stdout=its.fileno(), start_new_session=True
        )
    return ours
