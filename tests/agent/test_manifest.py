"""The proof notices everything it promises to notice, and nothing else."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.agent.fs import Fs
from orchestrator.agent.manifest import Manifest, difference, manifest
from tests.agent import scene


@pytest.fixture
def root(tmp_path: Path) -> str:
    scene.plant(f"{tmp_path}/tree")
    os.symlink("a.py", f"{tmp_path}/tree/link")
    os.mkfifo(f"{tmp_path}/tree/pipe")
    return f"{tmp_path}/tree"


def _set_xattr(root: str) -> None:
    try:
        os.setxattr(f"{root}/a.py", "user.note", b"x")
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EOPNOTSUPP):
            pytest.skip("no extended attributes here")
        raise


def _relink(root: str) -> None:
    os.unlink(f"{root}/link")
    os.symlink("pkg", f"{root}/link")


def _edit_unseen(root: str) -> None:
    """Same size, same time."""
    found = os.stat(f"{root}/a.py")
    with open(f"{root}/a.py", "r+b") as file:
        file.write(b"D")
    os.utime(f"{root}/a.py", ns=(found.st_atime_ns, found.st_mtime_ns))


EDITS: dict[str, tuple[Callable[[str], object], str, str]] = {
    "content": (_edit_unseen, "a.py", "changed"),
    "mode": (lambda root: os.chmod(f"{root}/a.py", 0o600), "a.py", "changed"),
    "time": (lambda root: os.utime(f"{root}/a.py", ns=(5, 5)), "a.py", "changed"),
    "attribute": (_set_xattr, "a.py", "changed"),
    "target": (_relink, "link", "changed"),
    "deleted": (lambda root: os.unlink(f"{root}/pkg/b.py"), "pkg/b.py", "missing"),
    "added": (lambda root: open(f"{root}/pkg/x", "w").close(), "pkg/x", "extra"),
    "hard link": (lambda root: os.link(f"{root}/a.py", f"{root}/../outside"), "a.py", "changed"),
    "directory mode": (lambda root: os.chmod(f"{root}/pkg", 0o700), "pkg", "changed"),
    "directory time": (lambda root: os.utime(f"{root}/pkg", ns=(5, 5)), "pkg", "changed"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_noticed(root: str, name: str) -> None:
    """One kind of edit, one path in the report."""
    edit, path, what = EDITS[name]
    found = manifest(Fs(), [root])
    edit(root)
    now = manifest(Fs(), [root])
    assert found.digest != now.digest
    assert (f"{root}/{path}", what) in [(entry["path"], entry["what"]) for entry in difference(found, now)]


def test_reading_is_not_noticed(root: str) -> None:
    """Access and change times are not in it."""
    found = manifest(Fs(), [root])
    Path(f"{root}/a.py").read_bytes()
    os.chmod(f"{root}/a.py", os.stat(f"{root}/a.py").st_mode)
    assert manifest(Fs(), [root]).digest == found.digest


def test_it_survives_being_written_down(root: str) -> None:
    """With names of any bytes."""
    with open(os.fsencode(root) + b"/\xff\n", "w"):
        pass
    found = manifest(Fs(), [root])
    again = Manifest.from_json(found.as_json())
    assert again.entries == found.entries
    assert again.digest == found.digest


def test_what_is_excluded_is_not_read(root: str) -> None:
    """With everything below it."""
    found = manifest(Fs(), [root], [f"{root}/pkg"])
    assert [os.path.relpath(path, root) for path in found.entries] == [".", "a.py", "link", "pipe"]


def test_a_guarded_file_that_appears_is_an_extra(root: str) -> None:
    """Absence is recorded too."""
    found = manifest(Fs(), [f"{root}/none"])
    assert difference(found, found) == []
    with open(f"{root}/none", "w"):
        pass
    assert [entry["what"] for entry in difference(found, manifest(Fs(), [f"{root}/none"]))] == ["extra"]


def test_a_large_tree_is_proved_quickly(tmp_path: Path) -> None:
    """2,000 files of 20 kB, warm: their share of the 300 ms that 5,000 files of 100 MB may take, fourfold for machines
    that are busy."""
    content = b"x = 1\n" * 3400
    for number in range(2000):
        folder = tmp_path / str(number % 40)
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.py").write_bytes(content)
    fs = Fs()
    manifest(fs, [str(tmp_path)])
    started = time.process_time()
    found = manifest(fs, [str(tmp_path)])
    assert found.files == 2000
    assert time.process_time() - started < 0.12 * 4
