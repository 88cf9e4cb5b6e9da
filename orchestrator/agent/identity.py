"""What a file is, as far as we promise to bring it back: content, mode, owner, time, extended attributes."""

from __future__ import annotations

import hashlib
import stat
from typing import Any, Dict, NamedTuple, Optional

from orchestrator.agent.fs import Fs, Stat


class Identity(NamedTuple):
    """A regular file at one moment. Mode without the type bits, mtime in nanoseconds, size in bytes."""

    sha256: str
    size: int
    mode: int
    uid: int
    gid: int
    mtime_ns: int
    ino: int
    nlink: int
    xattrs_sha256: str

    def as_dict(self) -> Dict[str, Any]:
        return dict(self._asdict())

    @classmethod
    def from_dict(cls, data: Dict[str, Any]) -> Identity:
        return cls(**data)


def xattrs_digest(xattrs: Dict[str, bytes]) -> str:
    """One digest of all extended attributes; empty when there are none."""
    if not xattrs:
        return ""
    digest = hashlib.sha256()
    for name in sorted(xattrs):
        raw = name.encode("utf-8", "surrogateescape")
        digest.update(b"%d:%s=%d:%s" % (len(raw), raw, len(xattrs[name]), xattrs[name]))
    return digest.hexdigest()


def identify(fs: Fs, path: str) -> Optional[Identity]:
    """The file at `path`, or None when nothing is there.

    Anything else than a regular file gets a digest that no file has, so that it is equal to nothing we know.
    """
    found = fs.find(path)
    if found is None:
        return None
    if found.kind != "file":
        return identity_of(found, f"not a file but a {found.kind}")
    try:
        return _of_file(fs, path, found)
    except FileNotFoundError:  # gone between the two calls
        return None


def _of_file(fs: Fs, path: str, found: Stat) -> Identity:
    sha256, xattrs = fs.digest(path, found.size)
    return identity_of(found, sha256, xattrs_digest(xattrs))


def identity_of(found: Stat, sha256: str, xattrs_sha256: str = "") -> Identity:
    return Identity(
        sha256,
        found.size,
        stat.S_IMODE(found.mode),
        found.uid,
        found.gid,
        found.mtime_ns,
        found.ino,
        found.nlink,
        xattrs_sha256,
    )


def has_same_rights(one: Identity, other: Identity) -> bool:
    """Equal mode, owner, group, ACLs and other extended attributes."""
    return (one.mode, one.uid, one.gid, one.xattrs_sha256) == (other.mode, other.uid, other.gid, other.xattrs_sha256)


def is_same_but_time(one: Identity, other: Identity) -> bool:
    return one.sha256 == other.sha256 and has_same_rights(one, other)


def is_same(one: Identity, other: Identity) -> bool:
    """Equal in everything we promise; inode and link count are the business of the other names."""
    return is_same_but_time(one, other) and one.mtime_ns == other.mtime_ns
