"""How soon the holder of a host that was cut off has put it back: `python benchmarks/reconnect.py [--times 20]` (root).

A controller applies a change of two files, launches a server of one process that never ends by itself, and is killed
while the cable to the far host's sshd, 25 ms each way, is cut: nobody there is told. The cable is mended, and a second
controller with the same token comes back: connect, open, recover (which ends the server without grace, reverts and
proves). The clock runs from the call of connect, libraries loaded, to the reply that says clean. Bar: 1 s, each time.

The machine's own speed is in it: the same is done without delay as well. Exit code 1 when the bar is missed.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

from tests import netlab, sshd  # noqa: E402
from tests.agent.client import is_running  # noqa: E402
from tests.agent.scene import picture  # noqa: E402

BAR_S = 1.0
SERVER = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"


# ---------------------------------------------------------------- in the near namespace


def leave(route: str, root: str) -> None:
    """The first controller: everything in place, then it waits to be killed."""
    connection = _connect(route)
    connection.call("open", _request(root, lease_s=120.0))
    connection.call("snapshot", {})
    files = [_change(path) for path in sorted(Path(root).glob("*.py"))]
    connection.call("apply", {"txn": "t", "files": files})
    env = {"PATH": os.environ["PATH"]}
    argv = [sys.executable, "-u", "-c", SERVER]
    given = {"launch_id": "l", "argv": argv, "env": env, "cwd": "/", "pycache": False, "grace_s": 10.0}
    print(connection.call("launch", given)["pid"], flush=True)
    sys.stdin.readline()


def come_back(route: str, root: str) -> None:
    """The second one: says that it is ready, waits for the word, and prints seconds as JSON."""
    import paramiko  # noqa: F401 - loaded before the clock runs
    import tenacity  # noqa: F401

    import orchestrator.controller.run
    import orchestrator.hosts.ssh  # noqa: F401

    print("loaded", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    connection = _connect(route)
    connected = time.monotonic()
    opening = connection.submit("open", _request(root, lease_s=60.0))
    recovering = connection.submit("recover", {})
    opened = opening.result(60)
    recovered = recovering.result(60)
    done = time.monotonic()
    state = {"open": bool(opened["open"]), "launch": bool(opened["launch"]), "clean": recovered["verify"]["clean"]}
    pings = []
    for _ in range(5):
        start = time.monotonic()
        connection.call("beat", {})
        pings.append(time.monotonic() - start)
    connection.call("close", {})
    connection.close()
    times = {"connect": connected - began, "recover": done - connected, "total": done - began}
    print(json.dumps({**times, "ping": statistics.median(pings), **state, "state": recovered["state"]}))


def _connect(route: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - its module is loaded by the callers
    from orchestrator.core.model import Route
    from orchestrator.hosts import connect

    return connect(Route.model_validate_json(route), name="far")


def _request(root: str, *, lease_s: float) -> dict[str, object]:
    holder = {"token": "bench", "name": "bench", "pid": os.getpid()}
    return {"root": root, "guarded": [], "holder": holder, "lease_s": lease_s}


def _change(path: Path) -> dict[str, object]:
    old = path.read_bytes()
    new = base64.b64encode(old.replace(b"x = 1", b"x = 2", 2)).decode()
    before = hashlib.sha256(old).hexdigest()
    return {"path": str(path), "kind": "replace", "before_sha256": before, "content_b64": new, "mode": None}


# ---------------------------------------------------------------- from outside


@contextmanager
def near(lab: netlab.Cable, part: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    argv = [*lab.at(lab.near), sys.executable, __file__, part, *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


def once(lab: netlab.Cable, server: sshd.Sshd, base: Path, delay_ms: float) -> dict[str, float]:
    """One cut and one return; raises SystemExit when anything is not as before."""
    root = base / "tree"
    root.mkdir(parents=True)
    for number, size in enumerate((77_000, 120_000)):
        (root / f"file{number}.py").write_bytes(b"x = 1  # filler\n" * (size // 16))
    before = picture(str(root))
    route = server.route().model_dump_json()
    with near(lab, "leave", route, str(root)) as first:
        assert first.stdout is not None
        pid = int(first.stdout.readline())
        if not is_running(pid) or picture(str(root)) == before:
            raise SystemExit("nothing was changed")
        with near(lab, "come-back", route, str(root)) as second:
            assert second.stdout is not None
            assert second.stdout.readline() == "loaded\n"
            lab.say("drop")
            first.kill()
            first.wait()
            lab.say(str(delay_ms))
            out, _ = second.communicate("go\n", timeout=60)
    seen = json.loads(out)
    if seen["state"] != "clean" or not (seen["clean"] and seen["open"] and seen["launch"]):
        raise SystemExit(f"not as expected: {seen}")
    if is_running(pid) or picture(str(root)) != before:
        raise SystemExit("the host is not as it was")
    return {name: seen[name] for name in ("connect", "recover", "total", "ping")}


def row(name: str, seen: list[dict[str, float]]) -> str:
    totals = sorted(one["total"] for one in seen)
    parts = [statistics.median(one[part] for one in seen) for part in ("ping", "connect", "recover")]
    trips = (statistics.median(totals)) / parts[0]
    late = sum(total > BAR_S for total in totals)
    return (
        f"| {name} | {len(seen)} | {parts[0] * 1000:.1f} ms | {parts[1]:.2f} | {parts[2]:.2f} | "
        f"{statistics.median(totals):.2f} | {totals[0]:.2f} | {totals[-1]:.2f} | {late} | {trips:.1f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    if reason := netlab.why_not() or sshd.why_not():
        raise SystemExit(reason)
    print(
        "| one way | times | round trip | connect (s) | open and recover (s) | together (s) | least | most | over 1 s |"
        " in round trips |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    late = 0
    with tempfile.TemporaryDirectory(prefix="orc-reconnect-") as folder, netlab.cable(0) as lab:
        server = sshd.start_sshd(Path(folder) / "far", address=netlab.FAR_ADDRESS, prefix=lab.at(lab.far))
        for delay_ms in (0.0, 25.0):
            lab.say(str(delay_ms))
            seen = [
                once(lab, server, Path(folder) / f"{delay_ms}-{number}", delay_ms) for number in range(options.times)
            ]
            print(row(f"{delay_ms:g} ms", seen), flush=True)
            late += sum(one["total"] > BAR_S for one in seen)
        server.stop()
    print(f"\nload while it ran: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    return 1 if late else 0


PARTS = {"leave": leave, "come-back": come_back}

if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] in PARTS:
        PARTS[sys.argv[1]](*sys.argv[2:])
    else:
        raise SystemExit(main())
