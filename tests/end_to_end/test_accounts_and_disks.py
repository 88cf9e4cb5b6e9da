"""Permissions and full disks: refusals that say what to do, and a host as it was."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.model import Route
from orchestrator.errors import OrchestratorError, Refused
from orchestrator.hosts import Connection, connect

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act for another account")


def open_tree(connection: Connection, root: Path, **more: Any) -> dict[str, Any]:
    holder = {"token": "t", "name": "test", "pid": os.getpid()}
    return connection.call("open", {"root": str(root), "guarded": [], "holder": holder, "lease_s": 30.0, **more})


def replace(path: Path, after: bytes) -> dict[str, Any]:
    return {
        "path": str(path),
        "kind": "replace",
        "before_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "content_b64": base64.b64encode(after).decode(),
        "mode": None,
    }


@pytest.fixture
def as_nobody(tmp_path: Path) -> Iterator[Connection]:
    """An agent under an ordinary account, reached through a hop."""
    if not Path(SYSTEM_PYTHON).exists():
        pytest.skip(f"no {SYSTEM_PYTHON} that other accounts can run")
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent != Path("/tmp") and str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    hop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env", f"HOME={home}"]
    route = Route.model_validate({"hops": [hop], "python": SYSTEM_PYTHON})
    connection = connect(route, name="nobody")
    yield connection
    connection.close()


@needs_root
def test_an_ordinary_account_changes_what_it_owns(as_nobody: Connection, tmp_path: Path) -> None:
    """Apply, revert and proof need no root where the tree is the account's own."""
    root = tmp_path / "own" / "pkg"
    root.mkdir(parents=True)
    file = root / "a.py"
    file.write_bytes(b"x = 1\n")
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(tmp_path / "own")], check=True)
    before = file.stat()
    open_tree(as_nobody, root)
    as_nobody.call("snapshot")
    as_nobody.call("apply", {"txn": "1", "files": [replace(file, b"x = 2\n")]})
    assert file.read_bytes() == b"x = 2\n"
    as_nobody.call("revert", {"txn": "1", "reason": "test"})
    after = file.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_uid) == (before.st_ino, before.st_mtime_ns, NOBODY)
    assert as_nobody.call("verify")["clean"] is True
    as_nobody.call("close")


@needs_root
def test_an_ordinary_account_is_refused_what_it_does_not_own(as_nobody: Connection, tmp_path: Path) -> None:
    """A tree of root's is refused with the way out, and stays as it is."""
    root = tmp_path / "roots" / "pkg"
    root.mkdir(parents=True)
    (root / "a.py").write_bytes(b"x = 1\n")
    with pytest.raises(Refused) as refused:
        open_tree(as_nobody, root)
        as_nobody.call("snapshot")
        as_nobody.call("apply", {"txn": "1", "files": [replace(root / "a.py", b"x = 2\n")]})
    assert refused.value.hint
    assert sorted(p.name for p in root.parent.rglob("*")) == ["a.py", "pkg"]
    assert (root / "a.py").read_bytes() == b"x = 1\n"


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    mount = tmp_path / "tiny"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(mount)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def fill(disk: Path) -> None:
    """Not a byte is left."""
    with (disk / "ballast").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


@needs_root
@pytest.mark.parametrize("when", ["before open", "before apply", "before revert"])
def test_a_full_disk_is_refused_or_reverted_without_a_byte(tiny_disk: Path, when: str) -> None:
    """Before the change: a refusal with a hint, nothing changed. After it: the revert needs no free space."""
    root = tiny_disk / "pkg"
    root.mkdir()
    file = root / "a.py"
    file.write_bytes(b"x = 1\n")
    with connect(Route(), name="tiny") as connection:
        if when == "before open":
            fill(tiny_disk)
        try:
            open_tree(connection, root)
            connection.call("snapshot")
            if when == "before apply":
                fill(tiny_disk)
            connection.call("apply", {"txn": "1", "files": [replace(file, b"x = 2" + b"#" * 30000 + b"\n")]})
        except OrchestratorError as error:
            assert when != "before revert", error
            assert error.exit_code == 5
            assert "full" in (error.hint or "") or "space" in error.what
        else:
            fill(tiny_disk)
            connection.call("revert", {"txn": "1", "reason": "test"})
            assert connection.call("verify")["clean"] is True
        assert file.read_bytes() == b"x = 1\n"
        assert {p.name for p in root.iterdir()} <= {"a.py"}
