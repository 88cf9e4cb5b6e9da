"""The journal on the host: what is about to happen, on disk before it happens.

A preallocated file of records, each a multiple of 512 bytes: magic, sequence number, length, CRC32, JSON. A record is
durable when `append` returns, or with the next one where it only tells an outcome. The first record that does not check
out ends the journal: it is the one that was being written when the machine stopped.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import zlib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs

CAPACITY_BYTES = 1 << 20
SECTOR_BYTES = 512
_MAGIC = b"ORCJ"
_HEAD = struct.Struct("<4sQII")  # magic, sequence number, payload bytes, CRC32 of sequence number, length and payload
_CHUNK = 1 << 16


class Record(NamedTuple):
    """One journal record; `seq` counts up by one and never starts again."""

    seq: int
    kind: str
    data: Dict[str, Any]


def encode(seq: int, kind: str, data: Mapping[str, Any]) -> bytes:
    """A record as it lies on disk, padded to whole sectors."""
    payload = json.dumps([kind, data], separators=(",", ":")).encode("ascii")
    check = zlib.crc32(struct.pack("<QI", seq, len(payload)) + payload)
    frame = _HEAD.pack(_MAGIC, seq, len(payload), check) + payload
    return frame + bytes(-len(frame) % SECTOR_BYTES)


def decode(raw: bytes, offset: int = 0) -> Optional[Tuple[Record, int]]:
    """The record at `offset` and the bytes it takes, or None when there is no whole one."""
    if len(raw) < offset + _HEAD.size:
        return None
    magic, seq, length, check = _HEAD.unpack_from(raw, offset)
    payload = raw[offset + _HEAD.size : offset + _HEAD.size + length]
    if magic != _MAGIC or len(payload) != length:
        return None
    if zlib.crc32(struct.pack("<QI", seq, length) + payload) != check:
        return None
    kind, data = json.loads(payload.decode("ascii"))
    size = _HEAD.size + length
    return Record(seq, kind, data), size + -size % SECTOR_BYTES


class Journal:
    """An open journal. One writer: whoever holds the lock of the tree."""

    def __init__(self, fs: Fs, path: str, fd: int) -> None:
        self._fs = fs
        self._path = path
        self._fd = fd
        self._records: List[Record] = []
        self._is_name_durable = False
        self.used_bytes = 0
        self.capacity_bytes = fs.fstat(fd).size
        self._read()

    @classmethod
    def open(cls, fs: Fs, path: str) -> Journal:
        """Opens the journal at `path`, or makes an empty one; `refused` when there is no room for it."""
        if fs.find(path + ".new") is not None:
            fs.unlink(path + ".new")
        if fs.find(path) is None:
            fs.close(_make(fs, path, b""))
        return cls(fs, path, fs.open(path, os.O_RDWR | os.O_NOFOLLOW))

    @property
    def next_seq(self) -> int:
        return self._records[-1].seq + 1 if self._records else 1

    def records(self) -> Sequence[Record]:
        """All records, oldest first."""
        return self._records

    def append(self, kind: str, data: Mapping[str, Any], *, can_wait: bool = False) -> int:
        """Writes one record and returns its number once it is durable, and with it all before it: those of a process
        that was killed may have been in memory only, and the first record of an epoch precedes every effect.

        `can_wait`: durable with the next record. For outcomes whose loss has recovery do once more what is done.

        When this fails the record may or may not be there; the next one takes its place.
        """
        if not self._is_name_durable:  # it may have been made by a process that was killed
            self._fs.sync_dir(os.path.dirname(self._path))
            self._is_name_durable = True
        seq = self.next_seq
        frame = encode(seq, kind, data)
        self.reserve(len(frame))
        self._fs.pwrite_all(self._fd, frame, self.used_bytes)
        if not can_wait:
            self._fs.fdatasync(self._fd)
        self.used_bytes += len(frame)
        written = decode(frame)
        assert written is not None
        self._records.append(written[0])  # what a later process will read, not the caller's mutable objects
        return seq

    def reserve(self, size_bytes: int) -> None:
        """Makes sure that so many bytes can be appended; `refused` on a full disk, with nothing changed."""
        need = self.used_bytes + size_bytes
        if need <= self.capacity_bytes:
            return
        capacity = need + -need % CAPACITY_BYTES
        try:
            self._fs.fallocate(self._fd, capacity)
        except OSError as error:
            raise _no_room(error, self._path) from error
        self.capacity_bytes = capacity  # durable with the record for which it is made

    def compact(self, keep: Sequence[Tuple[str, Mapping[str, Any]]]) -> None:
        """Starts a fresh journal that holds `keep` only; a crash leaves the old or the new one, whole."""
        seq = self.next_seq
        frames = [encode(seq + index, kind, data) for index, (kind, data) in enumerate(keep)]
        self._is_name_durable = False  # until the next record; the old journal says the same
        try:
            fd = _make(self._fs, self._path, b"".join(frames))
        except (OSError, AgentError):
            # It may have happened already: go on with the file that has the name now.
            self._switch(self._fs.open(self._path, os.O_RDWR | os.O_NOFOLLOW))
            raise
        self._switch(fd)

    def _switch(self, fd: int) -> None:
        self._fs.close(self._fd)
        self._fd, self._records, self.used_bytes = fd, [], 0
        self.capacity_bytes = self._fs.fstat(fd).size
        self._read()

    def close(self) -> None:
        self._fs.close(self._fd)

    def _read(self) -> None:
        raw = b""
        while self.used_bytes < self.capacity_bytes:
            found = decode(raw)
            if found is None:
                more = self._fs.pread(self._fd, _CHUNK, self.used_bytes + len(raw))
                if not more or not _may_continue(raw + more):
                    return
                raw += more
                continue
            record, size = found
            if self._records and record.seq != self._records[-1].seq + 1:
                return
            self._records.append(record)
            self.used_bytes += size
            raw = raw[size:]


def _may_continue(raw: bytes) -> bool:
    """Whether reading on can complete the record at the start of `raw`."""
    if decode(raw) is not None:
        return True
    if len(raw) < _HEAD.size:
        return True
    magic, _, length, _ = _HEAD.unpack_from(raw)
    return bool(magic == _MAGIC and len(raw) < _HEAD.size + length)


def _make(fs: Fs, path: str, content: bytes) -> int:
    """A journal file at `path` with this content, which is durable; its name is not yet. Returns its descriptor."""
    fresh = path + ".new"
    fd = fs.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        fs.fallocate(fd, max(CAPACITY_BYTES, 2 * len(content)))
        fs.pwrite_all(fd, content, 0)
        fs.fsync(fd)
        fs.rename(fresh, path)
    except BaseException as error:
        fs.close(fd)
        if not isinstance(error, OSError):
            raise
        if fs.find(fresh) is not None:
            fs.unlink(fresh)
        raise _no_room(error, path) from error
    return fd


def _no_room(error: OSError, path: str) -> Exception:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return error
    return AgentError(
        "refused",
        "no room for the journal, so nothing was changed",
        {"path": path, "errno": str(error.errno)},
        "free a few MiB there, or name another file system with journal_dir",
    )
