"""ssh connections: reach a host leg by leg, know it by its key, log in, run one command. paramiko stays in here."""

from __future__ import annotations

import contextlib
import getpass
import logging
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import paramiko
from paramiko.ssh_exception import AuthenticationException, BadAuthenticationType, ChannelException, SSHException

from orchestrator.core.model import Route
from orchestrator.errors import OrchestratorError, Refused, Unreachable
from orchestrator.hosts import dial, knownhosts
from orchestrator.hosts.deadline import Deadline, within
from orchestrator.hosts.keys import Prompt, Unusable, candidates
from orchestrator.hosts.legs import Leg, configuration_lookup, plan_legs
from orchestrator.hosts.wire import CHUNK, Tail

if TYPE_CHECKING:
    from paramiko.pkey import PKey

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its tracebacks do not belong on a person's stderr

_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")
Progress = Callable[[str, Leg], None]
"""Told what has just succeeded (`tcp`, `host key`, `authentication`) and for which leg."""


class Session:
    """The transports of a route, outermost first. `close` drops them all."""

    def __init__(self) -> None:
        self.transports: list[paramiko.Transport] = []
        self.sockets: list[socket.socket | paramiko.Channel] = []

    def close(self) -> None:
        """Innermost first. Each socket goes before its transport, whose thread then ends at once, not at its next
        poll."""
        for index, sock in reversed(list(enumerate(self.sockets))):
            with contextlib.suppress(SSHException, OSError, EOFError):  # it may be gone already
                sock.shutdown(socket.SHUT_RDWR)
            for end in (sock, *self.transports[index : index + 1]):
                with contextlib.suppress(SSHException, OSError, EOFError):
                    end.close()


def open_session(
    route: Route, deadline: Deadline, prompt: Prompt | None = None, progress: Progress = lambda step, leg: None
) -> Session:
    """All legs of the route, each logged in. Raises `Unreachable`, or `Refused` for an unknown or changed host key."""
    legs = plan_legs(route, configuration_lookup(route), getpass.getuser())
    session = Session()
    try:
        for index, leg in enumerate(legs):
            limit = Deadline(min(route.connect_timeout, deadline.left_s()))
            transport = _link(leg, legs[:index], session, limit, route)
            progress("tcp", leg)
            _know(transport, leg, legs[:index])
            progress("host key", leg)
            _log_in(transport, leg, limit, _unhurried(prompt, limit, deadline))
            progress("authentication", leg)
            transport.set_keepalive(max(1, round(route.keepalive)))
    except BaseException:
        session.close()
        raise
    return session


def _unhurried(prompt: Prompt | None, *limits: Deadline) -> Prompt | None:
    if prompt is None:
        return None
    ask = prompt

    def asked(text: str) -> str | None:
        with contextlib.ExitStack() as paused:
            for limit in limits:
                paused.enter_context(limit.paused())
            return ask(text)

    return asked


def facts_of(leg: Leg) -> dict[str, str]:
    """Where it happened, for an error."""
    return {"host": leg.host, "port": str(leg.port), "user": leg.user}


# ---------------------------------------------------------------- one leg: link, host key, login


def _link(leg: Leg, before: tuple[Leg, ...], session: Session, limit: Deadline, route: Route) -> paramiko.Transport:
    """Connected and encrypted, the host's key received and not yet judged."""
    entries = known_entries(leg)

    def attempt() -> paramiko.Transport:
        sock = _socket(leg, before, session, limit, route)
        session.sockets.append(sock)
        transport = paramiko.Transport(sock)
        session.transports.append(transport)
        _prefer_known_types(transport, knownhosts.entries_for(entries, leg.key_name, leg.port))
        transport.banner_timeout = transport.handshake_timeout = limit.left_s()
        try:
            transport.start_client(timeout=limit.left_s())
            transport.get_remote_server_key()
        except (SSHException, OSError, EOFError) as error:
            transport.close()
            raise dial.no_banner(leg, error, limit) from error
        return transport

    return dial.retried(attempt, limit)


