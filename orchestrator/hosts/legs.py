"""Route and ssh configuration → the ssh connections to make, outermost first."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.core.model import Route
from orchestrator.errors import UsageError
from orchestrator.hosts.knownhosts import SSH_PORT

USER_CONFIG = "~/.ssh/config"
SYSTEM_CONFIG = "/etc/ssh/ssh_config"
_USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_GLOBAL_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_DESTINATION = re.compile(
    r"(?:(?P<user>[^@]+)@)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^@:]+|[^@]*:[^@]*:[^@]*))(?::(?P<port>\d+))?"
)

Lookup = Callable[[str, str | None, int | None], Mapping[str, Any]]
"""A name, and user and port where the route says them → the options that ssh configuration gives it, keys in lower
case; `identityfile` is a list."""


@dataclass(frozen=True)
class Leg:
    """One ssh connection. `keys` are private key files to offer; `known_hosts[0]` is where a new key belongs."""

    alias: str
    host: str
    port: int
    user: str
    keys: tuple[Path, ...]
    only_these_keys: bool
    known_hosts: tuple[Path, ...]
    key_name: str
    proxy_command: str | None

    def __str__(self) -> str:
        return f"{self.user}@{self.host}" + (f":{self.port}" if self.port != SSH_PORT else "")


def split_destination(text: str) -> tuple[str | None, str, int | None]:
    """`user@host:port`, `[::1]:22`, `host` → user, host, port."""
    found = _DESTINATION.fullmatch(text.removeprefix("ssh://"))
    if not found or text.startswith("-"):
        raise UsageError(f"{text!r} is not an ssh destination", hint="write user@host, or user@host:port")
    return found["user"], found["v6"] or found["host"], int(found["port"]) if found["port"] else None


def plan_legs(route: Route, lookup: Lookup, user: str) -> tuple[Leg, ...]:
    """All connections of a route: its jump hosts (or those its configuration names), then the host itself."""
    if route.ssh is None:
        return ()
    own_port = split_destination(route.ssh)[2]
    if route.port and own_port and route.port != own_port:
        raise UsageError(f"two ports for {route.ssh}: {own_port} and {route.port}", hint="write one of them")
    last, jumps = _leg(route.ssh, route, lookup, user, route.port)
    if route.key:
        last = replace(last, keys=(_path(route.key),), only_these_keys=True)
    if route.jump:
        jumps, last = route.jump, replace(last, proxy_command=None)
    legs = [last]
    seen = {route.ssh}
    while jumps:
        *outer, nearest = jumps
        if nearest in seen:
            raise UsageError(f"jump host {nearest} leads to itself", hint="see ProxyJump in the ssh configuration")
        seen.add(nearest)
        leg, its_jumps = _leg(nearest, route, lookup, user)
        if route.key and not leg.only_these_keys:
            leg = replace(leg, keys=tuple(dict.fromkeys([*leg.keys, _path(route.key)])))
        legs.insert(0, leg)
        jumps = tuple(outer) or its_jumps
    return tuple(legs)


def _leg(
    destination: str, route: Route, lookup: Lookup, user: str, named_port: int | None = None
) -> tuple[Leg, tuple[str, ...]]:
    """The connection to one destination, and the jump hosts that its configuration names."""
    named_user, alias, port = split_destination(destination)
    options = lookup(alias, named_user, port or named_port)
    host = options.get("hostname", alias)
    files = [route.known_hosts] if route.known_hosts else _known_hosts(options)
    named_keys = tuple(map(_path, options.get("identityfile", ())))
    jump = str(options.get("proxyjump", "none"))
    leg = Leg(
        alias=alias,
        host=host,
        port=int(options.get("port", SSH_PORT)),
        user=options.get("user", user),
        keys=named_keys or tuple(map(_path, _DEFAULT_KEYS)),
        only_these_keys=str(options.get("identitiesonly", "no")).lower() == "yes",
        known_hosts=tuple(map(_path, files)),
        key_name=options.get("hostkeyalias", host),
        proxy_command=options.get("proxycommand"),
    )
    return leg, () if jump.lower() == "none" else tuple(j.strip() for j in jump.split(","))


def _known_hosts(options: Mapping[str, Any]) -> list[str]:
    user_files = str(options["userknownhostsfile"]).split() if "userknownhostsfile" in options else _USER_KNOWN_HOSTS
    shared = str(options["globalknownhostsfile"]).split() if "globalknownhostsfile" in options else _GLOBAL_KNOWN_HOSTS
    return [*user_files, *shared]


def _path(text: str) -> Path:
    return Path(text.strip('"').replace("%d", "~", 1)).expanduser()


# ---------------------------------------------------------------- configuration files


def configuration_lookup(route: Route) -> Lookup:
    """Reads the route's ssh configuration. The system's is added to the user's own, as `ssh` does."""
    if route.config is None:
        return lambda name, user, port: _said(user, port)
    from paramiko.config import SSHConfig
    from paramiko.ssh_exception import ConfigParseError, CouldNotCanonicalize

    path = Path(route.config).expanduser()
    if not path.exists() and route.config != USER_CONFIG:
        raise UsageError(f"there is no ssh configuration {path}", hint="correct `config:` of the route")
    lines = _read_with_includes(path, path.parent)
    if route.config == USER_CONFIG:
        lines += ["Host *", *_read_with_includes(Path(SYSTEM_CONFIG), Path("/etc/ssh"))]
    _refuse_match_exec(path, lines)

    def lookup(name: str, user: str | None, port: int | None) -> Mapping[str, Any]:
        # The first value found counts: what the route says is put in front, so that tokens such as %p see it too.
        first = ["Host *", *(f"{key} {value}" for key, value in _said(user, port).items())]
        try:
            return SSHConfig.from_text("\n".join([*first, *lines])).lookup(name)
        except (ConfigParseError, CouldNotCanonicalize, ValueError) as error:
            raise UsageError(f"{path}: {error}", hint=f"compare with `ssh -G {name}`") from error

    return lookup


def _said(user: str | None, port: int | None) -> dict[str, Any]:
    return {key: value for key, value in (("user", user), ("port", port)) if value is not None}


def _refuse_match_exec(path: Path, lines: list[str]) -> None:
    """Whether such a block holds is known to its command only, and the library would give that command our input."""
    if any(re.match(r"\s*match\b.*\bexec\b", line, re.IGNORECASE) for line in lines):
        raise UsageError(
            f"{path} uses `Match exec`, which is not followed here",
            hint="write host, user and key into the route, with `config: null` or a `config:` without it",
        )


def _read_with_includes(path: Path, base: Path, depth: int = 0) -> list[str]:
    """Lines with `Include` replaced by what it names; the block it stands in goes on after it."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []  # as ssh does: a file that is not there or not readable says nothing
    lines: list[str] = []
    block = "Host *"
    for line in text.splitlines():
        word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if word.lower() in ("host", "match"):
            block = line.strip()
        if word.lower() != "include" or depth >= 16:
            lines.append(line)
            continue
        for pattern in rest.split():
            for found in sorted(_expand(pattern, base)):
                lines += _read_with_includes(found, base, depth + 1)
        lines.append(block)
    return lines


def _expand(pattern: str, base: Path) -> list[Path]:
    full = Path(os.path.join(base, os.path.expanduser(pattern)))  # noqa: PTH111, PTH118 - keeps glob characters
    return list(Path(full.anchor).glob(str(full.relative_to(full.anchor))))
