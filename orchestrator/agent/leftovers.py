"""What a server leaves behind outside its tree: its temporary directory and shared memory.

`psm_*` and `sem.mp-*` are names that any Python program may use, so a file in /dev/shm is ours only when one of our
processes was seen to map it, or when an inference server's kind of name holds the pid of one, and nobody alive maps or
holds it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat as stat_bits
import sys
from typing import Callable, Dict, Iterable, List, NamedTuple, Set, Tuple

from orchestrator.agent import holders, processes

SHM = "/dev/shm"  # noqa: S108 - looked at, not written
_TRIES = 4  # a file is made some time before it is mapped; a stranger's is not asked about for ever
_SUSPECTS = re.compile(r"^(psm_|sem\.mp-|sgl|vllm|nccl|cuda|torch_)", re.IGNORECASE)


class Swept(NamedTuple):
    removed: List[str]
    kept: List[str]


def is_suspect(name: str) -> bool:
    """Whether a segment has an engine's kind of name. Others may use such names too."""
    return _SUSPECTS.match(name) is not None


def shared_memory(pids: Iterable[int]) -> Set[int]:
    """Inodes of everything in /dev/shm that these processes map now. Not names: `sem_open` maps a file under a name
    of the moment, and links it to the one that stays."""
    found: Set[int] = set()
    for pid in pids:
        try:
            found |= {mapping.ino for mapping in holders.read_maps(pid) if mapping.path.startswith(SHM + "/")}
        except OSError as error:
            if not processes.is_gone(error) and error.errno not in (errno.EACCES, errno.EPERM):
                raise
    return found


class NewFiles:
    """Tells when a look at the maps is worth its cost: when /dev/shm has a file that is not explained yet."""

    def __init__(self) -> None:
        self._tries: Dict[int, int] = {}  # inode → how often it was asked about

    def are_there(self, explained: Set[int]) -> bool:
        found = False
        for inode in _inodes() - explained:
            self._tries[inode] = self._tries.get(inode, 0) + 1
            found = found or self._tries[inode] <= _TRIES
        return found


def _inodes() -> Set[int]:
    try:
        with os.scandir(SHM) as entries:
            return {entry.inode() for entry in entries}
    except FileNotFoundError:
        return set()


def sweep(*, tmp: str, mapped: Set[int], pids: Set[int], since_s: float) -> Swept:
    """After the end of a launch. `mapped`: inodes its processes were seen to map; `since_s`: epoch of the launch."""
    swept = Swept([], [])
    if tmp:
        _remove_tmp(tmp, swept)
    candidates = _candidates(since_s)
    if not candidates:
        return swept
    held, blind = _held(candidates)
    for path, seen in sorted(candidates.items()):
        suspect = is_suspect(os.path.basename(path))
        named = suspect and any(int(number) in pids for number in re.findall(r"\d+", path))
        ours = seen.st_ino in mapped or named
        private = not seen.st_mode & 0o077  # nobody else but root can have it mapped where we cannot look
        if ours and path not in held and (private or not blind):
            _remove(path, os.unlink, swept)
        elif ours or suspect:
            swept.kept.append(path)
    return swept


def _remove_tmp(tmp: str, swept: Swept) -> None:
    """The directory that the journal names for this launch, if it is still a directory of our own."""
    try:
        seen = os.lstat(tmp)
    except FileNotFoundError:
        return
    if not stat_bits.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
        swept.kept.append(tmp)
        return
    _remove(tmp, shutil.rmtree, swept)


def _remove(path: str, remove: Callable[[str], None], swept: Swept) -> None:
    """What cannot be removed is named, and does not keep the launch from being over."""
    try:
        remove(path)
    except FileNotFoundError:  # somebody was quicker: nothing is left
        return
    except OSError as error:
        print(f"left behind: {error}", file=sys.stderr)
        swept.kept.append(path)
    else:
        swept.removed.append(path)


def _candidates(since_s: float) -> Dict[str, os.stat_result]:
    """Ordinary files of our user that changed since the launch."""
    found = {}
    try:
        names = os.listdir(SHM)
    except FileNotFoundError:
        return {}
    for name in names:
        path = f"{SHM}/{name}"
        try:
            seen = os.lstat(path)
        except FileNotFoundError:
            continue
        if stat_bits.S_ISREG(seen.st_mode) and seen.st_uid == os.getuid() and seen.st_ctime >= since_s:
            found[path] = seen
    return found


def _held(candidates: Dict[str, os.stat_result]) -> Tuple[Set[str], bool]:
    """(those that a living process maps or has open, whether some processes could not be looked at)."""
    wanted = holders.Wanted({}, {(s.st_dev, s.st_ino): path for path, s in candidates.items()}, set(candidates))
    holding = holders.scan(wanted, set())
    return {path for paths in holding.devices.values() for path in paths}, bool(holding.unreadable)