def _socket(
    leg: Leg, before: tuple[Leg, ...], session: Session, limit: Deadline, route: Route
) -> socket.socket | paramiko.Channel:
    if before:
        nearest = before[-1]
        try:
            return session.transports[-1].open_channel(
                "direct-tcpip", (leg.host, leg.port), ("127.0.0.1", 0), timeout=limit.left_s()
            )
        except (SSHException, EOFError) as error:
            reason = error.text if isinstance(error, ChannelException) else str(error) or "it hung up"
            raise Unreachable(
                f"jump host {nearest} does not reach {leg.host}:{leg.port}: {reason}",
                facts={**facts_of(leg), "jump": str(nearest)},
                hint=f"compare with `ssh {nearest} nc -z {leg.host} {leg.port}`; AllowTcpForwarding may be off there",
            ) from error
    if leg.proxy_command:
        return dial.proxy(leg.proxy_command)
    return dial.tcp(leg, limit, silence_s=3 * max(1.0, route.keepalive))


def _prefer_known_types(transport: paramiko.Transport, entries: list[knownhosts.Entry]) -> None:
    """Have the host show a key of the type that is on record, if it has one."""
    options = transport.get_security_options()
    wanted: list[str] = []
    for entry in entries:
        wanted += _RSA_SIGNATURES if entry.key_type == "ssh-rsa" else (entry.key_type,)
    offered = options.key_types
    options.key_types = tuple(dict.fromkeys([*(t for t in wanted if t in offered), *offered]))


def known_entries(leg: Leg) -> list[knownhosts.Entry]:
    """All lines of the leg's known_hosts files; a file that is not there has none."""
    entries: list[knownhosts.Entry] = []
    for path in leg.known_hosts:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            entries += knownhosts.parse(path.read_text(errors="replace"), str(path))
    return entries


def _know(transport: paramiko.Transport, leg: Leg, before: tuple[Leg, ...]) -> None:
    """Strict: an unknown, changed or revoked key ends it here, and nothing is ever added to a file."""
    key = transport.get_remote_server_key()
    verdict, entry = knownhosts.judge(known_entries(leg), leg.key_name, leg.port, key.asbytes())
    if verdict == "known":
        return
    name = knownhosts.lookup_name(leg.key_name, leg.port)
    target = leg.known_hosts[0]
    facts = {**facts_of(leg), "fingerprint": knownhosts.fingerprint(key.asbytes()), "key_type": key.get_name()}
    line = f"{name} {key.get_name()} {key.get_base64()}"
    direct = not before and leg.key_name == leg.host and not leg.proxy_command
    add = f"ssh-keyscan -p {leg.port} {leg.host} >> {target}" if direct else f"echo '{line}' >> {target}"
    compare = "compare the fingerprint with `ssh-keygen -lf` of /etc/ssh/ssh_host_*_key.pub on the host"
    if verdict == "unknown":
        raise Refused(f"the host key of {name} is not known", facts=facts, hint=f"{compare}, then: {add}")
    assert entry is not None
    facts["on_record"] = f"{entry.file}:{entry.line}"
    if verdict == "revoked":
        raise Refused(f"the host key of {name} is revoked", facts=facts, hint="do not connect; ask who revoked it")
    facts["expected"] = knownhosts.fingerprint(entry.key)
    forget = f"ssh-keygen -R '{name}' -f {entry.file}"
    raise Refused(
        f"the host key of {name} has changed: another machine, or somebody in between",
        facts=facts,
        hint=f"if the machine was set up anew, {compare}, then: {forget} && {add}",
    )


