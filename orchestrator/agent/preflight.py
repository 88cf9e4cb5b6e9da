"""Everything that is checked before anything is recorded: a set of wanted changes becomes a plan, or a refusal.

Only reads. What is refused here is refused with the host as it was.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from orchestrator.agent import bytecode
from orchestrator.agent.decisions import Change
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs, Stat
from orchestrator.agent.identity import Identity, identify
from orchestrator.agent.linux import Mount

_SPARE_BYTES = 1 << 20
_MODE_CREATED = 0o644


class Place(NamedTuple):
    """Where the tree is and where we may stage: all paths without symbolic links.

    `fresh_xattrs_sha256` are the attributes that a new file of ours gets by itself (an SELinux label).
    """

    root: str
    guarded: Tuple[str, ...]
    state_dir: str
    fresh_xattrs_sha256: str = ""

    @property
    def pycache_dir(self) -> str:
        return os.path.join(self.state_dir, "pycache")

    @property
    def stage_dir(self) -> str:
        return os.path.join(self.state_dir, "stage")

    @property
    def dot_prefix(self) -> str:
        """How the names of staged files start that lie beside their targets."""
        return os.path.basename(self.state_dir) + "-"


class Wanted(NamedTuple):
    """A `FileChange` of the protocol, decoded."""

    given: str
    kind: str
    before_sha256: Optional[str]
    content: Optional[bytes]
    mode: Optional[int]


class Plan(NamedTuple):
    """What an apply will do. `contents` by path; `made_dirs` outermost first; `dirs` maps each parent to its mtime and
    the digest of its names; `same` are the files that already are as wanted."""

    changes: List[Change]
    contents: Dict[str, bytes]
    made_dirs: List[str]
    dirs: Dict[str, Tuple[int, str]]
    same: List[Tuple[str, Identity]]


def parse_wanted(files: Sequence[Dict[str, Any]]) -> List[Wanted]:
    """The `files` member of an apply request, contents in base64 or as bytes; `usage` when it is not of that shape."""
    wanted = [_parse_one(file) for file in files]
    if not wanted:
        raise AgentError("usage", "a transaction without files")
    return wanted


def _parse_one(file: Dict[str, Any]) -> Wanted:
    given, kind, mode = file.get("path"), file.get("kind"), file.get("mode")
    before, content = file.get("before_sha256"), file.get("content")
    encoded = content if isinstance(content, bytes) else file.get("content_b64")
    if not isinstance(given, str) or not os.path.isabs(given) or os.path.normpath(given) != given or "\0" in given:
        raise AgentError("usage", f"not an absolute, normal path: {given!r}")
    if kind not in ("replace", "create", "delete"):
        raise AgentError("usage", f"unknown kind of change {kind!r}", {"path": given})
    if mode is not None and not (isinstance(mode, int) and 0 <= mode <= 0o7777):
        raise AgentError("usage", f"not a file mode: {mode!r}", {"path": given})
    if (encoded is None) != (kind == "delete") or (before is None) != (kind == "create"):
        raise AgentError("usage", f"content and before_sha256 do not suit kind {kind}", {"path": given})
    try:
        content = encoded if encoded is None or encoded is content else base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise AgentError("usage", f"content is not base64: {error}", {"path": given}) from error
    return Wanted(given, kind, before, content, mode)


def make_plan(
    fs: Fs,
    place: Place,
    wanted: Sequence[Wanted],
    seq: int,
    seconds_of: Callable[[str], Set[int]],
    beside: bool = False,
) -> Plan:
    """Checks everything and names everything.

    `seq` is the number the journal record will have and makes stage names unique, `seconds_of` tells which seconds
    earlier versions of a path had, `beside` stages next to every target instead of in the state directory.
    """
    mounts = fs.mounts()
    stage_mount = mount_of(mounts, place.stage_dir)
    plan = Plan([], {}, [], {}, [])
    seen: Set[str] = set()
    for index, file in enumerate(wanted):
        path = _locate(fs, place, file.given)
        if path in seen:
            raise AgentError("usage", "the same file twice in one transaction", {"path": path})
        seen.add(path)
        parent = _check_parent(fs, path, file.kind, plan)
        is_near = not beside and mount_of(mounts, parent) == stage_mount
        folder = place.stage_dir if is_near else os.path.dirname(path)
        name = f"{seq:08x}.{index}" if is_near else f"{place.dot_prefix}{seq:08x}.{index}"
        before = _check_target(fs, place, path, file, mounts)
        after = _after(fs, place, path, file, before, parent, seconds_of(path))
        if before is not None and after is not None and _is_no_change(before, after):
            plan.same.append((file.given, before))
            continue
        plan.changes.append(Change(path, file.given, file.kind, os.path.join(folder, name), before, after))
        if file.content is not None:
            plan.contents[path] = file.content
    for change in plan.changes:
        _note_dirs(fs, change, plan)
    _check_space(fs, place, plan)
    return plan


def _locate(fs: Fs, place: Place, given: str) -> str:
    """The path without symbolic links in its parents; refused outside root and guarded paths."""
    path = os.path.join(fs.resolve(os.path.dirname(given)), os.path.basename(given))
    inside = any(is_below(path, base) for base in (place.root, *place.guarded))
    if not inside or is_below(path, place.state_dir) or os.path.basename(path).startswith(place.dot_prefix):
        raise AgentError("refused", "the path is not in the tree or a guarded path", {"path": given, "is": path})
    return path


def is_below(path: str, base: str) -> bool:
    return path == base or path.startswith(base.rstrip("/") + "/")


def _check_parent(fs: Fs, path: str, kind: str, plan: Plan) -> str:
    """The deepest parent that exists; the missing ones go into the plan, for a `create` only."""
    missing: List[str] = []
    parent = os.path.dirname(path)
    found = fs.find(parent)
    while found is None:
        missing.insert(0, parent)
        parent = os.path.dirname(parent)
        found = fs.find(parent)
    if found.kind != "dir":
        raise AgentError("refused", "a parent of the path is not a directory", {"path": path, "parent": parent})
    if missing and kind != "create":
        raise AgentError("conflict", "the file does not exist", {"path": path})
    if not fs.may_write(parent):
        raise AgentError("refused", "the directory is read-only for us", {"path": path, "directory": parent})
    if fs.is_frozen(parent):
        raise AgentError("refused", "the directory is immutable", {"path": path, "directory": parent})
    plan.made_dirs.extend(folder for folder in missing if folder not in plan.made_dirs)
    return parent


def _check_target(fs: Fs, place: Place, path: str, file: Wanted, mounts: Sequence[Mount]) -> Optional[Identity]:
    """The identity of what is there now, after every reason to refuse."""
    mounted = next((mount for mount in mounts if mount.point == path), None)
    if mounted is not None:
        facts = {"path": path, "source": mounted.source, "root": mounted.root}
        raise AgentError("refused", "the file is a mount point", facts, "change the file that is mounted there")
    found = fs.find(path)
    if file.kind == "create":
        if found is not None:
            raise AgentError("conflict", "the file exists already", {"path": path})
        return None
    if found is None:
        raise AgentError("conflict", "the file does not exist", {"path": path})
    _check_kind(fs, place, path, found)
    compiled = bytecode.unchecked(fs, bytecode.beside(fs, path))
    if compiled:
        what = "its compiled form is used unchecked, so that a change would have no effect"
        raise AgentError("refused", what, {"path": path, "compiled": compiled[0]})
    before = identify(fs, path)
    if before is None or before.sha256 != file.before_sha256:
        now = "absent" if before is None else before.sha256
        facts = {"path": path, "expected": str(file.before_sha256), "found": now}
        raise AgentError("conflict", "the file is not as expected", facts)
    return before


def _check_kind(fs: Fs, place: Place, path: str, found: Stat) -> None:
    if found.kind == "link":
        facts = {"path": path, "target": fs.readlink(path)}
        raise AgentError("refused", "the path is a symbolic link", facts, "name the file it points to")
    if found.kind != "file":
        raise AgentError("refused", "the path is not a regular file", {"path": path, "kind": found.kind})
    if found.nlink > 1:
        twin = _other_name(fs, place, path, found)
        if twin is not None:
            raise AgentError("refused", "the file has a second name in the tree", {"path": path, "other": twin})
    if fs.is_frozen(path):
        raise AgentError("refused", "the file is immutable", {"path": path})
    writers = fs.writers(path)
    if writers:
        facts = {"path": path, "pids": ", ".join(str(pid) for pid in writers if pid)}
        raise AgentError("refused", "another process has the file open for writing", facts)


def _other_name(fs: Fs, place: Place, path: str, target: Stat) -> Optional[str]:
    """Another name of the same inode below root or a guarded path."""
    waiting = [place.root, *place.guarded]
    while waiting:
        folder = waiting.pop()
        found = fs.find(folder)
        if found is None or folder == place.state_dir:
            continue
        listed = [(folder, found)] if found.kind != "dir" else [(f"{folder}/{n}", s) for n, s in fs.scan(folder)]
        for name, there in listed:
            if there.kind == "dir":
                waiting.append(name)
            elif (there.ino, there.dev) == (target.ino, target.dev) and name != path:
                return name
    return None


def _after(
    fs: Fs, place: Place, path: str, file: Wanted, before: Optional[Identity], parent: str, taken: Set[int]
) -> Optional[Identity]:
    """What will lie at the path: owner, rights and attributes of the original, a second of its own."""
    if file.content is None:
        return None
    compiled = bytecode.beside(fs, path) + bytecode.below_prefix(fs, place.pycache_dir, path)
    seconds = taken | bytecode.seconds_claimed(fs, compiled)
    sha256, size = fs.sha256_of(file.content), len(file.content)
    if before is None:
        owner = fs.lstat(parent)
        mode = _MODE_CREATED if file.mode is None else file.mode
        mtime_ns = bytecode.free_mtime_ns(fs.now_ns(), seconds)
        return Identity(sha256, size, mode, owner.uid, owner.gid, mtime_ns, 0, 0, place.fresh_xattrs_sha256)
    mtime_ns = bytecode.free_mtime_ns(fs.now_ns(), seconds | {bytecode.second_of(before.mtime_ns)})
    mode = before.mode if file.mode is None else file.mode
    return before._replace(sha256=sha256, size=size, mode=mode, mtime_ns=mtime_ns, ino=0, nlink=0)


def _is_no_change(before: Identity, after: Identity) -> bool:
    return (before.sha256, before.mode) == (after.sha256, after.mode)


def _note_dirs(fs: Fs, change: Change, plan: Plan) -> None:
    """Time and names of every directory whose entries will change, so that its time can be put back."""
    parents = [os.path.dirname(change.path), *(os.path.dirname(made) for made in plan.made_dirs)]
    for parent in parents:
        if parent not in plan.made_dirs and parent not in plan.dirs:
            plan.dirs[parent] = (fs.lstat(parent).mtime_ns, names_digest(fs, parent))


def names_digest(fs: Fs, folder: str) -> str:
    """Tells whether entries came or went."""
    return hashlib.sha256("\0".join(fs.names(folder)).encode("utf-8", "surrogateescape")).hexdigest()


def _check_space(fs: Fs, place: Place, plan: Plan) -> None:
    need = sum(len(content) + 4096 for content in plan.contents.values()) + _SPARE_BYTES
    free = fs.free_bytes(place.state_dir)
    if need > free:
        facts = {"path": place.state_dir, "need_bytes": str(need), "free_bytes": str(free)}
        raise AgentError("refused", "not enough space to stage the files", facts)


def mount_of(mounts: Sequence[Mount], path: str) -> str:
    """The mount point that a path lies on."""
    return max((mount.point for mount in mounts if is_below(path, mount.point)), key=len, default="/")
