"""A throw-away sshd on 127.0.0.1: own port, host key, client key and known_hosts, all in a temporary directory.

Needs root (sshd must be able to become the user it logs in) and Debian's openssh-server; skips with the reason where
either is missing. Several may run side by side; each is ended by its own process handle.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator.core.model import Route

SSHD = "/usr/sbin/sshd"
_SETTINGS = """
Port {port}
ListenAddress {address}
HostKey {base}/host_key
AuthorizedKeysFile {base}/authorized_keys
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
SetEnv HOME={base}/home {environment}
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 100
LogLevel VERBOSE
{extra}
"""


def keygen(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A fresh key pair at `path` and `path.pub`."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)], check=True)
    return path


@dataclass
class Sshd:
    """A running server. Files: `host_key`, `id` (the client's key), `known_hosts`, `log`; `home` is HOME there."""

    base: Path
    address: str
    port: int
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def key(self) -> Path:
        return self.base / "id"

    @property
    def known_hosts(self) -> Path:
        return self.base / "known_hosts"

    @property
    def log(self) -> str:
        return (self.base / "log").read_text(errors="replace")

    def public_line(self) -> str:
        """Type and base64 of the host key."""
        return " ".join((self.base / "host_key.pub").read_text().split()[:2])

    def route(self, **changes: object) -> Route:
        """The way in; `changes` replace fields of the route."""
        fields: dict[str, object] = {
            "ssh": f"root@{self.address}",
            "port": self.port,
            "key": str(self.key),
            "known_hosts": str(self.known_hosts),
            "config": None,
        }
        return Route.model_validate({**fields, **changes})

    def stop(self) -> None:
        """Ends the listener. Sessions end with their clients."""
        self.process.terminate()
        self.process.wait(10)


def start_sshd(
    base: Path,
    *,
    extra: str = "",
    environment: str = "",
    key_kind: str = "ed25519",
    address: str = "127.0.0.1",
    prefix: tuple[str, ...] = (),
) -> Sshd:
    """A server below `base`, listening on `address`; `prefix` (`ip netns exec NAME`) is put before its command."""
    base.mkdir(parents=True, exist_ok=True)
    base.chmod(0o755)
    (base / "home").mkdir(exist_ok=True)
    keygen(base / "host_key", key_kind)
    keygen(base / "id")
    shutil.copy(base / "id.pub", base / "authorized_keys")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # its privilege separation directory
    for _ in range(5):  # another process may take the port between our look and its bind
        port = _free_port()
        settings = _SETTINGS.format(port=port, base=base, extra=extra, environment=environment, address=address)
        (base / "sshd.conf").write_text(settings)
        (base / "log").write_text("")
        command = [*prefix, SSHD, "-D", "-f", str(base / "sshd.conf"), "-E", str(base / "log")]
        null = subprocess.DEVNULL  # a session that outlives its client must not hold our pipes
        server = Sshd(base, address, port, subprocess.Popen(command, stdin=null, stdout=null, stderr=null))
        if _listens(server):
            server.known_hosts.write_text(f"[{address}]:{port} {server.public_line()}\n")
            return server
        server.stop()
    raise AssertionError(f"sshd does not start: {server.log}")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _listens(server: Sshd, limit_s: float = 10.0, look_every_s: float = 0.01) -> bool:
    """Whether the server says that it listens before it ends."""
    for _ in range(int(limit_s / look_every_s)):
        if "Server listening on" in server.log:
            return True
        try:
            server.process.wait(look_every_s)
        except subprocess.TimeoutExpired:
            continue
        return False
    return False


def why_not() -> str | None:
    """The reason that no sshd can be started here, if there is one."""
    if not Path(SSHD).exists():
        return f"{SSHD} is not installed (Debian: apt-get install openssh-server)"
    if os.geteuid() != 0:
        return "a throw-away sshd needs root"
    return None


SshdFactory = Callable[..., Sshd]


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One server for a whole run of tests: do not change its files."""
    if reason := why_not():
        pytest.skip(reason)
    server = start_sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture
def sshd_factory(tmp_path: Path) -> Iterator[SshdFactory]:
    """`sshd_factory(extra=…, environment=…)`: servers of this test alone."""
    if reason := why_not():
        pytest.skip(reason)
    servers: list[Sshd] = []

    def make(**settings: str) -> Sshd:
        servers.append(start_sshd(tmp_path / f"sshd{len(servers)}", **settings))
        return servers[-1]

    yield make
    for server in servers:
        server.stop()
