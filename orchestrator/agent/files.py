"""The effects of a transaction: stage, swap in, and undo by content.

Nothing here writes the journal; `Tree` does, before and after. The order of the steps is the protocol: see
docs/recovery.md for what is on disk after each of them.
"""

from __future__ import annotations

import errno
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from orchestrator.agent import bytecode
from orchestrator.agent.decisions import BACK, HOLD, LEAVE, Change, Verdict, decide
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.identity import Identity, identify, is_same, is_same_but_time, xattrs_digest
from orchestrator.agent.preflight import Place, Plan, names_digest

EXDEV = errno.EXDEV
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_MODE_MADE_DIR = 0o755


class Transaction(NamedTuple):
    """What an INTENT record holds. `dirs`: parent → (mtime_ns, digest of its names) before anything changed."""

    txn: str
    changes: Tuple[Change, ...]
    made_dirs: Tuple[str, ...]
    dirs: Dict[str, Tuple[int, str]]

    def as_record(self, place: Place) -> Dict[str, Any]:
        """Paths in the tree are written relative to it: another route may see it elsewhere."""
        changes = [
            change._replace(path=shorten(change.path, place.root), stage=shorten(change.stage, place.state_dir))
            for change in self.changes
        ]
        return {
            "txn": self.txn,
            "files": [change.as_dict() for change in changes],
            "made_dirs": [shorten(made, place.root) for made in self.made_dirs],
            "dirs": {shorten(folder, place.root): list(was) for folder, was in self.dirs.items()},
        }

    @classmethod
    def from_record(cls, data: Dict[str, Any], place: Place) -> Transaction:
        changes = []
        for file in data["files"]:
            change = Change.from_dict(file)
            stage = os.path.join(place.state_dir, change.stage)
            if os.path.dirname(change.stage) != "stage":  # beside its target
                stage = os.path.join(place.root, change.stage)
            changes.append(change._replace(path=os.path.join(place.root, change.path), stage=stage))
        dirs = {os.path.normpath(os.path.join(place.root, at)): (was[0], was[1]) for at, was in data["dirs"].items()}
        made = tuple(os.path.join(place.root, at) for at in data["made_dirs"])
        return cls(data["txn"], tuple(changes), made, dirs)

    @property
    def folders(self) -> List[str]:
        """Every directory whose entries the transaction changes."""
        found = {os.path.dirname(name) for change in self.changes for name in (change.path, change.stage)}
        return sorted(found.union(self.made_dirs, self.dirs))


def shorten(path: str, base: str) -> str:
    if path == base:
        return "."
    return path[len(base) + 1 :] if path.startswith(base + "/") else path


# -- forward -----------------------------------------------------------------------------------------------------


def stage_all(fs: Fs, transaction: Transaction, plan: Plan) -> None:
    """Makes missing parents and writes the new contents under their stage names.

    The contents are durable on return. The names need not be: a swap that is lost leaves the original in its place, and
    one that is kept brings the names along.
    """
    for made in transaction.made_dirs:
        _make_dir(fs, made)
    for change in transaction.changes:
        if change.after is not None:
            stage_file(fs, change, change.after, plan.contents[change.path])


def _make_dir(fs: Fs, path: str) -> None:
    owner = fs.lstat(os.path.dirname(path))
    try:
        fs.mkdir(path, _MODE_MADE_DIR)
    except FileExistsError as error:
        raise AgentError("conflict", "somebody made the directory meanwhile", {"path": path}) from error
    made = fs.lstat(path)
    if (made.uid, made.gid) != (owner.uid, owner.gid):
        fd = fs.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fs.fchown(fd, owner.uid, owner.gid)
        finally:
            fs.close(fd)


