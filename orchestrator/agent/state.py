"""The directory in which we keep what belongs to a tree: where it is, how it is made, who may use it."""

from __future__ import annotations

import errno
import os
import time
from typing import List, Optional, Tuple

from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs, Stat
from orchestrator.agent.history import History
from orchestrator.agent.journal import Journal
from orchestrator.agent.preflight import mount_of

_PREFIX = ".orchestrator-"
_FOLDERS = ("stage", "runs", "pycache")
_POLL_S = 0.005
_NO_DIR_LOCKS = (errno.EBADF, errno.ENOLCK, errno.EINVAL, errno.EOPNOTSUPP)


def resolve_root(fs: Fs, root: str) -> Tuple[str, Stat]:
    """The tree's root without symbolic links, and its stat."""
    real = fs.resolve(root)
    found = fs.find(real)
    if found is None or found.kind != "dir":
        raise AgentError("refused", "the tree is not a directory", {"path": root})
    return real, found


def find_state_dir(fs: Fs, root: str, found: Stat) -> Optional[str]:
    """The state directory of this tree, if there is one; also one from before a reboot that renumbered the devices."""
    name = f"{_PREFIX}{found.dev:x}-{found.ino:x}"
    parents = [os.path.dirname(root), root]
    for parent in parents:
        if fs.find(os.path.join(parent, name)) is not None:
            return os.path.join(parent, name)
    for parent in parents:
        for other in _list(fs, parent):
            if other.startswith(_PREFIX) and other.endswith(f"-{found.ino:x}"):
                path = os.path.join(parent, other)
                if _belongs_to(fs, path, root):
                    return path
    return None


def _list(fs: Fs, folder: str) -> List[str]:
    try:
        return fs.names(folder)
    except PermissionError:  # may be passed through but not read: then nothing of ours can be made there either
        return []


def _belongs_to(fs: Fs, path: str, root: str) -> bool:
    journal_path = os.path.join(path, "journal")
    if fs.find(journal_path) is None:
        return False
    journal = Journal.open(fs, fs.resolve(journal_path))
    try:
        return History(journal.records()).root == root
    finally:
        journal.close()


def make_state_dir(fs: Fs, root: str, found: Stat) -> str:
    """Makes the state directory next to the root, or inside it where the parent is another mount or not writable."""
    parent = os.path.dirname(root)
    mounts = fs.mounts()
    is_beside = parent != root and mount_of(mounts, parent) == mount_of(mounts, root) and fs.may_write(parent)
    home = parent if is_beside else root
    if not fs.may_write(home):
        hint = "log in as the tree's owner, or put `sudo: true` into the route"
        raise AgentError("refused", "neither the tree nor its parent can be written", {"path": root}, hint)
    path = os.path.join(home, f"{_PREFIX}{found.dev:x}-{found.ino:x}")
    before = fs.lstat(home)
    try:
        fs.mkdir(path, 0o700)
    except FileExistsError:  # another controller was faster; the lock decides
        return path
    restore_time(fs, home, before)
    return path


def restore_time(fs: Fs, folder: str, before: Stat) -> None:
    """Puts the time of a directory back after an entry of ours came or went, where that is permitted."""
    if os.geteuid() in (0, before.uid):
        fs.set_dir_time(folder, before.mtime_ns)


def furnish(fs: Fs, state_dir: str) -> None:
    """Makes what is missing in the state directory, and all of it durable."""
    for name in _FOLDERS:
        if fs.find(os.path.join(state_dir, name)) is None:
            fs.mkdir(os.path.join(state_dir, name), 0o700)
    fs.sync_dir(state_dir)
    fs.sync_dir(os.path.dirname(state_dir))


