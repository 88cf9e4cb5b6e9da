"""Compiled Python is state: where it lies, what it claims, and how the entries of ours are dropped.

An interpreter trusts a `.pyc` when the whole second of the source's mtime and its size agree, so every version of a
file needs a second of its own.
"""

from __future__ import annotations

import os
import re
import struct
from typing import Iterable, List, Set, Tuple

from orchestrator.agent.fs import Fs

_NS = 1_000_000_000
_HEADER = struct.Struct("<4sIII")  # magic, flags, mtime or half a hash, size


def compiled_names(names: Iterable[str], source: str) -> List[str]:
    """Those of `names` that an interpreter takes for compiled forms of `source` (`a.cpython-311.pyc`)."""
    stem, extension = os.path.splitext(os.path.basename(source))
    if extension != ".py":
        return []
    pattern = re.compile(re.escape(stem) + r"\.[^.]+(\.opt-[0-9A-Za-z]+)?\.pyc", re.DOTALL)
    return [name for name in names if pattern.fullmatch(name)]


def beside(fs: Fs, source: str) -> List[str]:
    """Compiled forms in the `__pycache__` next to the source."""
    folder = os.path.join(os.path.dirname(source), "__pycache__")
    return [os.path.join(folder, name) for name in compiled_names(_names(fs, folder), source)]


def below_prefix(fs: Fs, prefix: str, source: str) -> List[str]:
    """The names that an interpreter takes for compiled forms of `source`, like `a.cpython-311.opt-1.pyc`."""
    folder = os.path.join(prefix, os.path.dirname(source).lstrip("/"))
    return [os.path.join(folder, name) for name in compiled_names(_names(fs, folder), source)]


def drop_below_prefix(fs: Fs, prefix: str, sources: Iterable[str]) -> List[str]:
    """Removes the compiled forms of these sources below the prefix; returns what was removed."""
    dropped = []
    for source in sorted(set(sources)):
        for path in below_prefix(fs, prefix, source):
            fs.unlink(path)
            dropped.append(path)
    return dropped


def seconds_claimed(fs: Fs, compiled: Iterable[str]) -> Set[int]:
    """The source seconds that these compiled files were made for."""
    headers = [_header(fs, path) for path in compiled]
    return {second for flags, second in headers if not flags & 1}


def unchecked(fs: Fs, compiled: Iterable[str]) -> List[str]:
    """Those that an interpreter uses without ever looking at the source (PEP 552, flags 1)."""
    return [path for path in compiled if _header(fs, path)[0] & 3 == 1]


def free_mtime_ns(now_ns: int, taken: Set[int]) -> int:
    """Now, moved on by whole seconds until its second is not taken. Times wrap at 2^32 seconds in a `.pyc`."""
    while now_ns // _NS & 0xFFFFFFFF in taken:
        now_ns += _NS
    return now_ns


def second_of(mtime_ns: int) -> int:
    return mtime_ns // _NS & 0xFFFFFFFF


def _header(fs: Fs, path: str) -> Tuple[int, int]:
    fd = fs.open(path, os.O_RDONLY)
    try:
        raw = fs.read(fd, _HEADER.size)
    finally:
        fs.close(fd)
    if len(raw) < _HEADER.size:  # cut short: an interpreter ignores it
        return 0, -1
    _, flags, second, _ = _HEADER.unpack(raw)
    return flags, second


def _names(fs: Fs, folder: str) -> List[str]:
    try:
        return fs.names(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
