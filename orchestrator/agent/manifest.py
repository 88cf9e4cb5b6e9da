"""The proof: every path of a tree with everything we promise to leave as it was, and one digest over all.

Access and change times are not in it, nor are the sizes and link counts of directories (file systems let them grow and
never shrink). Directory mtimes are in it.
"""

from __future__ import annotations

import hashlib
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from orchestrator.agent.fs import Fs, Stat
from orchestrator.agent.identity import xattrs_digest

_BIG_BYTES = 1 << 17


class Entry(NamedTuple):
    """One path. `kind`: file, dir, link, other, absent; `sha256` is empty for what is not a readable file."""

    kind: str
    sha256: str = ""
    size: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    nlink: int = 0
    target: str = ""
    xattrs_sha256: str = ""


class Manifest:
    """Path → `Entry`, in the order of the paths."""

    def __init__(self, entries: Dict[str, Entry]) -> None:
        self.entries = dict(sorted(entries.items()))
        self.digest = self._digest()

    @property
    def files(self) -> int:
        return sum(entry.kind == "file" for entry in self.entries.values())

    @property
    def size_bytes(self) -> int:
        return sum(entry.size for entry in self.entries.values())

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for path, entry in self.entries.items():
            digest.update(repr((path, *entry)).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def as_json(self) -> bytes:
        return json.dumps({path: list(entry) for path, entry in self.entries.items()}).encode("ascii")

    @classmethod
    def from_json(cls, raw: bytes) -> Manifest:
        return cls({path: Entry(*fields) for path, fields in json.loads(raw.decode("ascii")).items()})


def manifest(fs: Fs, paths: Sequence[str], excludes: Iterable[str] = ()) -> Manifest:
    """Reads everything below `paths`; `excludes` are left out with all below them. No link is followed."""
    entries: Dict[str, Entry] = {}
    left_out = set(excludes)
    files: List[Tuple[str, Stat]] = []
    waiting: List[Tuple[str, Optional[Stat]]] = [(path, fs.find(path)) for path in sorted(set(paths) - left_out)]
    while waiting:
        path, found = waiting.pop()
        if path in entries:  # a guarded path within the tree
            continue
        if found is None:
            entries[path] = Entry("absent")
        elif found.kind == "file":
            entries[path] = Entry("file")  # its place in the order; filled in below
            files.append((path, found))
        else:
            entries[path] = _look(fs, path, found, "", fs.xattrs(path))
            if found.kind == "dir":
                base = path.rstrip("/")
                children = [(f"{base}/{name}", there) for name, there in fs.scan(path)]
                waiting.extend(child for child in children if child[0] not in left_out)
    entries.update(_read_all(fs, files))
    return Manifest(entries)


def difference(found: Manifest, now: Manifest) -> List[Dict[str, Any]]:
    """`Difference`s of the protocol without `ours`: changed, missing, extra, in the order of the paths."""
    report = []
    for path in sorted(found.entries.keys() | now.entries.keys()):
        was, is_now = found.entries.get(path), now.entries.get(path)
        if was == is_now:
            continue
        is_extra = was is None or was.kind == "absent"
        is_missing = is_now is None or is_now.kind == "absent"
        if is_extra and is_missing:
            continue
        what = "extra" if is_extra else "missing" if is_missing else "changed"
        report.append({"path": path, "what": what, "found": _as_dict(was), "now": _as_dict(is_now)})
    return report


def _as_dict(entry: Optional[Entry]) -> Optional[Dict[str, Any]]:
    return None if entry is None or entry.kind == "absent" else dict(entry._asdict())


def _look(fs: Fs, path: str, found: Stat, sha256: str, xattrs: Dict[str, bytes]) -> Entry:
    is_dir = found.kind == "dir"
    return Entry(
        found.kind,
        sha256,
        0 if is_dir else found.size,
        stat.S_IMODE(found.mode),
        found.uid,
        found.gid,
        found.mtime_ns,
        1 if is_dir else found.nlink,
        fs.readlink(path) if found.kind == "link" else "",
        xattrs_digest(xattrs),
    )


def _read_all(fs: Fs, files: Sequence[Tuple[str, Stat]]) -> Dict[str, Entry]:
    """Hashes the files, large ones in a thread of their own: only there hashing outweighs the interpreter lock."""
    big = [file for file in files if file[1].size >= _BIG_BYTES]
    small = [file for file in files if file[1].size < _BIG_BYTES]
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(_read_some, fs, big)
        entries = _read_some(fs, small)
        entries.update(ahead.result())
    return entries


def _read_some(fs: Fs, files: Iterable[Tuple[str, Stat]]) -> Dict[str, Entry]:
    return {path: _read_one(fs, path, found) for path, found in files}


def _read_one(fs: Fs, path: str, found: Stat) -> Entry:
    try:
        return _look(fs, path, found, *fs.digest(path, found.size))
    except FileNotFoundError:  # gone since it was listed
        return Entry("absent")
    except PermissionError:  # not readable for us, so not writable by us either: its metadata must do
        return _look(fs, path, found, "", fs.xattrs(path))
