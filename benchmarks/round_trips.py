"""What the controller costs, in round trips and milliseconds: `python benchmarks/round_trips.py [--experiment]` (root).

Three measurements, each over a loopback sshd and over a cable of 25 ms each way between two network namespaces:

* warm: apply + verify + revert + verify of two files on an open connection (≤ 2 round trips + 15 ms);
* cold: the same from process start, the agent cached on the host, and on a first visit (≤ 14 round trips + 1.0 s);
* with `--experiment`: a whole run on the lab, and what it adds to the server's own start, gate, measurement and stop
  for each launch (≤ 0.5 s locally, ≤ 1 s over SSH, ≤ 2 s at 50 ms round trips).

A round trip is the median of 21 pings of the agent in the same process. Figures are medians of `--runs`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SIZES = (77_000, 120_000)
BEGAN = "ORC_BENCH_BEGAN"


def make_tree(root: Path) -> list[Path]:
    """Two source files of the campaign's sizes."""
    package = root / "pkg"
    package.mkdir(parents=True)
    files = []
    for number, size in enumerate(SIZES):
        path = package / f"file{number}.py"
        path.write_bytes(b"x = 1  # filler\n" * (size // 16))
        files.append(path)
    return files


def changes(files: list[Path]) -> list[dict[str, object]]:
    """Two lines changed in each, as a run sends them."""
    from orchestrator.controller.splices import file_change
    from orchestrator.controller.treatment import FileEdit

    contents = [(str(path), path.read_bytes()) for path in files]
    return [file_change(FileEdit(path, data, data.replace(b"x = 1", b"x = 2", 2))) for path, data in contents]


def child(route: dict[str, object], root: Path) -> None:
    """One cold job, then pings and warm jobs on the same connection; prints one JSON object."""
    import orchestrator.controller.run  # the libraries a real command loads
    import orchestrator.ledger.store  # noqa: F401
    from orchestrator.core.model import Route
    from orchestrator.hosts import connect

    files = sorted((root / "pkg").glob("*.py"))
    connection = connect(Route.model_validate(route), name="bench")
    holder = {"token": "bench", "name": "bench", "pid": os.getpid()}
    opened = connection.submit("open", {"root": str(root / "pkg"), "guarded": [], "holder": holder, "lease_s": 60})
    snapshot = connection.submit("snapshot", {})
    job(connection, files, "cold")
    opened.result(), snapshot.result()
    cold_s = time.time() - float(os.environ[BEGAN])
    traffic = connection.traffic
    pings = [timed(lambda: connection.call("beat", {})) for _ in range(21)]
    warm = [timed(lambda n=n: job(connection, files, f"warm{n}")) for n in range(11)]
    connection.call("close", {})
    connection.close()
    figures = {"rtt": statistics.median(pings), "cold": cold_s, "warm": statistics.median(warm)}
    print(json.dumps({**figures, "bytes_sent": traffic.bytes_sent, "archive_sent": traffic.archive_sent}))


def job(connection: object, files: list[Path], txn: str) -> None:
    connection.call("apply", {"txn": txn, "files": changes(files)})  # type: ignore[attr-defined]
    connection.call("revert", {"txn": txn, "reason": "bench"})  # type: ignore[attr-defined]


def timed(act: object) -> float:
    start = time.perf_counter()
    act()  # type: ignore[operator]
    return time.perf_counter() - start


def measure(
    route: dict[str, object], prefix: tuple[str, ...], runs: int, *, cache: Path | None = None
) -> dict[str, float]:
    """Medians of `runs`. With `cache`, the agent's cache on the host, every run is a first visit."""
    results = []
    for _ in range(runs):
        if cache is not None:
            shutil.rmtree(cache, ignore_errors=True)
        root = Path(tempfile.mkdtemp(prefix="orc-bench-"))
        make_tree(root)
        command = [*prefix, sys.executable, __file__, "--child", json.dumps(route), str(root)]
        done = subprocess.run(
            command, env={**os.environ, BEGAN: str(time.time())}, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        results.append(json.loads(done.stdout))
        shutil.rmtree(root)
    return {key: statistics.median(r[key] for r in results) for key in ("rtt", "cold", "warm", "bytes_sent")}


def experiment(route: dict[str, object], prefix: tuple[str, ...]) -> float:
    """Seconds that the controller adds to each launch of a whole run on a lab reached by `route`."""
    from orchestrator.lab import create

    home = Path(tempfile.mkdtemp(prefix="orc-bench-"))
    lab = create(home / "lab")
    inventory = lab.hosts_file.read_text().replace("route: local", f"route: {json.dumps(route)}")
    lab.hosts_file.write_text(inventory)
    words = [sys.executable, "-m", "orchestrator.cli.main", "run", str(lab.playbook_file), "--json"]
    words += ["--hosts", str(lab.hosts_file), "--state", str(home / "state")]
    done = subprocess.run([*prefix, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    summary = json.loads(done.stdout)
    shutil.rmtree(home)
    return sum(summary["ours_s"].values()) / summary["launches"]


def line(name: str, figures: dict[str, float], added: float | None) -> str:
    rtt = figures["rtt"]
    warm, cold = figures["warm"] - 2 * rtt, figures["cold"] - 14 * rtt
    shown = "–" if added is None else f"{added:.2f} s"
    return (
        f"| {name} | {rtt * 1000:.2f} ms | {figures['warm'] * 1000:.1f} ms | 2 RTT {warm * 1000:+.1f} ms | "
        f"{figures['cold']:.2f} s | 14 RTT {cold:+.2f} s | {figures['bytes_sent'] / 1000:.0f} kB | {shown} |"
    )


def main() -> None:
    from tests.netlab import FAR_ADDRESS, cable
    from tests.sshd import start_sshd

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--experiment", action="store_true")
    parser.add_argument("--child", nargs=2, metavar=("ROUTE", "ROOT"))
    options = parser.parse_args()
    if options.child:
        child(json.loads(options.child[0]), Path(options.child[1]))
        return
    print("| route | round trip | warm | against | cold | against | sent, cold | added a launch |")
    print("|---|---|---|---|---|---|---|---|")
    base = Path(tempfile.mkdtemp(prefix="orc-bench-sshd-"))
    local: dict[str, object] = {}
    added = experiment(local, ()) if options.experiment else None
    print(line("local", measure(local, (), options.runs), added))
    server = start_sshd(base / "near")
    route = server.route().model_dump(mode="json", exclude_unset=True)
    added = experiment(route, ()) if options.experiment else None
    print(line("ssh, loopback", measure(route, (), options.runs), added))
    first = measure(route, (), options.runs, cache=server.home / ".cache" / "orchestrator")
    print(line("the same, first visit", first, None))
    server.stop()
    with cable(25) as lab:
        server = start_sshd(base / "far", address=FAR_ADDRESS, prefix=lab.at(lab.far))
        route = server.route().model_dump(mode="json", exclude_unset=True)
        added = experiment(route, lab.at(lab.near)) if options.experiment else None
        print(line("ssh, 25 ms each way", measure(route, lab.at(lab.near), options.runs), added))
        first = measure(route, lab.at(lab.near), options.runs, cache=server.home / ".cache" / "orchestrator")
        print(line("the same, first visit", first, None))
        server.stop()
    shutil.rmtree(base)


if __name__ == "__main__":
    main()
