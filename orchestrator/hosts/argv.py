"""Route → argument vector. One level of quoting per shell in the chain, none elsewhere.

`ssh` joins its words with blanks and hands them to the login shell of the far side, so what follows an ssh hop is
quoted there, as one word. `pct exec 129 --`, `docker exec -i NAME`, `kubectl exec -i POD --`, `srun`, `nsenter` and
`sudo` pass words on as they are.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from orchestrator.core.model import Route, SshHop
from orchestrator.errors import UsageError

_SUDO = ("sudo", "-n", "--")  # -n: fail at once where a password would be asked for


def route_argv(route: Route, tail: Sequence[str]) -> list[str]:
    """What runs where the route's own connection ends: its hops around `tail`."""
    argv = [*_SUDO, *tail] if route.sudo else list(tail)
    for hop in reversed(route.hops):
        argv = [*_ssh_prefix(hop), shlex.join(argv)] if isinstance(hop, SshHop) else [*hop, *argv]
    return argv


def route_command(route: Route, tail: Sequence[str]) -> str:
    """The same for the shell that sshd starts at the end of the route's connection."""
    return shlex.join(route_argv(route, tail))


def _ssh_prefix(hop: SshHop) -> list[str]:
    if hop.ssh.startswith("-") or not hop.ssh:
        raise UsageError(
            f"an ssh hop to {hop.ssh!r}", hint="write user@host or host; options of ssh belong into `options:`"
        )
    return ["ssh", "-T", "-o", "BatchMode=yes", *hop.options, "--", hop.ssh]