def stage_file(fs: Fs, change: Change, after: Identity, content: bytes) -> None:
    """Synced on return. Owner before attributes before mode: a change of owner drops capabilities and setuid bits."""
    fd = fs.open(change.stage, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
    try:
        fs.write_all(fd, content)
        fresh = fs.fstat(fd)
        if (fresh.uid, fresh.gid) != (after.uid, after.gid):
            _keep_owner(fs, fd, change, after)
        if change.before is not None:
            _copy_xattrs(fs, fd, change)
        fs.fchmod(fd, after.mode)
        fs.futime(fd, after.mtime_ns)
        fs.fsync(fd)
    finally:
        fs.close(fd)
    if xattrs_digest(fs.xattrs(change.stage)) != after.xattrs_sha256:
        raise AgentError("refused", "the extended attributes cannot be kept", {"path": change.path})


def _keep_owner(fs: Fs, fd: int, change: Change, after: Identity) -> None:
    try:
        fs.fchown(fd, after.uid, after.gid)
    except PermissionError as error:
        facts = {"path": change.path, "owner": f"{after.uid}:{after.gid}"}
        raise AgentError("refused", "the owner cannot be kept", facts, "reach the host as the owner or root") from error


def _copy_xattrs(fs: Fs, fd: int, change: Change) -> None:
    wanted, have = fs.xattrs(change.path), fs.xattrs(change.stage)
    try:
        for name in sorted(set(have) - set(wanted)):
            fs.remove_xattr(fd, name)
        for name, value in sorted(wanted.items()):
            if have.get(name) != value:
                fs.set_xattr(fd, name, value)
    except PermissionError as error:
        raise AgentError("refused", "the extended attributes cannot be kept", {"path": change.path}) from error


def swap_all(fs: Fs, transaction: Transaction, placed: List[Optional[bool]]) -> None:
    """Swaps every file in and makes that durable; `placed` tells how far it came, whatever happens."""
    for index, change in enumerate(transaction.changes):
        placed[index] = None
        try:
            swap_in(fs, change)
        except AgentError as error:
            if error.kind == "conflict" and change.kind == "delete" and fs.find(change.stage) is None:
                placed[index] = False
            raise
        placed[index] = True
    sync_all(fs, transaction)


def swap_in(fs: Fs, change: Change) -> None:
    """Puts our version in place; `conflict` when the path does not hold what was expected, with that put back."""
    if change.kind == "create":
        move(fs, change.stage, change.path)
        return
    if change.kind == "replace":
        swap(fs, change.stage, change.path)
    else:
        move(fs, change.path, change.stage)
    came_out = identify(fs, change.stage)
    if came_out is not None and change.before is not None and is_same(came_out, change.before):
        return
    if change.kind == "replace":
        swap(fs, change.stage, change.path)
    else:
        move(fs, change.stage, change.path)
    raise AgentError("conflict", "the file was changed at the last moment", {"path": change.path})


def sync_all(fs: Fs, transaction: Transaction) -> None:
    """Makes every name the transaction changed durable."""
    for folder in transaction.folders:
        if fs.find(folder) is not None:
            fs.sync_dir(folder)


def swap(fs: Fs, stage: str, path: str) -> None:
    """Exchanges the two names; where the file system cannot, by a link and two renames (never without a file)."""
    try:
        fs.exchange(stage, path)
    except FileNotFoundError as error:
        raise AgentError("conflict", "the file was deleted at the last moment", {"path": path}) from error
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    else:
        return
    _link(fs, path, _spare(stage))
    # Each step durable before the next: a rename that survives a power cut alone would lose the only copy.
    fs.sync_dir(os.path.dirname(stage))
    fs.rename(stage, path)
    fs.sync_dir(os.path.dirname(path))
    fs.sync_dir(os.path.dirname(stage))
    fs.rename(_spare(stage), stage)


def move(fs: Fs, old: str, new: str) -> None:
    """Renames without ever replacing anything."""
    try:
        try:
            fs.rename_noreplace(old, new)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
        else:
            return
        _link(fs, old, new)
        fs.sync_dir(os.path.dirname(new))
        fs.unlink(old)
    except FileExistsError as error:
        raise AgentError("conflict", "somebody made the file at the last moment", {"path": new}) from error
    except FileNotFoundError as error:
        raise AgentError("conflict", "the file was deleted at the last moment", {"path": old}) from error


def _link(fs: Fs, old: str, new: str) -> None:
    try:
        fs.link(old, new)
    except OSError as error:
        if error.errno not in (*_CANNOT, errno.EPERM):
            raise
        what = "the file system can neither exchange two files nor link them"
        raise AgentError("refused", what, {"path": old}) from error


def merged_name(change: Change) -> str:
    """Where a merged version waits, when a person decided for one."""
    return change.stage + ".merged"


def _spare(stage: str) -> str:
    return stage + "~"


def read_back(fs: Fs, transaction: Transaction) -> List[Tuple[Change, Optional[Identity]]]:
    """What lies at every path now; `conflict` where that is not what we put there."""
    seen = []
    for change in transaction.changes:
        now = identify(fs, change.path)
        is_as_meant = now is None if change.after is None else now is not None and is_same(now, change.after)
        if not is_as_meant:
            raise AgentError("conflict", "the file was changed right after we had changed it", {"path": change.path})
        seen.append((change, now))
    return seen


# -- back --------------------------------------------------------------------------------------------------------


class Undone(NamedTuple):
    """The end of an undo: `held` is not empty when it stopped for somebody else's sake. `kept` are directories we made
    that somebody uses now, `now` is what lies at each path as given."""

    held: List[Dict[str, Any]]
    kept: List[str]
    now: List[Tuple[str, Optional[Identity]]]


def undo(
    fs: Fs,
    place: Place,
    transaction: Transaction,
    placed: Sequence[Optional[bool]],
    touched: Set[str],
    intend: Callable[[List[str]], None],
) -> Undone:
    """Takes a transaction back, wholly or not at all.

    `placed` is, per file, whether our version had reached its path (None: unknown). `touched` are directories whose
    time somebody else changed. `intend` gets the verdicts and makes them durable before anything moves.
    """
    for change in transaction.changes:
        _settle_names(fs, change)
    seen = [_look(fs, change) for change in transaction.changes]
    verdicts = [decide(change, *seen[index], placed[index]) for index, change in enumerate(transaction.changes)]
    held = [
        describe_held(change, verdicts[index], *seen[index])
        for index, change in enumerate(transaction.changes)
        if verdicts[index].action == HOLD
    ]
    if held:
        return Undone(held, [], [])
    intend([verdict.action for verdict in verdicts])
    for index, change in enumerate(transaction.changes):
        if verdicts[index].action == BACK:
            held.extend(_try_back(fs, change, seen[index][0]))
    sync_all(fs, transaction)
    if held:
        return Undone(held, [], [])
    drop_compiled(fs, place, transaction)
    kept = clear_away(fs, transaction)
    restore_times(fs, transaction, touched)
    return Undone([], kept, _look_back(fs, transaction, verdicts))


def describe_held(
    change: Change, verdict: Verdict, now: Optional[Identity], parked: Optional[Identity]
) -> Dict[str, Any]:
    """A `Held` of the protocol; `stage` also names what lies there when it is not the original."""
    is_original = change.before is not None and parked is not None and parked.ino == change.before.ino
    return {
        "path": change.given,
        "why": verdict.why,
        "found_at": change.stage if is_original else None,
        "stage": change.stage if parked is not None else None,
        "ours_sha256": change.after.sha256 if change.after else None,
        "theirs_sha256": now.sha256 if now else None,
    }


def _settle_names(fs: Fs, change: Change) -> None:
    """Finishes what a crash within `swap` or `move` left where the file system cannot exchange."""
    spare, stage, path = fs.find(_spare(change.stage)), fs.find(change.stage), fs.find(change.path)
    if spare is not None and stage is None:
        fs.rename(_spare(change.stage), change.stage)
        fs.sync_dir(os.path.dirname(change.stage))  # before the spare name is used again
        stage = spare
    elif spare is not None:
        fs.unlink(_spare(change.stage))
    if change.before is None and stage is not None and path is not None and stage.ino == path.ino:
        fs.unlink(change.stage)  # of ours; a second name of the original stays until the first is durable


def _look(fs: Fs, change: Change) -> Tuple[Optional[Identity], Optional[Identity]]:
    """What lies at the path and what is parked; nothing is, when both names are of one file."""
    now, parked = identify(fs, change.path), identify(fs, change.stage)
    return now, None if now is not None and parked is not None and now.ino == parked.ino else parked


def _try_back(fs: Fs, change: Change, expected: Optional[Identity]) -> List[Dict[str, Any]]:
    """`_put_back`, where a name that came or went in the last moment is held too."""
    try:
        return _put_back(fs, change, expected)
    except AgentError as error:
        if error.kind != "conflict":
            raise
        verdict = Verdict(HOLD, error.what)
        return [describe_held(change, verdict, identify(fs, change.path), identify(fs, change.stage))]


def _put_back(fs: Fs, change: Change, expected: Optional[Identity]) -> List[Dict[str, Any]]:
    """Undoes one swap or move. What comes out must be what was seen before; else it goes back, and is held."""
    if change.kind == "delete":
        move(fs, change.stage, change.path)
        return []
    if change.kind == "replace":
        swap(fs, change.stage, change.path)
    else:
        move(fs, change.path, change.stage)
    came_out = identify(fs, change.stage)
    if came_out is not None and expected is not None and is_same_but_time(came_out, expected):
        return []
    (swap if change.kind == "replace" else move)(fs, change.stage, change.path)
    verdict = Verdict(HOLD, "somebody changed the file while we were putting the original back")
    return [describe_held(change, verdict, came_out, identify(fs, change.stage))]


def drop_compiled(fs: Fs, place: Place, transaction: Transaction) -> None:
    """Below our bytecode prefix, by either spelling of the path; the tree's own `__pycache__` is never touched."""
    sources = [name for change in transaction.changes for name in (change.path, change.given)]
    bytecode.drop_below_prefix(fs, place.pycache_dir, sources)


def clear_away(fs: Fs, transaction: Transaction) -> List[str]:
    """Removes what is staged and the directories we made; returns those that somebody uses."""
    for change in transaction.changes:
        for name in (change.stage, merged_name(change)):
            if fs.find(name) is not None:
                fs.unlink(name)
    kept = []
    for made in reversed(transaction.made_dirs):
        if fs.find(made) is None:
            continue
        if fs.names(made):
            kept.append(made)
        else:
            fs.rmdir(made)
    return kept


def restore_times(fs: Fs, transaction: Transaction, touched: Set[str]) -> None:
    """Puts directory times back where the entries are the same as before, then syncs."""
    for folder, (mtime_ns, names) in sorted(transaction.dirs.items()):
        found = fs.find(folder)
        if found is None or found.kind != "dir" or folder in touched or found.mtime_ns == mtime_ns:
            continue
        if names_digest(fs, folder) == names:
            fs.set_dir_time(folder, mtime_ns)
    sync_all(fs, transaction)


def _look_back(fs: Fs, transaction: Transaction, verdicts: Sequence[Verdict]) -> List[Tuple[str, Optional[Identity]]]:
    """Reads every path again; a file that is not as it was found must have been left to somebody else."""
    seen = []
    for index, change in enumerate(transaction.changes):
        now = identify(fs, change.path)
        is_back = now is None if change.before is None else now is not None and is_same(now, change.before)
        if not is_back and verdicts[index].action != LEAVE:
            raise AgentError("dirty", "the file is not as it was found after the revert", {"path": change.path})
        seen.append((change.given, now))
    return seen
