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
_SUSPECTS = re.compile(r"^(psm_|sem\.mp-|sgl|vllm|nccl|cuda|torch_)", re.IGNORECASE)


class Swept(NamedTuple):
    removed: List[str]
    kept: List[str]


def shared_memory(pids: Iterable[int]) -> Set[Tuple[str, int]]:
    """(name, inode) of everything in /dev/shm that these processes map now."""
    found: Set[Tuple[str, int]] = set()
    for pid in pids:
        try:
            found |= {(m.path, m.ino) for m in holders.read_maps(pid) if m.path.startswith(SHM + "/")}
        except OSError as error:
            if not processes.is_gone(error) and error.errno not in (errno.EACCES, errno.EPERM):
                raise
    return found


def sweep(*, tmp: str, mapped: Set[Tuple[str, int]], pids: Set[int], since_s: float) -> Swept:
    """After the end of a launch. `mapped`: what its processes were seen to map; `since_s`: epoch of the launch."""
    swept = Swept([], [])
    if tmp:
        _remove_tmp(tmp, swept)
    candidates = _candidates(since_s)
    if not candidates:
        return swept
    held, blind = _held(candidates)
    for path, seen in sorted(candidates.items()):
        suspect = _SUSPECTS.match(os.path.basename(path)) is not None
        named = suspect and any(int(number) in pids for number in re.findall(r"\d+", path))
        ours = (path, seen.st_ino) in mapped or named
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
