"""A copy of the package beside the found tree, for trees that are not ours to write or that others run from.

The tree that is opened is a directory of ours; the package lies in it as a copy, and that directory comes first on the
server's path. What was found is compared at every proof and never written. The journal says SHADOW_INTENT before the
copy begins and SHADOW_REMOVED when it is gone, so whoever comes next knows what to take away; nothing of it has to
survive a power cut, since the original is where it was.
"""

from __future__ import annotations

import hashlib
import os
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs, Stat
from orchestrator.agent.manifest import Entry

_SPARE_BYTES = 64 << 20
_LEFT_OUT = "__pycache__"
_STATE_PREFIX = ".orchestrator-"


class Shadow(NamedTuple):
    """`of`: the found tree without links. `home`: the directory of ours that is opened as the tree. `copy`: the package
    in it."""

    of: str
    home: str

    @property
    def copy(self) -> str:
        return os.path.join(self.home, os.path.basename(self.of))


def default_folder() -> str:
    """Where copies go unless the target says otherwise."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "orchestrator")


def place(fs: Fs, of: str, folder: Optional[str]) -> Shadow:
    """Where the shadow of a tree lies: the same for each run, so that compiled files of ours can be used again."""
    real = fs.resolve(of)
    name = f"shadow-{os.path.basename(real)}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:12]}"
    return Shadow(real, os.path.join(fs.resolve(folder or default_folder()), name))


def make_home(fs: Fs, shadow: Shadow) -> None:
    """The directory that is opened as the tree. `refused` where it cannot be made or would lie in the found tree."""
    found = fs.find(shadow.of)
    if found is None or found.kind != "dir":
        raise AgentError("refused", "the tree is not a directory", {"path": shadow.of})
    if (shadow.home + "/").startswith(shadow.of + "/"):
        facts = {"path": shadow.home}
        raise AgentError("refused", "the shadow would lie in the tree itself", facts, "name another `shadow_dir`")
    missing: List[str] = []
    at = shadow.home
    while fs.find(at) is None:
        missing.insert(0, at)
        at = os.path.dirname(at)
    try:
        for folder in missing:
            fs.mkdir(folder, 0o700)
            fs.sync_dir(os.path.dirname(folder))
    except OSError as error:
        facts = {"path": shadow.home, "errno": str(error.errno)}
        what = f"no copy of the tree can be made there: {error.strerror}"
        raise AgentError("refused", what, facts, "name another `shadow_dir`") from error


def make_copy(fs: Fs, shadow: Shadow) -> None:
    """Copies the package: contents by reference where the file system can (never by a second name), links as links,
    modes and times; without compiled files. `refused` when there is no room, before anything is written."""
    listed = _list(fs, shadow.of)
    need = sum(found.size + 4096 for _, found in listed if found.kind == "file") + _SPARE_BYTES
    free = fs.free_bytes(shadow.home)
    if need > free:
        facts = {"path": shadow.home, "need_bytes": str(need), "free_bytes": str(free)}
        raise AgentError("refused", "not enough space for a copy of the tree", facts, "name another `shadow_dir`")
    times: Dict[str, int] = {}
    for path, found in listed:
        target = shadow.copy + path[len(shadow.of) :]
        if found.kind == "dir":
            fs.mkdir(target, 0o700)
            times[target] = found.mtime_ns
        elif found.kind == "link":
            fs.symlink(fs.readlink(path), target)
        elif found.kind == "file":
            _copy_file(fs, path, target, found)
    for target, mtime_ns in sorted(times.items(), reverse=True):  # inner ones first: their entries move the outer's
        fs.set_dir_time(target, mtime_ns)


def _list(fs: Fs, root: str) -> List[Tuple[str, Stat]]:
    """Everything to be copied, folders before what is in them."""
    listed: List[Tuple[str, Stat]] = []
    waiting = [(root, fs.lstat(root))]
    while waiting:
        path, found = waiting.pop()
        listed.append((path, found))
        if found.kind == "dir":
            names = [(name, there) for name, there in fs.scan(path) if name != _LEFT_OUT]
            waiting += [(f"{path}/{name}", there) for name, there in names if not name.startswith(_STATE_PREFIX)]
    return sorted(listed)


def _copy_file(fs: Fs, source: str, target: str, found: Stat) -> None:
    out = fs.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
    try:
        into = fs.open(source, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            if not fs.clone(into, out):
                while True:
                    block = fs.read(into, 1 << 20)
                    if not block:
                        break
                    fs.write_all(out, block)
        finally:
            fs.close(into)
        fs.fchmod(out, 0o600 | (found.mode & 0o777))  # ours to patch, and to take away
        fs.futime(out, found.mtime_ns)
    finally:
        fs.close(out)


def differing(entries: Mapping[str, Entry], shadow: Mapping[str, str]) -> List[str]:
    """Files of the original whose content the copy does not have, by a manifest of both."""
    of, copy = shadow["of"], shadow["copy"]
    wrong = []
    for path, entry in entries.items():
        if entry.kind == "file" and path.startswith(of + "/") and not _is_left_out(path[len(of) + 1 :]):
            there = entries.get(copy + path[len(of) :])
            if there is None or there.sha256 != entry.sha256:
                wrong.append(path)
    return wrong


def _is_left_out(path: str) -> bool:
    return any(part == _LEFT_OUT or part.startswith(_STATE_PREFIX) for part in path.split("/"))


def remove_copy(fs: Fs, home: str) -> None:
    """Takes away everything in the directory of ours, whole or half made. The directory stays, with its inode."""
    for name, found in fs.scan(home):
        if not name.startswith(_STATE_PREFIX):
            _remove(fs, os.path.join(home, name), found)
    fs.sync_dir(home)


def _remove(fs: Fs, path: str, found: Stat) -> None:
    if found.kind != "dir":
        fs.unlink(path)
        return
    for name, there in fs.scan(path):
        _remove(fs, f"{path}/{name}", there)
    fs.rmdir(path)
