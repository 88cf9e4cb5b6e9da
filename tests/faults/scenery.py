"""A tree with everything in it that a revert promises to bring back, the changes made to it, and its server."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.agent.history import History
from orchestrator.agent.journal import Record, decode

OLD_A = b"def which():\n    return 'old'  # ==\n" * 40
NEW_A = b"def which():\n    return 'new'  # ==\n" * 40
OLD_B = b"LIMITS = [9, 10]\n"
NEW_B = b"LIMITS = [9, 10, 12]\nMORE = True\n"
OLD_GONE = b"# deleted by the change\n"
NEW_MADE = b"# created by the change\n"
TOKEN = "token of the holder"
LAUNCH_ID = "launch-1"
TXN = "txn-1"
_NS = 10**9
_BORN_NS = 1_600_000_000 * _NS

SERVER = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
import a
open(os.environ['TMPDIR'] + '/scratch', 'w').close()
door = socket.socket()
door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
door.bind(('127.0.0.1', int(sys.argv[2])))
door.listen()
print('serving', a.which(), flush=True)
while True:
    door.accept()[0].close()
"""

Picture = dict[str, tuple[Any, ...]]


@dataclass
class Scene:
    """One host of its own: HOME, a tree, a port. `before` is the picture of everything as it was found."""

    base: Path
    journal_dir: Path | None = None
    port: int = 0
    before: Picture = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    """Paths that the tool named as left behind: an error of the system kept it from removing them."""

    @property
    def root(self) -> Path:
        return self.base / "work" / "tree"

    @property
    def state_dir(self) -> Path | None:
        found = sorted((self.base / "work").glob(".orchestrator-*"))
        return found[0] if found else None

    def plant(self) -> Scene:
        """Makes the tree: odd owners, modes, times, links, attributes, compiled files."""
        root = self.root
        for folder in ("pkg/__pycache__", "empty"):
            (root / folder).mkdir(parents=True)
        content = {
            "a.py": (OLD_A, 0o640), "pkg/b.py": (OLD_B, 0o755), "pkg/gone.py": (OLD_GONE, 0o600),
            "pkg/__init__.py": (b"", 0o644), "data 1\n.bin": (bytes(range(256)), 0o444),
            "pkg/__pycache__/b.cpython-311.pyc": (_pyc(_BORN_NS // _NS + 1, len(OLD_B)), 0o644),
        }  # fmt: skip
        for number, (name, (data, mode)) in enumerate(content.items()):
            path = root / name
            path.write_bytes(data)
            if os.geteuid() == 0:
                os.chown(path, 1000 + number, 2000 + number)
            path.chmod(mode)
            os.utime(path, ns=(_BORN_NS, _BORN_NS + number * _NS + 123_456_789))
        self._set_attribute(root / "a.py")
        os.link(root / "data 1\n.bin", root / "second name")
        (root / "link").symlink_to("pkg/b.py")
        for folder in ("pkg/__pycache__", "pkg", "empty", "", ".."):
            os.utime(root / folder, ns=(_BORN_NS, _BORN_NS + 987_654_321))
        self.port = free_port()
        self.before = self.picture()
        return self

    @staticmethod
    def _set_attribute(path: Path) -> None:
        try:
            os.setxattr(path, "user.note", b"kept")
        except OSError as error:
            print(f"no attributes on this file system: {error}", file=sys.stderr)

    def picture(self) -> Picture:
        """path → kind, rights, owner, time, and content, inode, links and attributes of files; ours left out."""
        return look(self.base / "work")

    def changes(self) -> list[dict[str, Any]]:
        """Two files replaced, one created with a folder of its own, one deleted."""
        root = self.root
        return [
            change(root / "a.py", "replace", OLD_A, NEW_A),
            change(root / "pkg/b.py", "replace", OLD_B, NEW_B),
            change(root / "new/sub/made.py", "create", None, NEW_MADE),
            change(root / "pkg/gone.py", "delete", OLD_GONE, None),
        ]

    def open_request(self, *, token: str = TOKEN, lease_s: float = 60.0) -> dict[str, Any]:
        holder = {"token": token, "name": f"tester of {self.base.name}", "pid": os.getpid()}
        request: dict[str, Any] = {"root": str(self.root), "guarded": [], "holder": holder, "lease_s": lease_s}
        if self.journal_dir is not None:
            request["journal_dir"] = str(self.journal_dir)
        return request

    def launch_request(self, source: str = SERVER, *more: str, grace_s: float = 0.0) -> dict[str, Any]:
        argv = [sys.executable, "-S", "-s", "-c", source, str(self.root), str(self.port), *more]
        env = {"HOME": str(self.base), "PATH": os.environ["PATH"]}
        return {
            "launch_id": LAUNCH_ID, "argv": argv, "env": env, "cwd": str(self.base), "pycache": True,
            "grace_s": grace_s,
        }  # fmt: skip

    def forgive_time_above(self) -> None:
        """For the one fault that falls between making the state directory and putting back the time of the directory
        that it lies in: there is no journal yet that could remember that time. It lies above the tree."""
        above = str(self.base / "work")
        self.before[above] = (*self.before[above][:3], os.lstat(above).st_mtime_ns)

    # -- what the journal says -----------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """Read by bytes, without the agent's `Journal`: looking must not change anything."""
        state_dir = self.state_dir
        if state_dir is None or not (state_dir / "journal").exists():
            return []
        raw = (state_dir / "journal").read_bytes()
        found: list[Record] = []
        offset = 0
        while (step := decode(raw, offset)) is not None:
            record, size = step
            if found and record.seq != found[-1].seq + 1:
                break
            found.append(record)
            offset += size
        return found

    def history(self) -> History:
        return History(self.records())


def change(path: Path, kind: str, old: bytes | None, new: bytes | None) -> dict[str, Any]:
    """A FileChange of the protocol."""
    return {
        "path": str(path),
        "kind": kind,
        "before_sha256": None if old is None else hashlib.sha256(old).hexdigest(),
        "content_b64": None if new is None else base64.b64encode(new).decode(),
        "mode": None,
    }


def look(top: Path) -> Picture:
    """Everything at and below a directory; state directories of ours are left out."""
    seen: Picture = {}
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        seen[str(folder)] = _meta(os.lstat(folder))
        for entry in os.scandir(folder):
            if entry.name.startswith(".orchestrator-") and entry.is_dir():
                continue
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            else:
                seen[entry.path] = _leaf(path)
    return seen


def torn(scene: Scene) -> list[str]:
    """What a reader could see at this moment that is neither the original nor ours, whole and with its rights.

    Called after every kill and before recovery, so that every state between two system calls is looked at.
    """
    bad = []
    wanted = {"a.py": (OLD_A, NEW_A), "pkg/b.py": (OLD_B, NEW_B), "pkg/gone.py": (OLD_GONE, None)}
    wanted["new/sub/made.py"] = (NEW_MADE, None)
    for name, allowed in wanted.items():
        path = scene.root / name
        if not path.is_file():
            if None not in allowed:
                bad.append(f"{name} was missing")
            continue
        if path.read_bytes() not in allowed:
            bad.append(f"{name} was mixed")
        found = scene.before.get(str(path))
        if found is not None and _rights(_leaf(path)) != _rights(found):
            bad.append(f"{name} had other rights: {_rights(_leaf(path))}, not {_rights(found)}")
    return bad


def differences(before: Picture, now: Picture) -> list[str]:
    """One line a path, with what differs."""
    return [
        f"{path}: {_short(before.get(path))} → {_short(now.get(path))}"
        for path in sorted(before.keys() | now.keys())
        if before.get(path) != now.get(path)
    ]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _short(meta: tuple[Any, ...] | None) -> str:
    text = repr(meta)
    return text if len(text) < 260 else text[:260] + "…"


def _meta(found: os.stat_result) -> tuple[Any, ...]:
    return (oct(found.st_mode), found.st_uid, found.st_gid, found.st_mtime_ns)


def _leaf(path: Path) -> tuple[Any, ...]:
    found = os.lstat(path)
    meta = _meta(found)
    if path.is_symlink():
        return (*meta, os.readlink(path))
    attributes = tuple((name, os.getxattr(path, name)) for name in sorted(os.listxattr(path)))
    return (*meta, found.st_ino, found.st_nlink, attributes, path.read_bytes() if path.is_file() else None)


def _rights(leaf: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*leaf[:3], leaf[6])


def _pyc(second: int, size: int) -> bytes:
    return struct.pack("<4sIII", b"\xa7\x0d\x0d\x0a", 0, second, size) + b"compiled"


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, sort_keys=True)
