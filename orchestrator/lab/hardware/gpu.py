"""GPUs as files: a rank holds `dev/nvidiaN` open; what it allocated is noted in `run/gpu/PID.json`.

A note counts only while its process, by pid and start time, holds the device file open. So memory comes back when a
process ends, however it ends, and a process that merely holds the file shows as a stranger.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Holder:
    """A live process that holds a device file, with its memory on that GPU."""

    index: int
    pid: int
    memory_mib: int


def visible(env: Mapping[str, str], count: int) -> list[int]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves of `count`, in its order, up to the first entry it cannot read."""
    text = env.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(range(count))
    chosen = []
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) >= count:
            break
        chosen.append(int(part))
    return chosen


class Device:
    """An open GPU. Keep it: closing the file gives the GPU back."""

    def __init__(self, root: Path, index: int) -> None:
        self._root = root
        self.index = index
        self._fd = os.open(root / "dev" / f"nvidia{index}", os.O_RDWR)

    def allocate(self, memory_mib: float) -> None:
        """Note how much memory this process holds on this GPU, in all."""
        note = {"start": _start_ticks(os.getpid()), "memory": {str(self.index): round(memory_mib)}}
        target = self._root / "run" / "gpu" / f"{os.getpid()}.json"
        draft = target.with_suffix(".new")
        draft.write_text(json.dumps(note), encoding="ascii")
        draft.replace(target)


def holders(root: Path, *, stranger_mib: int, proc: Path = Path("/proc")) -> list[Holder]:
    """Every live process that holds a device file of this lab open, ordered by GPU and pid."""
    devices = str(root / "dev") + "/nvidia"
    found = []
    for pid in _pids(proc):
        note = _note(root, pid)
        for target in _open_files(proc, pid):
            index = target.removeprefix(devices)
            if index != target and index.isdecimal():
                found.append(Holder(int(index), pid, note.get(index, stranger_mib)))
    return sorted(set(found), key=lambda h: (h.index, h.pid))


def forget_the_dead(root: Path) -> None:
    """Remove the notes of processes that are gone."""
    for path in (root / "run" / "gpu").glob("*.json"):
        if not path.stem.isdecimal() or not _note(root, int(path.stem)):
            path.unlink(missing_ok=True)


def _note(root: Path, pid: int) -> dict[str, int]:
    try:
        note = json.loads((root / "run" / "gpu" / f"{pid}.json").read_text(encoding="ascii"))
        is_same = note["start"] == _start_ticks(pid)
    except (OSError, ValueError, IndexError):
        return {}  # it never noted anything, or ended while we looked
    return dict(note["memory"]) if is_same else {}


def _start_ticks(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[19])


def _pids(proc: Path) -> Iterator[int]:
    return (int(name) for name in os.listdir(proc) if name.isdecimal())  # noqa: PTH208 - names are enough


def _open_files(proc: Path, pid: int) -> set[str]:
    files = set()
    try:
        for fd in os.listdir(proc / str(pid) / "fd"):  # noqa: PTH208 - names are enough
            files.add(os.readlink(f"{proc}/{pid}/fd/{fd}"))  # noqa: PTH115 - no Path per descriptor of every process
    except OSError:
        return files  # it ended, closed the file, or belongs to somebody else: what was seen counts
    return files
