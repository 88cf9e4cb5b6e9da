"""A farm of processes that are not ours and look as if they were. Real ones, all of them asleep."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SLEEP = "import sys; print('up', flush=True); sys.stdin.read()"
HOLD = "import sys; held = [open(p) for p in sys.argv[1:]]; print('up', flush=True); sys.stdin.read()"
SERVE = (
    "import os, socket, sys; held = open(sys.argv[1]); s = socket.create_server(('127.0.0.1', int(sys.argv[2])));"
    "pid = os.fork();\n"
    "if pid == 0: os.execv('/bin/sleep', ['sglang::scheduler_TP0', '600'])\n"
    "print(pid, flush=True); sys.stdin.read(); os.kill(pid, 9)"
)


@dataclass
class Farm:
    """`decoys`: name → pid, never to be ended under `ours`. `old_server`: pids that `engine` may end, no others."""

    root: Path
    port: int
    python: str
    decoys: dict[str, int] = field(default_factory=dict)
    old_server: list[int] = field(default_factory=list)
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def device(self) -> str:
        return str(self.root / "dev" / "nvidia0")

    def is_alive(self, name: str) -> bool:
        return is_alive(self.decoys[name])


def is_alive(pid: int) -> bool:
    """And not defunct."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@contextmanager
def planted(root: Path) -> Iterator[Farm]:
    """Every decoy is up when this is entered, and gone when it is left."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
    tree = root / "tree" / "sglang"
    (tree / "test").mkdir(parents=True)
    (root / "dev").mkdir()
    (root / "venv" / "bin").mkdir(parents=True)
    python = root / "venv" / "bin" / "python"
    python.symlink_to(os.path.realpath(sys.executable))
    for path in (root / "dev" / "nvidia0", tree / "server_args.py"):
        path.write_text("x\n")
    suite = tree / "test" / "run_suite.py"
    suite.write_text(SLEEP)
    farm = Farm(root, port, str(python))
    with ExitStack() as stack:
        _plant(farm, stack, suite, tree)
        yield farm


def _plant(farm: Farm, stack: ExitStack, suite: Path, tree: Path) -> None:
    def start(name: str, argv: list[str], **more: object) -> str:
        process = stack.enter_context(_running(argv, **more))
        assert process.stdout is not None
        farm.decoys[name] = process.pid
        farm.running.append(process)
        return process.stdout.readline()

    other = {**os.environ, "ORC_RUN_ID": "orc-theirs-1", "TMPDIR": "/tmp"}
    start("a test runner whose path holds sglang", [sys.executable, str(suite)])
    start("a process with a rank's title", ["sglang::scheduler_TP0", "-c", SLEEP], executable=sys.executable)
    start("a foreign holder of the GPU", [sys.executable, "-c", HOLD, farm.device])
    start("an editor open on the tree", [sys.executable, "-c", HOLD, str(tree / "server_args.py")], cwd=tree)
    start("a notebook of the target's interpreter", [farm.python, "-c", SLEEP])
    start("our run id among the arguments", [sys.executable, "-c", SLEEP, "ORC_RUN_ID=orc-ours-1"])
    start("a run id that begins like ours", [sys.executable, "-c", SLEEP], env={**other, "ORC_RUN_ID": "orc-ours-10"})
    start("a process of another run", [sys.executable, "-c", SLEEP], env=other)
    start("a session of its own", [sys.executable, "-c", SLEEP], start_new_session=True)
    rank = start("an old server of another run", [farm.python, "-c", SERVE, farm.device, str(farm.port)], env=other)
    farm.decoys["its rank"] = int(rank)
    farm.old_server = [farm.decoys["an old server of another run"], int(rank)]


@contextmanager
def _running(argv: list[str], **more: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(  # type: ignore[call-overload]
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more
    )
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        finally:
            process.kill()
            process.wait(10)
            process.stdout.close()