def open_journal(fs: Fs, state_dir: str, journal_dir: Optional[str]) -> Journal:
    """The journal of the state directory; a new one lies in `journal_dir` if given, behind a symbolic link."""
    path = os.path.join(state_dir, "journal")
    if fs.find(path) is None and journal_dir is not None:
        target = os.path.join(fs.resolve(journal_dir), os.path.basename(state_dir) + ".journal")
        fs.symlink(target, path)
        fs.sync_dir(state_dir)
    real = fs.resolve(path)
    if fs.find(real) is None:
        parked = fs.names(os.path.join(state_dir, "stage"))
        if parked:
            facts = {"path": real, "stage": os.path.join(state_dir, "stage"), "parked": ", ".join(parked)}
            raise AgentError("dirty", "the journal is gone while originals may be parked", facts, "bring it back")
    return Journal.open(fs, real)


class Lock:
    """The exclusive hold on a tree: on `lock` in the state directory, and on the root itself, which is the same inode
    by whatever route it is reached. It ends with the process, or with `close`."""

    def __init__(self, fs: Fs, root: str, state_dir: str) -> None:
        self._fs = fs
        self._path = os.path.join(state_dir, "lock")
        self._root_fd = fs.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._fd = fs.open(self._path, os.O_RDWR | os.O_CREAT)
        except BaseException:
            fs.close(self._root_fd)
            raise

    def try_take(self) -> bool:
        return self._fs.lock(self._fd) and self._lock_root() and self._is_current()

    def _lock_root(self) -> bool:
        try:
            return self._fs.lock(self._root_fd)
        except OSError as error:
            if error.errno not in _NO_DIR_LOCKS:
                raise
            return True  # NFS locks files only: `lock` alone has to do

    def take(self, patience_s: float) -> bool:
        """Waits for a process that is just ending."""
        deadline = time.monotonic() + patience_s
        while not self.try_take():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def close(self) -> None:
        self._fs.close(self._fd)
        self._fs.close(self._root_fd)

    def _is_current(self) -> bool:
        """Whether the file is still the one with this name (it may have been forgotten meanwhile)."""
        there = self._fs.find(self._path)
        return there is not None and there.ino == self._fs.fstat(self._fd).ino


def drop_probes(fs: Fs, stage_dir: str) -> None:
    """Removes the two files with which an exchange is tried; their names are never used for anything else."""
    for letter in "ab":
        path = os.path.join(stage_dir, f"probe.{letter}")
        if fs.find(path) is not None:
            fs.unlink(path)


def refuse_open(fs: Fs, state_dir: str) -> None:
    """`refused` while a transaction or a launch is not over, or somebody's files are kept here."""
    kept_dir = os.path.join(state_dir, "kept")
    kept = fs.names(kept_dir) if fs.find(kept_dir) is not None else []
    if kept:
        facts = {"kept": ", ".join(os.path.join(kept_dir, name) for name in kept)}
        raise AgentError("refused", "files that a release set aside are still here", facts, "move them away first")
    if fs.find(os.path.join(state_dir, "journal")) is None:
        return
    journal = open_journal(fs, state_dir, None)
    try:
        history = History(journal.records())
    finally:
        journal.close()
    opened = (history.open, history.launch, history.shadow, history.service)
    if any(one is not None for one in opened):
        raise AgentError("refused", "something is still open on this tree", {"state_dir": state_dir}, "recover first")
    if history.kept:
        hint = "host release --restore-found brings the originals back"
        raise AgentError("refused", "a kept configuration is on this tree", {"state_dir": state_dir}, hint)


def remove(fs: Fs, state_dir: str) -> List[str]:
    """Removes the state directory, a journal elsewhere included; the parent keeps its time."""
    home = os.path.dirname(state_dir)
    before = fs.lstat(home)
    removed = []
    journal_path = os.path.join(state_dir, "journal")
    found = fs.find(journal_path)
    if found is not None and found.kind == "link":
        target = fs.resolve(journal_path)
        if fs.find(target) is not None:
            fs.unlink(target)
            removed.append(target)
    _remove_all(fs, state_dir)
    restore_time(fs, home, before)
    fs.sync_dir(home)
    return [*removed, state_dir]


def _remove_all(fs: Fs, folder: str) -> None:
    for name, found in fs.scan(folder):
        path = os.path.join(folder, name)
        if found.kind == "dir":
            _remove_all(fs, path)
        else:
            fs.unlink(path)
    fs.rmdir(folder)
