"""What a launch is, to the noise: the treatment it really reads, and how often that treatment completed before.

The counts live in `run/launches.json`: `{"started": N, "completed": {treatment: N}}`. An aborted launch uses none up.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Differ from launch to launch without changing what is computed.
FLAGS_WITHOUT_EFFECT = frozenset({"port", "host", "weight_version", "nccl_port", "log_level", "served_model_name"})
VARIABLES = ("NCCL_", "SGLANG_")


def treatment_digest(root: Path, flags: Mapping[str, Any], env: Mapping[str, str], source: Path) -> str:
    """A digest of the resolved flags, the NCCL and SGLang variables, and every Python file below `source`.

    Where the lab lies does not count: paths below `root` are taken relative to it.
    """
    read = {
        "flags": {k: v for k, v in sorted(flags.items()) if k not in FLAGS_WITHOUT_EFFECT},
        "env": {k: v for k, v in sorted(env.items()) if k.startswith(VARIABLES) and not _is_place(k)},
        "source": source_digest(source),
    }
    text = json.dumps(read, sort_keys=True, default=str).replace(f"{root}/", "")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def source_digest(source: Path) -> str:
    """Names and contents of the Python files below `source`; compiled files do not count."""
    whole = hashlib.sha256()
    for path in _python_files(str(source)):
        with open(path, "rb") as file:  # noqa: PTH123 - a Path for each file costs more than the digest
            whole.update(f"{path[len(str(source)) :]}\0".encode())
            whole.update(hashlib.sha256(file.read()).digest())
    return whole.hexdigest()


def start(root: Path) -> int:
    """The number of this launch in the life of the lab, counted from 1."""

    def count(book: dict[str, Any]) -> int:
        book["started"] += 1
        return int(book["started"])

    return _change(root, count)


def repetition(root: Path, treatment: str) -> int:
    """How many launches with this treatment have completed."""
    return _change(root, lambda book: int(book["completed"].get(treatment, 0)))


def complete(root: Path, treatment: str) -> None:
    """This launch was used to its end."""

    def count(book: dict[str, Any]) -> int:
        book["completed"][treatment] = int(book["completed"].get(treatment, 0)) + 1
        return 0

    _change(root, count)


def _change(root: Path, change: Callable[[dict[str, Any]], int]) -> int:
    path = root / "run" / "launches.json"
    with _locked(path.with_suffix(".lock")):
        book = json.loads(path.read_text(encoding="ascii")) if path.exists() else {"started": 0, "completed": {}}
        before = json.dumps(book)
        result = change(book)
        after = json.dumps(book)
        if after != before:
            draft = path.with_suffix(".new")
            draft.write_text(after, encoding="ascii")
            draft.replace(path)
    return result


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_place(name: str) -> bool:
    """A cache directory says where something is kept, not what is computed."""
    return name.endswith(("_DIR", "_PATH", "_BASE"))


def _python_files(top: str) -> list[str]:
    found = []
    for folder, folders, names in os.walk(top):
        folders[:] = [f for f in folders if f != "__pycache__"]
        found += [f"{folder}/{name}" for name in names if name.endswith(".py")]
    return sorted(found)
