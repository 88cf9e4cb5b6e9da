"""What state safety costs: `python benchmarks/state_safety.py [--runs 15] [--on DIR]` (root, for the file systems).

* Apply and revert of ten files of 80 kB, with every sync and with none, in turn: what the syncs cost for each applied
  file (bar: the whole synced apply takes at most 10 ms a file).
* The same for two files on each file system, with the exchange of names and without, and on a disk that is full.
* The proof of 5,000 files and 100 MB, warm, as one request to a real agent, beside reading and hashing the same bytes
  in one thread (bar: 300 ms).

Medians. Ratios compare what one run of this script took side by side. Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import base64
import errno
import hashlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from orchestrator.agent.errors import AgentError  # noqa: E402
from orchestrator.agent.fs import Fs  # noqa: E402
from orchestrator.agent.tree import Tree  # noqa: E402
from orchestrator.core.model import Route  # noqa: E402
from orchestrator.hosts import connect  # noqa: E402
from tests.faults import disks  # noqa: E402

KINDS = ("ext4", "xfs", "btrfs", "overlay", "tmpfs")
FILE_BYTES = 80_000
FILE_BAR_MS, PROOF_BAR_MS = 10.0, 300.0
PROOF_FILES, PROOF_BYTES = 5000, 20_000
HOLDER = {"token": "bench", "name": "bench", "pid": os.getpid()}


class Unsynced(Fs):
    """The same protocol without a single sync: what safety is held against."""

    def fsync(self, fd: int) -> None:
        return

    def fdatasync(self, fd: int) -> None:
        return

    def sync_dir(self, path: str) -> None:
        return


class Old(Fs):
    """As a kernel or a file system without the exchange of names answers."""

    def exchange(self, one: str, other: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), other)

    def rename_noreplace(self, old: str, new: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), new)


# ---------------------------------------------------------------- apply and revert


def plant(root: Path, count: int) -> list[dict[str, Any]]:
    """A tree of `count` files, and a change of one byte in each."""
    root.mkdir()
    changes = []
    for number in range(count):
        old = b"x = 1  # filler\n" * (FILE_BYTES // 16)
        path = root / f"file{number}.py"
        path.write_bytes(old)
        changes.append(
            {
                "path": str(path),
                "kind": "replace",
                "before_sha256": hashlib.sha256(old).hexdigest(),
                "content_b64": base64.b64encode(old.replace(b"1", b"2", 1)).decode(),
                "mode": None,
            }
        )
    return changes


@contextmanager
def opened(root: Path, fs: Fs) -> Iterator[Tree]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    tree = Tree.open(fs, str(root), (), HOLDER, 600.0, boot_id=boot, kill_agent=lambda _: False)
    try:
        yield tree
    finally:
        tree.leave()


def once(tree: Tree, changes: list[dict[str, Any]], name: str) -> tuple[float, float]:
    """Seconds of one apply and one revert."""
    start = time.perf_counter()
    tree.apply(name, changes)
    middle = time.perf_counter()
    tree.revert(name, "bench")
    return middle - start, time.perf_counter() - middle


def cost_of_syncs(folder: Path, runs: int) -> tuple[list[str], bool]:
    """Milliseconds a file with and without syncs, and whether the bar holds."""
    count = 10
    times: dict[str, list[tuple[float, float]]] = {"synced": [], "unsynced": []}
    ways: dict[str, Callable[[], Fs]] = {"synced": Fs, "unsynced": Unsynced}
    changes = {name: plant(folder / name, count) for name in ways}
    for number in range(runs):
        for name in sorted(ways, reverse=bool(number % 2)):
            with opened(folder / name, ways[name]()) as tree:
                times[name].append(once(tree, changes[name], f"t{number}"))
    cells = {}
    for name, seen in times.items():
        cells[name] = [statistics.median(one[side] for one in seen) * 1000 / count for side in (0, 1)]
    rows = ["| | apply, ms a file | revert, ms a file |", "|---|---|---|"]
    rows += [f"| {name} | {cell[0]:.2f} | {cell[1]:.2f} |" for name, cell in cells.items()]
    ratio = [cells["synced"][side] / cells["unsynced"][side] for side in (0, 1)]
    rows.append(f"| ratio | {ratio[0]:.2f} | {ratio[1]:.2f} |")
    return rows, cells["synced"][0] <= FILE_BAR_MS


def file_systems(work: Path, runs: int) -> tuple[list[str], bool]:
    """A row for each file system and way; whether everything came back where a full disk must not matter."""
    rows = ["| file system | way | apply, ms | revert, ms | revert with 0 bytes free |", "|---|---|---|---|---|"]
    holds = True
    for kind in KINDS:
        if reason := disks.why_not(kind):
            rows.append(f"| {kind} | – | skipped: {reason} | | |")
            continue
        for way, make in (("exchange", Fs), ("links", Old)):
            base = work / f"{kind}-{way}"
            base.mkdir()
            with disks.any_disk(kind, base) as point:
                cells, full = on_one(point, make(), runs)
            holds &= full == "ok" or kind == "btrfs"
            rows.append(f"| {kind} | {way} | {cells[0]:.1f} | {cells[1]:.1f} | {full} |")
    return rows, holds


def on_one(point: Path, fs: Fs, runs: int) -> tuple[list[float], str]:
    changes = plant(point / "tree", 2)
    with opened(point / "tree", fs) as tree:
        tree.snapshot()
        seen = [once(tree, changes, f"t{number}") for number in range(runs)]
        tree.apply("full", changes)
        ballast = disks.fill(point)
        try:
            tree.revert("full", "bench")
            full = "ok"
        except AgentError as error:
            ballast.unlink()
            state = tree.recover_files("there is room again")["state"]
            full = f"{error.what}; {state} once there is room"
        ballast.unlink(missing_ok=True)
        if not tree.verify()["clean"]:
            raise SystemExit("the tree is not as found")
        tree.close()
    return [statistics.median(one[side] for one in seen) * 1000 for side in (0, 1)], full


# ---------------------------------------------------------------- the proof


def proof(folder: Path, runs: int) -> tuple[list[str], bool]:
    """`verify` of a large tree over a connection to a real agent, and plain hashing of the same files, in turn."""
    root = folder / "large"
    for number in range(PROOF_FILES):
        path = root / f"d{number % 100}" / f"f{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(number.to_bytes(4, "big") * (PROOF_BYTES // 4))
    proofs, pings, plain = [], [], []
    with connect(Route(python=sys.executable), name="bench") as connection:
        connection.call("open", {"root": str(root), "guarded": [], "holder": HOLDER, "lease_s": 600.0})
        connection.call("snapshot", {}, timeout_s=120.0)
        for _ in range(runs):
            began = time.perf_counter()
            reply = connection.call("verify", {})
            proofs.append(time.perf_counter() - began)
            if not reply["clean"]:
                raise SystemExit("the large tree is not as found")
            pings.append(timed(lambda: connection.call("beat", {})))
            plain.append(timed(lambda: read_all(root)))
        connection.call("close", {})
        connection.call("forget", {"tree": str(root)})
    cells = [statistics.median(one) * 1000 for one in (proofs, plain, pings)]
    best = min(proofs) * 1000
    rows = [
        "| files | bytes | requests | proof, ms | least, ms | read and hash only, ms | ratio | a round trip, ms |",
        "|---|---|---|---|---|---|---|---|",
        f"| {PROOF_FILES} | {PROOF_FILES * PROOF_BYTES // 10**6} MB | 1 | {cells[0]:.0f} | {best:.0f} | "
        f"{cells[1]:.0f} | {cells[0] / cells[1]:.2f} | {cells[2]:.2f} |",
    ]
    return rows, cells[0] <= PROOF_BAR_MS


def read_all(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for name in names:
            with (Path(folder) / name).open("rb") as file:
                hashlib.file_digest(file, "sha256")


def timed(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--on", type=Path, help="a directory on the disk to be measured; the temporary one by default")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="orc-state-safety-", dir=options.on))
    late = []
    try:
        for title, part, bar in (
            (f"Syncs, on {fs_type(work)}", cost_of_syncs, f"{FILE_BAR_MS:g} ms a file, applied"),
            ("File systems, two files of 80 kB", file_systems, "all but btrfs go back with 0 bytes free"),
            ("Proof, warm", proof, f"{PROOF_BAR_MS:g} ms"),
        ):
            rows, holds = part(work, options.runs)
            print(
                f"**{title}** (bar: {bar}: {'holds' if holds else 'MISSED'})\n\n" + "\n".join(rows) + "\n", flush=True
            )
            late += [] if holds else [title]
    finally:
        shutil.rmtree(work)
    print(f"load while it ran: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    return 1 if late else 0


def fs_type(path: Path) -> str:
    mounts = [m for m in Fs().mounts() if str(path).startswith(m.point.rstrip("/") + "/")]
    return max(mounts, key=lambda m: len(m.point)).type


if __name__ == "__main__":
    raise SystemExit(main())
