"""GPUs and ports, which trees may share: one controller each, on the whole machine.

A claim is a file in a directory that every account can use, named by what is claimed: a device by its number (a
container has nodes of its own), an ordinary file by device and inode, a port by network namespace. Its holder has the
kernel's lock on it; the record in it says who, and until when, and outlives the holder as the lease does. It is never
synced: a reboot ends it anyway. The token is in it as a digest only, since anybody can read it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat as stat_bits
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.journal import decode, encode
from orchestrator.agent.lease import Lease, wall_time

_FOLDERS = ("/run/lock", "/tmp")  # noqa: S108 - sticky, and names of ours are opened without following links
_PREFIX = "orchestrator-"
_FILE_BYTES = 4096
_STICKY_FOR_ALL = stat_bits.S_ISVTX | 0o002


class Claim(NamedTuple):
    """An open claim: `what` as a person calls it."""

    what: str
    path: str
    fd: int


def folder_for_claims() -> str:
    """The same for every account of the machine: by the directory's rights, not by ours."""
    for folder in _FOLDERS:
        try:
            mode = os.stat(folder).st_mode
        except FileNotFoundError:
            continue
        if mode & _STICKY_FOR_ALL == _STICKY_FOR_ALL:
            return folder
    raise AgentError("refused", "no directory for locks that every account can use", {"tried": ", ".join(_FOLDERS)})


def key_of(resource: str) -> str:
    """`device:PATH` or `port:NUMBER` → a name that is the same by every route on this machine."""
    kind, _, name = resource.partition(":")
    if kind == "port" and name.isdigit():
        return f"port-{os.stat('/proc/self/ns/net').st_ino}-{name}"
    if kind == "device" and os.path.isabs(name):
        try:
            seen = os.stat(name)
        except FileNotFoundError as error:
            raise AgentError("refused", "there is no such device", {"path": name}) from error
        if stat_bits.S_ISCHR(seen.st_mode):
            return f"device-{os.major(seen.st_rdev)}-{os.minor(seen.st_rdev)}"
        return f"file-{seen.st_dev:x}-{seen.st_ino:x}"
    raise AgentError("usage", f"neither device:PATH nor port:NUMBER: {resource!r}")


