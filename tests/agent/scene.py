"""A small tree to change, on a real or a simulated disk, and file systems that fail or kill at the k-th change."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
from collections.abc import Callable
from typing import Any

from orchestrator.agent.fs import Fs
from orchestrator.agent.tree import Tree

QUICK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # for hundreds of crash points, where syncs are free

HOLDER = {"token": "token-a", "name": "anna", "pid": 11}
OTHER = {"token": "token-b", "name": "bert", "pid": 12}
BOOT = "boot-1"

OLD_A = b"def which():\n    return 1 == 2\n" * 30
NEW_A = b"def which():\n    return 1 != 2\n" * 30
OLD_B = b"# deleted by the change\n"
NEW_C = b"# created by the change\n"


class Kill(BaseException):
    """Stands for SIGKILL: no handler of the agent may see it."""


class FaultFs(Fs):
    """The real file system; at change number `at` it is killed, or fails with an errno, once or from then on."""

    def __init__(self, at: int | None = None, error: int | None = None, for_ever: bool = False) -> None:
        super().__init__()
        self.at = at
        self.error = error
        self.for_ever = for_ever
        self.calls: list[str] = []

    def step(self, call: str, path: str) -> None:
        self.calls.append(f"{call} {os.path.basename(path)}")
        if self.at is None or (len(self.calls) < self.at if self.for_ever else len(self.calls) != self.at):
            return
        if self.error is None:
            raise Kill
        if self.error != errno.ENOSPC or call in ("open", "write", "pwrite", "fallocate", "mkdir", "link", "setxattr"):
            raise OSError(self.error, os.strerror(self.error), path)


class Clock:
    """CLOCK_BOOTTIME as the test wants it, in seconds."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def replace(path: str, old: bytes, new: bytes, mode: int | None = None) -> dict[str, Any]:
    return _change(path, "replace", old, new, mode)


def create(path: str, new: bytes, mode: int | None = None) -> dict[str, Any]:
    return _change(path, "create", None, new, mode)


def delete(path: str, old: bytes) -> dict[str, Any]:
    return _change(path, "delete", old, None, None)


def _change(path: str, kind: str, old: bytes | None, new: bytes | None, mode: int | None) -> dict[str, Any]:
    return {
        "path": path,
        "kind": kind,
        "before_sha256": None if old is None else sha(old),
        "content_b64": None if new is None else base64.b64encode(new).decode(),
        "mode": mode,
    }


def three_changes(root: str) -> list[dict[str, Any]]:
    """A replaced, a created (with a directory of its own) and a deleted file."""
    return [
        replace(f"{root}/a.py", OLD_A, NEW_A),
        create(f"{root}/new/sub/c.py", NEW_C),
        delete(f"{root}/pkg/b.py", OLD_B),
    ]


def plant(root: str) -> None:
    """The tree that `three_changes` are for, on the real disk, with times in the past."""
    os.makedirs(f"{root}/pkg")
    for name, content, mode in (("a.py", OLD_A, 0o640), ("pkg/b.py", OLD_B, 0o755), ("pkg/__init__.py", b"", 0o644)):
        with open(f"{root}/{name}", "wb") as file:
            file.write(content)
        os.chmod(f"{root}/{name}", mode)
        os.utime(f"{root}/{name}", ns=(10**18, 10**18 + 123456789))
    for folder in (f"{root}/pkg", root):
        os.utime(folder, ns=(10**18, 10**18 + 987654321))


def picture(root: str) -> dict[str, tuple[Any, ...]]:
    """Everything below a path that a revert promises, inode and link count of files included; our state left out."""
    seen: dict[str, tuple[Any, ...]] = {}
    waiting = [root]
    while waiting:
        path = waiting.pop()
        found = os.lstat(path)
        meta: tuple[Any, ...] = (found.st_mode, found.st_uid, found.st_gid, found.st_mtime_ns)
        if os.path.islink(path):
            meta += (os.readlink(path),)
        elif os.path.isdir(path):
            names = [name for name in os.listdir(path) if not name.startswith(".orchestrator-")]
            waiting.extend(os.path.join(path, name) for name in names)
        elif os.path.isfile(path):
            with open(path, "rb") as file:
                meta += (found.st_ino, found.st_nlink, file.read())
            meta += tuple((name, os.getxattr(path, name)) for name in sorted(os.listxattr(path)))
        seen[path] = meta
    return seen


def take(
    root: str,
    fs: Fs | None = None,
    holder: dict[str, Any] = HOLDER,
    guarded: tuple[str, ...] = (),
    clock: Callable[[], float] | None = None,
    boot_id: str = BOOT,
    lease_s: float = 60.0,
    **more: Any,
) -> Tree:
    """Opens the tree; nothing is ever killed."""
    more.setdefault("kill_agent", lambda _agent: False)
    return Tree.open(fs or Fs(), root, guarded, holder, lease_s, boot_id=boot_id, clock=clock or Clock(), **more)


def let_go(tree: Tree) -> None:
    """What the end of a process does to locks and descriptors; the tree of a killed agent is dropped by this."""
    tree.leave()


def staged(tree: Tree) -> list[str]:
    return os.listdir(os.path.join(tree.state_dir, "stage"))
