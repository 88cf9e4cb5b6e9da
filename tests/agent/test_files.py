"""Transactions at every crash point: killed, starved, and after a power cut on the weakest disk."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from tests.agent import scene
from tests.agent.scene import FaultFs, Kill
from tests.agent.simfs import SimFs, subsets

SIM_ROOT = "/srv/tree"


@pytest.fixture
def home() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="orchestrator-test-", dir=scene.QUICK) as folder:
        yield folder


@pytest.fixture
def root(home: str) -> str:
    scene.plant(f"{home}/tree")
    return f"{home}/tree"


def apply_and_revert(root: str, fs: Fs) -> None:
    tree = scene.take(root, fs)
    try:
        tree.apply(f"e{tree.epoch}", scene.three_changes(root))
        tree.revert(f"e{tree.epoch}", "done")
    finally:
        tree.leave()


def count_calls(root: str) -> int:
    fs = FaultFs()
    apply_and_revert(root, fs)
    return len(fs.calls)


def recover(root: str, fs: Fs | None = None) -> dict[str, Any]:
    tree = scene.take(root, fs)
    try:
        report = tree.recover_files("test")
        assert tree.open_transaction() is None
        assert scene.staged(tree) == []
        return report
    finally:
        tree.leave()


def test_apply_puts_all_files_in_place_and_revert_brings_all_back(root: str) -> None:
    """Content and rights while applied; the original inode with its times after."""
    before = scene.picture(root)
    tree = scene.take(root)
    applied = tree.apply("e1", scene.three_changes(root))
    during = scene.picture(root)
    assert [file["path"] for file in applied["files"]] == [f"{root}/a.py", f"{root}/new/sub/c.py", f"{root}/pkg/b.py"]
    assert during[f"{root}/a.py"][:3] == before[f"{root}/a.py"][:3]
    assert during[f"{root}/a.py"][6] == scene.NEW_A
    assert during[f"{root}/new/sub/c.py"][6] == scene.NEW_C
    assert f"{root}/pkg/b.py" not in during
    reverted = tree.revert("e1", "done")
    assert scene.picture(root) == before
    assert [file["now"]["sha256"] if file["now"] else None for file in reverted["files"]] == [
        scene.sha(scene.OLD_A),
        None,
        scene.sha(scene.OLD_B),
    ]
    assert scene.staged(tree) == []
    tree.close()


def test_a_kill_at_any_call_is_recovered_by_the_next_agent(root: str) -> None:
    """Crash point by crash point, from the taking of the tree to the last record."""
    before = scene.picture(root)
    apply_and_revert(root, Fs())  # makes the state directory, so that only its use is counted
    for at in range(1, count_calls(root) + 1):
        with pytest.raises(Kill):
            apply_and_revert(root, FaultFs(at))
        assert recover(root)["state"] == "clean"
        assert scene.picture(root) == before, f"killed at call {at}"


def test_a_kill_while_the_state_directory_is_made_is_harmless(home: str) -> None:
    """Every call of a first visit."""
    for at in range(1, 200):
        root = f"{home}/{at}/tree"
        scene.plant(root)
        before = scene.picture(root)
        fs = FaultFs(at)
        try:
            apply_and_revert(root, fs)
        except Kill:
            recover(root)
            assert scene.picture(root) == before
        else:
            assert len(fs.calls) < at
            return
    pytest.fail("no end of calls")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
def test_an_error_at_any_call_leaves_or_brings_back_what_was_found(root: str, number: int, for_ever: bool) -> None:
    """The agent itself undoes it, or says that it could not; then the next one does, on a healthy disk."""
    before = scene.picture(root)
    apply_and_revert(root, Fs())
    for at in range(1, count_calls(root) + 1):
        tree = None
        try:
            tree = scene.take(root, FaultFs(at, number, for_ever))
            tree.apply(f"e{tree.epoch}", scene.three_changes(root))
            tree.revert(f"e{tree.epoch}", "done")
        except AgentError as error:
            assert error.kind in ("failed", "dirty", "refused")
            if error.kind != "dirty" and tree is not None and tree.open_transaction() is None:
                assert scene.picture(root) == before, f"{error.what} at call {at}"
        finally:
            if tree is not None:
                tree.leave()
        assert recover(root)["state"] == "clean"
        assert scene.picture(root) == before, f"errno {number} at call {at}"


def test_an_apply_that_fails_half_way_is_undone_at_once(root: str) -> None:
    """The third file cannot be moved; the first two are back when the error arrives."""
    before = scene.picture(root)
    tree = scene.take(root, FaultFs())
    changes = scene.three_changes(root)
    changes[2]["before_sha256"] = "0" * 64
    with pytest.raises(AgentError) as caught:
        tree.apply("e1", changes)
    assert caught.value.kind == "conflict"
    assert scene.picture(root) == before
    tree.close()


def test_recovery_killed_at_any_of_its_calls_is_recovered(root: str) -> None:
    """Double faults: a sample of the first kills, every call of the recovery."""
    before = scene.picture(root)
    apply_and_revert(root, Fs())
    total = count_calls(root)
    for first in range(12, total, 5):
        second = 1
        while True:
            with pytest.raises(Kill):
                apply_and_revert(root, FaultFs(first))
            fs = FaultFs(second)
            try:
                recover(root, fs)
            except Kill:
                recover(root)
            assert scene.picture(root) == before, f"killed at {first}, then at {second}"
            if len(fs.calls) < second:
                break
            second += 3


# -- without the exchange ------------------------------------------------------------------------------------------


class OldFs(FaultFs):
    """A file system without renameat2 flags (NFS, 9p, old ZFS)."""

    def exchange(self, one: str, other: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), other)

    def rename_noreplace(self, old: str, new: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), new)


class BareFs(OldFs):
    """Without hard links too (FAT, many FUSE)."""

    def link(self, old: str, new: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), new)


def test_without_exchange_a_kill_at_any_call_is_recovered(root: str) -> None:
    """Link and rename instead: more steps, the same promise."""
    before = scene.picture(root)
    apply_and_revert(root, Fs())
    counting = OldFs()
    apply_and_revert(root, counting)
    for at in range(1, len(counting.calls) + 1):
        with pytest.raises(Kill):
            apply_and_revert(root, OldFs(at))
        assert recover(root, OldFs())["state"] == "clean"
        assert scene.picture(root) == before, f"killed at call {at}"


def test_without_exchange_and_links_the_change_is_refused(root: str) -> None:
    """A clear refusal, and nothing left."""
    before = scene.picture(root)
    tree = scene.take(root, BareFs())
    with pytest.raises(AgentError, match="neither exchange two files nor link them") as caught:
        tree.apply("e1", scene.three_changes(root)[:1])
    assert caught.value.kind == "refused"
    assert scene.picture(root) == before
    assert scene.staged(tree) == []
    tree.close()


class QuotaFs(FaultFs):
    """Renames between directories are refused, as between project quotas."""

    def exchange(self, one: str, other: str) -> None:
        self._check(one, other)
        super().exchange(one, other)

    def rename_noreplace(self, old: str, new: str) -> None:
        self._check(old, new)
        super().rename_noreplace(old, new)

    def _check(self, one: str, other: str) -> None:
        if os.path.dirname(one) != os.path.dirname(other):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), other)


def test_where_directories_cannot_exchange_the_stage_lies_beside_the_file(root: str) -> None:
    """Dot files while applied, none after; a kill in between is recovered."""
    before = scene.picture(root)
    counting = QuotaFs()
    apply_and_revert(root, counting)
    assert scene.picture(root) == before
    assert not [name for folder in (root, f"{root}/pkg") for name in os.listdir(folder) if name.startswith(".orch")]
    for at in range(20, len(counting.calls) + 1, 3):
        try:
            apply_and_revert(root, QuotaFs(at))
        except Kill:
            recover(root, QuotaFs())
        assert scene.picture(root) == before, f"killed at call {at}"


# -- power cuts ----------------------------------------------------------------------------------------------------


def plant_sim(fs: SimFs) -> None:
    for folder in ("/srv", SIM_ROOT, f"{SIM_ROOT}/pkg"):
        fs.mkdir(folder, 0o755)
    fs.make(f"{SIM_ROOT}/a.py", scene.OLD_A, 0o640)
    fs.make(f"{SIM_ROOT}/pkg/b.py", scene.OLD_B, 0o755)
    fs.make(f"{SIM_ROOT}/pkg/__init__.py", b"")
    fs.settle()


def dirty_images(fs: SimFs, samples: int = 6) -> tuple[int, list[str]]:
    """Cuts the power before every call of an apply and a revert, recovers every disk that may be left: how many, and
    which of them were not as found."""
    plant_sim(fs)
    before = fs.picture(SIM_ROOT)
    tree = scene.take(SIM_ROOT, fs)
    fs.settle()
    tree.apply("e1", scene.three_changes(SIM_ROOT))
    tree.revert("e1", "done")
    assert fs.picture(SIM_ROOT) == before
    fs.step("end", "")
    rng = random.Random(7)
    seen: set[int] = set()
    bad = []
    for moment in list(fs.moments):
        for kept in subsets(moment.pending, rng, samples):
            disk = type(fs).after_power_cut(fs, moment, kept)
            mark = hash(repr(sorted((ino, repr(inode)) for ino, inode in disk.state.items())))
            if mark in seen:
                continue
            seen.add(mark)
            problem = recover_sim(disk, before)
            if problem:
                bad.append(f"{moment.call}, kept {[fs.log[op].what for op in sorted(kept)]}: {problem}")
    return len(seen), bad


def recover_sim(disk: SimFs, before: dict[str, tuple[object, ...]]) -> str:
    """What is wrong after recovery; empty when nothing is."""
    try:
        tree = scene.take(SIM_ROOT, disk, boot_id="boot-2")
        state = tree.recover_files("power cut")["state"]
        leftovers = disk.names(f"{tree.state_dir}/stage")
    except AgentError as error:
        return str(error)
    now = disk.picture(SIM_ROOT)
    if now != before:
        return "differs: " + ", ".join(sorted(p for p in now.keys() | before.keys() if now.get(p) != before.get(p)))
    return "" if state == "clean" and not leftovers else f"{state}, stage {leftovers}"


def test_a_power_cut_at_any_call_loses_nothing_whatever_was_not_synced() -> None:
    """Hundreds of disks: any subset of what was not synced may be missing."""
    count, bad = dirty_images(SimFs())
    assert bad == []
    assert count > 300


class OldSim(SimFs):
    """The same without renameat2 flags."""

    def exchange(self, one: str, other: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), other)

    def rename_noreplace(self, old: str, new: str) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), new)


def test_without_exchange_a_power_cut_loses_nothing_either() -> None:
    """Link and rename need syncs of their own."""
    count, bad = dirty_images(OldSim(), samples=3)
    assert bad == []
    assert count > 300


def _forgets(*names: str) -> type[SimFs]:
    """A disk under an agent that forgot to sync what has one of these names."""

    class Forgetful(SimFs):
        def fsync(self, fd: int) -> None:
            if not any(name in self.path_of(fd) for name in names):
                super().fsync(fd)

        def fdatasync(self, fd: int) -> None:
            if not any(name in self.path_of(fd) for name in names):
                super().fdatasync(fd)

    return Forgetful


class NoDirSyncs(SimFs):
    def sync_dir(self, path: str) -> None:
        if path.startswith(SIM_ROOT):
            self.step("fsync", path)


FORGETFUL = {
    "staged files": _forgets("/stage/"),
    "the journal": _forgets("/journal"),
    "directories of the tree": NoDirSyncs,
    "the stage": _forgets("/stage"),
}


@pytest.mark.parametrize("what", FORGETFUL)
def test_a_missing_sync_is_noticed_by_the_power_cuts(what: str) -> None:
    """The harness itself: leave out one kind of sync, and some disk comes back dirty."""
    _, bad = dirty_images(FORGETFUL[what](), samples=3)
    assert bad


# -- real processes ------------------------------------------------------------------------------------------------

VICTIM = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from tests.agent import scene
from tests.agent.test_files import apply_and_revert
class Dying(scene.FaultFs):
    def step(self, call, path):
        self.calls.append(call)
        if len(self.calls) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
apply_and_revert(sys.argv[1], Dying())
"""


def test_a_killed_process_is_recovered(root: str) -> None:
    """SIGKILL, for real: the kernel gives the lock back, the files are as the process left them."""
    before = scene.picture(root)
    apply_and_revert(root, Fs())
    total = count_calls(root)
    home = str(Path(__file__).parents[2])
    for at in random.Random(3).sample(range(15, total), 4):
        done = subprocess.run([sys.executable, "-c", VICTIM, root, str(at), home], check=False, timeout=60)
        assert done.returncode == -9
        assert recover(root)["state"] == "clean"
        assert scene.picture(root) == before, f"killed at call {at}"
