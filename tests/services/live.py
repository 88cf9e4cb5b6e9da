"""A server that runs when we come: under a script that starts it again whenever it ends."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.agent.client import wait_until

MARK = "LIVE_MARK"
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Live:
    """`script` runs in `folder`; everything of the service carries `mark` in its environment."""

    folder: Path
    script: Path
    port: int
    mark: str
    secret: str

    def processes(self) -> list[int]:
        """Of the service, by the mark: living ones in order of pid."""
        return sorted(pid for pid in _pids() if is_marked(pid, self.mark) and is_alive(pid))

    def supervisors(self) -> list[int]:
        return [pid for pid in self.processes() if str(self.script.name) in words_of(pid)]

    def server(self) -> int | None:
        """The process right below the script."""
        above = set(self.supervisors())
        below = [pid for pid in self.processes() if pid not in above and parent_of(pid) in above]
        return below[0] if below else None

    def answers(self, path: str = "/health") -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as reply:
                return bool(reply.status == 200)
        except (URLError, OSError):
            return False

    def serves(self) -> bool:
        """Its own server answers, and not one of ours in its place."""
        return self.server() is not None and self.answers()

    def wait(self, timeout_s: float = PATIENCE_S) -> None:
        wait_until(self.serves, f"the service on port {self.port} answers", timeout_s)

    def picture(self) -> tuple[list[str], dict[str, str], str]:
        """What has to be the same before and after: command line, environment and directory of the server."""
        pid = self.server()
        assert pid is not None, "nothing serves"
        return words_of(pid), environ_of(pid), os.readlink(f"/proc/{pid}/cwd")

    def end(self) -> None:
        """The script first, then all the rest."""
        for pids in (self.supervisors(), self.processes()):
            for pid in pids:
                _kill(pid)
        wait_until(lambda: not self.processes(), "the service is gone")


@contextmanager
def serving(
    folder: Path,
    argv: Sequence[str],
    port: int,
    env: Mapping[str, str] | None = None,
    patience_s: float = PATIENCE_S,
) -> Iterator[Live]:
    """Starts `argv` under a script that restarts it, and ends everything of it afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "serve.sh"
    script.write_text(f"#!/bin/sh\nwhile :; do\n  {shlex.join(argv)}\n  sleep 0.1\ndone\n")
    script.chmod(0o755)
    mark, secret = f"live-{os.getpid()}-{port}", f"hf_{os.urandom(8).hex()}"
    base = {"PATH": os.environ["PATH"], "HOME": str(folder), MARK: mark, "HF_TOKEN": secret}
    live = Live(folder, script, port, mark, secret)
    with (folder / "serve.log").open("ab") as log:
        process = subprocess.Popen(
            ["sh", "serve.sh"], cwd=folder, env={**base, **(env or {})}, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        live.wait(patience_s)
        yield live
    finally:
        live.end()
        process.wait()


def _pids() -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            yield int(name)


def is_marked(pid: int, mark: str) -> bool:
    try:
        return f"{MARK}={mark}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    except OSError:
        return []


def environ_of(pid: int) -> dict[str, str]:
    items = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(item.split("=", 1) for item in items if "=" in item)


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