def _log_in(transport: paramiko.Transport, leg: Leg, limit: Deadline, prompt: Prompt | None) -> None:
    """Offers keys until one is taken. Never a password, never twice."""
    tried: list[str] = []
    hint = f"compare with `ssh -v -p {leg.port} {leg.user}@{leg.host}`; the key must be in its authorized_keys"

    agent, agent_keys = _agent_keys(limit, tried)
    try:
        for candidate in candidates(leg, agent_keys, prompt):
            try:
                key = candidate.load()
            except Unusable as error:
                tried.append(f"{candidate.label}: {error}")
                continue
            try:
                further = _offer(transport, leg.user, key, limit)
            except BadAuthenticationType as error:
                tried.append(f"{candidate.label}: the host takes no keys, only {', '.join(error.allowed_types)}")
                break
            except AuthenticationException:
                tried.append(f"{candidate.label}: not accepted")
                if not transport.is_active():
                    tried.append("then the host hung up")
                    break
                continue
            if not further:
                return
            tried.append(f"{candidate.label}: accepted, and {', '.join(further)} asked for besides")
            break
    except (SSHException, OSError, EOFError) as error:
        tried.append(f"then the connection ended: {error or type(error).__name__}")
    finally:
        if agent:
            agent.close()
    raise Unreachable(
        f"authentication failed for {leg}",
        facts={**facts_of(leg), "tried": "; ".join(tried) or "no key: there is none to offer"},
        hint=hint,
    )


def _offer(transport: paramiko.Transport, user: str, key: PKey, limit: Deadline) -> list[str]:
    """The methods that are still wanted after this key; empty when that was enough."""
    transport.auth_timeout = limit.left_s()
    return transport.auth_publickey(user, key)


def _agent_keys(limit: Deadline, tried: list[str]) -> tuple[paramiko.Agent | None, tuple[PKey, ...]]:
    """Keys of the ssh-agent; one that does not answer is noted and left alone."""
    try:
        agent = within(min(3.0, limit.left_s()), paramiko.Agent)
        return agent, agent.get_keys()
    except (TimeoutError, SSHException, OSError) as error:
        tried.append(f"ssh-agent: no answer ({type(error).__name__})")
        return None, ()


# ---------------------------------------------------------------- the channel


class SshWire:
    """One command on one channel, without a pty."""

    def __init__(self, session: Session, channel: paramiko.Channel) -> None:
        self._session = session
        self._channel = channel
        self._closing = threading.Lock()
        self.stderr = Tail(lambda: channel.recv_stderr(CHUNK))

    def send(self, data: bytes) -> None:
        self._channel.sendall(data)

    def recv(self) -> bytes:
        return self._channel.recv(CHUNK)

    def finish(self) -> None:
        with contextlib.suppress(SSHException, OSError, EOFError):  # the link is gone: that is an end of input too
            self._channel.shutdown_write()

    def exit_code(self, wait_s: float) -> int | None:
        self._channel.status_event.wait(wait_s)
        code = self._channel.exit_status
        return code if code >= 0 else None

    def close(self) -> None:
        with self._closing, contextlib.suppress(SSHException, OSError, EOFError):
            self._channel.close()
            self._session.close()


def open_wire(route: Route, command: str, deadline: Deadline, prompt: Prompt | None = None) -> SshWire:
    """`command` started at the end of the route's ssh connection."""
    session = open_session(route, deadline, prompt)
    try:
        channel = _start(session, command, deadline)
    except BaseException:
        session.close()
        raise
    return SshWire(session, channel)


def _start(session: Session, command: str, deadline: Deadline) -> paramiko.Channel:
    transport = session.transports[-1]

    def start() -> paramiko.Channel:
        channel = transport.open_session(timeout=deadline.left_s())
        channel.exec_command(command)  # waits without a limit of its own
        return channel

    try:
        return within(deadline.left_s(), start)
    except OrchestratorError:
        raise
    except TimeoutError as error:
        raise Unreachable(
            "logged in, and the host does not start a command", hint="is it short of memory or processes?"
        ) from error
    except (SSHException, OSError, EOFError) as error:
        raise Unreachable(
            f"logged in, and the host refuses to run a command: {error or 'it hung up'}",
            hint="it may allow forwarding only, or be at its limit of sessions (MaxSessions)",
        ) from error
