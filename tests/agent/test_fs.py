"""The file operations that Python does not have by itself, on the real disk."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from orchestrator.agent import linux
from orchestrator.agent.fs import Fs


@pytest.fixture
def fs() -> Fs:
    return Fs()


def put(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_exchange_swaps_the_files_themselves(fs: Fs, tmp_path: Path) -> None:
    """Inodes change places; nothing is copied."""
    one, other = put(tmp_path / "one", "1"), put(tmp_path / "other", "2")
    inodes = os.stat(one).st_ino, os.stat(other).st_ino
    fs.exchange(one, other)
    assert (os.stat(other).st_ino, os.stat(one).st_ino) == inodes


def test_exchange_with_nothing_says_so(fs: Fs, tmp_path: Path) -> None:
    """ENOENT, and the other file stays."""
    one = put(tmp_path / "one", "1")
    with pytest.raises(FileNotFoundError):
        fs.exchange(one, f"{tmp_path}/none")
    assert Path(one).read_text() == "1"


def test_rename_noreplace_never_replaces(fs: Fs, tmp_path: Path) -> None:
    """EEXIST, and both files stay."""
    one, other = put(tmp_path / "one", "1"), put(tmp_path / "other", "2")
    with pytest.raises(FileExistsError):
        fs.rename_noreplace(one, other)
    assert (Path(one).read_text(), Path(other).read_text()) == ("1", "2")
    fs.rename_noreplace(one, f"{tmp_path}/fresh")
    assert not os.path.exists(one)


def test_names_of_any_bytes_work(fs: Fs, tmp_path: Path) -> None:
    """Newlines and bytes that are not UTF-8."""
    one, other = f"{tmp_path}/a\nb", os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    for path in (one, other):
        with open(path, "w"):
            pass
    fs.exchange(one, other)
    assert fs.names(str(tmp_path)) == sorted(["a\nb", os.fsdecode(b"\xff\xfe")])


def test_a_writer_is_noticed(fs: Fs, tmp_path: Path) -> None:
    """Ours or another's: the kernel refuses the lease, the scan names the process."""
    path = put(tmp_path / "file", "1")
    assert fs.writers(path) == []
    with open(path), open(path, "a"):
        assert fs.writers(path) == [os.getpid()]
    assert fs.writers(path) == []


def test_the_scan_alone_finds_a_writer(tmp_path: Path) -> None:
    """For file systems without leases."""
    path = put(tmp_path / "file", "1")
    with open(path):
        assert linux.scan_writers(os.stat(path)) == []
    with open(path, "r+"):
        assert linux.scan_writers(os.stat(path)) == [os.getpid()]


def test_mountinfo_is_read_with_its_escapes() -> None:
    """Spaces and backslashes in paths are octal there."""
    line = rb"36 35 98:0 /a\040b /mnt/c\134d rw,noatime shared:1 - ext4 /dev/r\011oot rw,errors=continue"
    assert linux.parse_mount(line) == linux.Mount("/mnt/c\\d", "/a b", "ext4", "/dev/r\toot")


def test_the_root_mount_is_listed(fs: Fs) -> None:
    """Of this machine."""
    assert "/" in {mount.point for mount in fs.mounts()}


def test_the_lock_excludes_another_descriptor_and_ends_with_it(fs: Fs, tmp_path: Path) -> None:
    """As a second agent, or the end of the first, would see it."""
    path = f"{tmp_path}/lock"
    one, other = (fs.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert fs.lock(one)
    assert not fs.lock(other)
    fs.close(one)
    assert fs.lock(other)
    fs.close(other)


def test_descriptors_are_not_inherited(fs: Fs, tmp_path: Path) -> None:
    """A server that is launched must not hold the lock."""
    fd = fs.open(f"{tmp_path}/lock", os.O_RDWR | os.O_CREAT)
    assert not os.get_inheritable(fd)
    fs.close(fd)


def test_a_file_of_ours_is_replaced_whole(fs: Fs, tmp_path: Path) -> None:
    """No temporary name stays."""
    fs.write_file(f"{tmp_path}/found.json", b"one")
    fs.write_file(f"{tmp_path}/found.json", b"two")
    assert fs.read_file(f"{tmp_path}/found.json") == b"two"
    assert os.listdir(tmp_path) == ["found.json"]


class ShortFs(Fs):
    """Writes one byte at a time."""

    def write(self, fd: int, data: bytes) -> int:
        return super().write(fd, data[:1])


def test_short_writes_are_continued(tmp_path: Path) -> None:
    """Whatever the kernel takes at once."""
    fs = ShortFs()
    fs.write_file(f"{tmp_path}/file", b"0123456789")
    assert fs.read_file(f"{tmp_path}/file") == b"0123456789"


def test_without_the_system_call_the_error_is_enosys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine we know no number for, with an old libc."""
    monkeypatch.setattr(linux.platform, "machine", lambda: "vax")
    monkeypatch.setattr(linux, "find_renameat2", lambda: linux._no_renameat2)
    with pytest.raises(OSError) as caught:
        Fs().exchange(put(tmp_path / "one", "1"), put(tmp_path / "other", "2"))
    assert caught.value.errno == errno.ENOSYS


def test_the_system_call_works_by_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where libc has no wrapper."""
    import ctypes

    class Bare:
        def __init__(self, name: object, use_errno: bool) -> None:
            self.syscall = real(name, use_errno=use_errno).syscall

    real = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", Bare)
    one, other = put(tmp_path / "one", "1"), put(tmp_path / "other", "2")
    Fs().exchange(one, other)
    assert (Path(one).read_text(), Path(other).read_text()) == ("2", "1")


def test_a_content_that_is_known_is_compared_byte_by_byte(tmp_path: Path) -> None:
    """A file of the same size that differs in its last byte gets its own digest, also while the content is known."""
    fs, path = Fs(), tmp_path / "file"
    known = b"x" * 5000
    assert fs.sha256_of(known) == hashlib.sha256(known).hexdigest()
    for content in (known, known[:-1] + b"y", known + b"z", b""):
        path.write_bytes(content)
        assert fs.digest(str(path), len(content))[0] == hashlib.sha256(content).hexdigest()
    fs.forget_contents()
    assert fs.digest(str(path))[0] == hashlib.sha256(b"").hexdigest()
