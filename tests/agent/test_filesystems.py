"""Apply and revert on the file systems that hosts have, with and without the exchange of names, and with a full disk.

Loop mounts need root; a file system that cannot be had here is skipped with the reason. ext4 and tmpfs are had
wherever root is; `pytest tests/agent/test_filesystems.py` with xfsprogs and btrfs-progs installed covers them all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.tree import Tree
from tests.agent import scene
from tests.agent.test_files import OldFs
from tests.faults import disks

KINDS = ["ext4", "xfs", "btrfs", "overlay", "tmpfs"]
WAYS: dict[str, Callable[[], Fs]] = {"exchange": Fs, "links": OldFs}
"""How a file comes to its place: `renameat2` with RENAME_EXCHANGE, or link and rename where the kernel has none."""
DECORATED = "user.orchestrator-test"


def plant(root: str) -> None:
    """The usual small tree, with an attribute, a hard link to the outside and a symbolic link."""
    scene.plant(root)
    os.setxattr(f"{root}/a.py", DECORATED, b"kept")
    os.link(f"{root}/a.py", f"{os.path.dirname(root)}/other-name")
    os.symlink("a.py", f"{root}/link.py")
    for path in (root, f"{root}/a.py"):
        os.utime(path, ns=(10**18, 10**18 + 123_456_789))


@pytest.fixture(params=KINDS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A tree on a file system of its own; on the overlay all of it comes from the layer below."""
    kind = str(request.param)
    if reason := disks.why_not(kind):
        pytest.skip(f"{kind}: {reason}")
    if kind == "overlay":
        plant_below(tmp_path)
    with disks.any_disk(kind, tmp_path) as point:
        if kind != "overlay":
            plant(f"{point}/tree")
        yield f"{point}/tree"


def plant_below(work: Path) -> None:
    """`disks.overlay` makes the layer below at `lower`; it must be filled before it is mounted."""
    plant(str(work / "lower" / "tree"))


@pytest.fixture(params=sorted(WAYS))
def fs(request: pytest.FixtureRequest) -> Fs:
    return WAYS[str(request.param)]()


def test_what_is_applied_is_in_place_and_everything_comes_back(root: str, fs: Fs) -> None:
    """A replaced, a created and a deleted file, three times over: while applied content and rights are as wanted;
    after it content, rights, owner, times, attributes, inode and links are as found, and nothing is staged."""
    before = without_layers(root)
    for number in range(3):
        with closing_at_last(scene.take(root, fs)) as tree:
            tree.snapshot()
            tree.apply(f"t{number}", scene.three_changes(root))
            during = scene.picture(root)
            assert during[f"{root}/a.py"][6] == scene.NEW_A
            assert during[f"{root}/a.py"][:3] == before[f"{root}/a.py"][:3]
            assert during[f"{root}/new/sub/c.py"][6] == scene.NEW_C
            assert f"{root}/pkg/b.py" not in during
            tree.revert(f"t{number}", "test")
            assert without_layers(root) == before
            assert scene.staged(tree) == []
            assert tree.verify()["clean"] is True
            tree.close()


def test_going_back_needs_not_one_free_byte(root: str, fs: Fs) -> None:
    """The disk is filled to the last byte while the change is in place; then the change is reverted and proved.

    btrfs writes each block of the journal anew and may find no room for it: then nothing has moved, the change stays
    open, and goes back as soon as there is room."""
    before = without_layers(root)
    with closing_at_last(scene.take(root, fs)) as tree:
        tree.snapshot()
        tree.apply("t", scene.three_changes(root))
        during = without_layers(root)
        ballast = disks.fill(Path(root).parent)
        with pytest.raises(OSError, match="No space"):
            (Path(root).parent / "one more").write_bytes(b"x" * 65536)
        try:
            tree.revert("t", "test")
        except AgentError as error:
            assert type_of(root) == "btrfs", error
            assert error.kind == "failed"
            assert without_layers(root) == during
            ballast.unlink()
            assert tree.recover_files("there is room again")["state"] == "clean"
        assert without_layers(root) == before
        assert scene.staged(tree) == []
        ballast.unlink(missing_ok=True)
        assert tree.verify()["clean"] is True


def test_a_change_that_fails_half_way_leaves_everything_as_found(root: str, fs: Fs) -> None:
    """The last of the files is not what the change was made for."""
    before = without_layers(root)
    changes = scene.three_changes(root)
    changes[-1]["before_sha256"] = "0" * 64
    with closing_at_last(scene.take(root, fs)) as tree:
        with pytest.raises(AgentError) as failed:
            tree.apply("t", changes)
        assert failed.value.kind == "conflict"
        assert without_layers(root) == before
        assert scene.staged(tree) == []


def without_layers(root: str) -> dict[str, tuple[object, ...]]:
    """The picture of the tree. An overlay copies a file up when it is first moved, which gives it another inode and
    link count: byte-exact, not layer-exact."""
    seen = scene.picture(root)
    if type_of(root) != "overlay":
        return dict(seen)
    return {path: (*meta[:4], *meta[6:]) if os.path.isfile(path) else meta for path, meta in seen.items()}


def type_of(root: str) -> str:
    """The type of the innermost mount that the tree lies on."""
    mounts = [mount for mount in Fs().mounts() if root.startswith(mount.point.rstrip("/") + "/")]
    return max(mounts, key=lambda mount: len(mount.point)).type


@contextmanager
def closing_at_last(tree: Tree) -> Iterator[Tree]:
    """Lets go of the tree, so that its disk can be unmounted whatever a test found."""
    try:
        yield tree
    finally:
        tree.leave()