class Claims:
    """What one holder of a tree has claimed. Made by `take`."""

    def __init__(self, fs: Fs, state_dir: str, claims: Sequence[Claim] = ()) -> None:
        self._fs = fs
        self._state_dir = state_dir
        self._claims = list(claims)
        self._inherited: List[str] = []

    @property
    def paths(self) -> List[str]:
        return sorted({claim.path for claim in self._claims}.union(self._inherited))

    @classmethod
    def take(
        cls, fs: Fs, state_dir: str, lease: Lease, resources: Sequence[str], now_s: float, folder: Optional[str] = None
    ) -> Claims:
        """All of them, or `busy` with who has the first that is taken, since and until when; then none is."""
        taken = cls(fs, state_dir)
        where = folder or (folder_for_claims() if resources else "")
        keys = {key_of(resource): resource for resource in resources}
        try:
            for key in sorted(keys):  # one order for all, so that two never wait for each other
                taken._claims.append(taken._take_one(os.path.join(where, _PREFIX + key), keys[key], lease, now_s))
            taken.write(lease)
        except BaseException:
            taken.drop()
            raise
        return taken

    def _take_one(self, path: str, what: str, lease: Lease, now_s: float) -> Claim:
        while True:
            fd = _open(self._fs, path)
            try:
                self._refuse_taken(fd, what, lease, now_s)
                there = self._fs.find(path)
                if there is not None and there.ino == self._fs.fstat(fd).ino:
                    return Claim(what, path, fd)
            except BaseException:
                self._fs.close(fd)
                raise
            self._fs.close(fd)  # its holder let go of it and took the name away: there is a newer one

    def _refuse_taken(self, fd: int, what: str, lease: Lease, now_s: float) -> None:
        is_free = self._fs.lock(fd)
        record = _read(self._fs, fd)
        if not is_free or (record is not None and self._is_others(record, lease, now_s)):
            raise _busy(what, record, now_s, lease.since_s)

    def _is_others(self, record: Dict[str, Any], lease: Lease, now_s: float) -> bool:
        is_valid = record["boot_id"] == lease.boot_id and now_s < record["deadline_s"]
        is_own = record["state_dir"] == self._state_dir or record["token_sha256"] == _digest(lease.token)
        return is_valid and not is_own

    def inherit(self, paths: Sequence[str]) -> None:
        """Claims of this tree's lease before ours: given back with ours."""
        mine = {claim.path for claim in self._claims}
        self._inherited = [path for path in paths if path not in mine]

    def write(self, lease: Lease) -> None:
        """Who has them, and until when."""
        record = {
            "state_dir": self._state_dir,
            "token_sha256": _digest(lease.token),
            "name": lease.name,
            "host_pid": lease.host_pid,
            "since_s": lease.since_s,
            "boot_id": lease.boot_id,
            "deadline_s": lease.deadline_s,
        }
        frame = encode(lease.epoch, "CLAIM", record)
        for claim in self._claims:
            self._fs.pwrite_all(claim.fd, frame, 0)

    def release(self) -> None:
        """Gives all of them back, those of earlier connections too, and takes the files away."""
        for path in self._inherited:
            self._release_inherited(path)
        for claim in self._claims:
            self._fs.pwrite_all(claim.fd, bytes(_FILE_BYTES), 0)
            _unlink(self._fs, claim.path)
        self._inherited = []
        self.drop()

    def _release_inherited(self, path: str) -> None:
        """Only what is still this tree's, and nobody holds."""
        if self._fs.find(path) is None:
            return
        fd = self._fs.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            record = _read(self._fs, fd) if self._fs.lock(fd) else None
            if record is not None and record["state_dir"] == self._state_dir:
                self._fs.pwrite_all(fd, bytes(_FILE_BYTES), 0)
                _unlink(self._fs, path)
        finally:
            self._fs.close(fd)

    def drop(self) -> None:
        """Lets go of the locks; the records stay, and hold until their time."""
        for claim in self._claims:
            self._fs.close(claim.fd)
        self._claims = []


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _open(fs: Fs, path: str) -> int:
    """Not created in passing: a sticky directory may refuse that for a file of another account."""
    while True:
        try:
            return fs.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            pass  # made below
        try:
            fd = fs.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        except FileExistsError:
            continue  # somebody was faster
        fs.fchmod(fd, 0o666)
        return fd


def _read(fs: Fs, fd: int) -> Optional[Dict[str, Any]]:
    found = decode(fs.pread(fd, _FILE_BYTES, 0))
    return None if found is None else found[0].data


def _unlink(fs: Fs, path: str) -> None:
    """Not possible for a file that another account made in a sticky directory: it is empty, and stays."""
    try:
        fs.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise


def _busy(what: str, record: Optional[Dict[str, Any]], now_s: float, wall_s: float) -> AgentError:
    if record is None:
        facts = {"resource": what, "holder": "unknown", "since": "unknown", "until": "unknown", "host_pid": "unknown"}
        return AgentError("busy", f"another controller is just taking {what}", facts, "try again in a moment")
    until = wall_time(wall_s + record["deadline_s"] - now_s)
    facts = {
        "resource": what,
        "holder": str(record["name"]),
        "since": wall_time(record["since_s"]),
        "until": until,
        "host_pid": str(record["host_pid"]),
        "state_dir": str(record["state_dir"]),
    }
    hint = f"it is free when {record['name']} is done, or at {until} when it stays silent"
    return AgentError("busy", f"{record['name']} holds {what} until {until}, for another tree", facts, hint)
