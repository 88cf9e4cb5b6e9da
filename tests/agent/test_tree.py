"""A tree and its holders: lease and lock, third parties, refusals, bytecode, random changes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent import state
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.linux import Mount
from orchestrator.agent.tree import Tree
from tests.agent import scene
from tests.agent.scene import BOOT, NEW_A, NEW_C, OLD_A, OLD_B, OTHER, Clock, FaultFs, Kill

HOME = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> str:
    scene.plant(f"{tmp_path}/home/tree")
    return f"{tmp_path}/home/tree"


@pytest.fixture
def tree(root: str) -> Iterator[Tree]:
    """Taken, with its manifest as found."""
    taken = scene.take(root)
    taken.snapshot()
    yield taken
    taken.leave()


def refusal(call: Callable[[], object]) -> AgentError:
    with pytest.raises(AgentError) as caught:
        call()
    return caught.value


def write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


# -- the state directory -------------------------------------------------------------------------------------------


def test_the_state_lies_beside_the_tree_and_is_private(tree: Tree, root: str) -> None:
    """Named after device and inode; the parent's time is as before."""
    found = os.stat(root)
    assert tree.state_dir == f"{os.path.dirname(root)}/.orchestrator-{found.st_dev:x}-{found.st_ino:x}"
    assert os.stat(tree.state_dir).st_mode & 0o777 == 0o700
    assert {"lock", "lease", "journal", "found.json", "stage", "runs", "pycache"} == set(os.listdir(tree.state_dir))


class LonelyFs(Fs):
    """The parent of the tree cannot be written."""

    def may_write(self, directory: str) -> bool:
        return os.path.basename(directory) != "home" and super().may_write(directory)


def test_where_the_parent_is_not_ours_the_state_lies_inside_and_is_not_part_of_the_tree(root: str) -> None:
    """The root's time and manifest are those of before."""
    before = scene.picture(root)
    tree = scene.take(root, LonelyFs())
    assert os.path.dirname(tree.state_dir) == root
    tree.snapshot()
    tree.apply("e1", scene.three_changes(root))
    tree.revert("e1", "done")
    assert tree.verify()["differences"] == []
    assert scene.picture(root) == before
    tree.close()
    assert Tree.forget(Fs(), root, boot_id=BOOT, clock=Clock()) == [tree.state_dir]
    assert scene.picture(root) == before


def test_the_journal_may_lie_elsewhere_and_is_found_again(root: str, tmp_path: Path) -> None:
    """Also by a controller that does not know where; forgotten with the rest."""
    (tmp_path / "journals").mkdir()
    tree = scene.take(root, journal_dir=f"{tmp_path}/journals")
    tree.apply("e1", scene.three_changes(root))
    tree.leave()
    again = scene.take(root)
    assert (again.open_transaction() or {})["txn"] == "e1"
    again.recover_files("test")
    again.close()
    assert len(os.listdir(tmp_path / "journals")) == 1
    Tree.forget(Fs(), root, boot_id=BOOT, clock=Clock())
    assert os.listdir(tmp_path / "journals") == []


def test_a_lost_journal_with_parked_originals_is_dirty(root: str, tmp_path: Path) -> None:
    """It is never taken for a tree without changes."""
    (tmp_path / "journals").mkdir()
    tree = scene.take(root, journal_dir=f"{tmp_path}/journals")
    tree.apply("e1", scene.three_changes(root))
    tree.leave()
    shutil.rmtree(tmp_path / "journals")
    error = refusal(lambda: scene.take(root))
    assert error.kind == "dirty"
    assert "parked" in error.facts


def test_renumbered_devices_do_not_hide_an_open_change(root: str) -> None:
    """After a reboot the device may have another number: the state directory is still found, by its inode and root."""
    before = scene.picture(root)
    tree = scene.take(root)
    tree.apply("e1", scene.three_changes(root))
    tree.leave()
    home, name = os.path.split(tree.state_dir)
    os.rename(tree.state_dir, f"{home}/.orchestrator-ffff-{name.rpartition('-')[2]}")
    again = scene.take(root, boot_id="boot-2")
    again.recover_files("reboot")
    assert scene.picture(root) == before
    again.close()


def test_forget_refuses_what_is_open_and_removes_the_rest(root: str) -> None:
    """Held, then open, then nothing left; a second time there is nothing to do."""
    before = scene.picture(root)
    clock = Clock()
    tree = scene.take(root, clock=clock)
    assert refusal(lambda: Tree.forget(Fs(), root, boot_id=BOOT, clock=clock)).kind == "refused"
    tree.apply("e1", scene.three_changes(root))
    tree.leave()
    clock.now_s += 1000
    error = refusal(lambda: Tree.forget(Fs(), root, boot_id=BOOT, clock=clock))
    assert (error.kind, error.what) == ("refused", "something is still open on this tree")
    again = scene.take(root, clock=clock)
    again.recover_files("test")
    again.close()
    assert Tree.forget(Fs(), root, boot_id=BOOT, clock=clock) == [tree.state_dir]
    assert Tree.forget(Fs(), root, boot_id=BOOT, clock=clock) == []
    assert os.listdir(os.path.dirname(root)) == ["tree"]
    assert scene.picture(root) == before


# -- holders -------------------------------------------------------------------------------------------------------


def test_a_second_holder_is_told_who_has_it_and_until_when(root: str) -> None:
    """While the agent lives, and after it is gone while the lease runs."""
    clock = Clock()
    tree = scene.take(root, clock=clock)
    for meet in (tree.leave, tree.leave):
        error = refusal(lambda: scene.take(root, holder=OTHER, clock=clock))
        assert error.kind == "busy"
        assert error.facts["holder"] == "anna"
        assert error.facts["host_pid"] == str(os.getpid())
        assert error.facts["since"] < error.facts["until"]
        meet()


def test_another_route_to_the_same_root_is_excluded_too(root: str) -> None:
    """A second agent that sees another parent has another state directory; the root itself is locked."""
    tree = scene.take(root)
    error = refusal(lambda: scene.take(root, OtherRouteFs(), holder=OTHER))
    assert (error.kind, error.facts["holder"]) == ("busy", "unknown")
    tree.close()


class OtherRouteFs(LonelyFs):
    """Sees the root, and not what lies beside it."""

    def find(self, path: str) -> Any:
        return None if "home/.orchestrator-" in path else super().find(path)

    def names(self, path: str) -> list[str]:
        return [] if os.path.basename(path) == "home" else super().names(path)


class NfsFs(Fs):
    """Locks files, not directories."""

    def lock(self, fd: int) -> bool:
        if os.path.isdir(self.path_of(fd)):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return super().lock(fd)


def test_where_directories_cannot_be_locked_the_file_alone_decides(root: str) -> None:
    """NFS."""
    tree = scene.take(root, NfsFs())
    assert refusal(lambda: scene.take(root, NfsFs(), holder=OTHER)).kind == "busy"
    tree.close()


def test_the_same_token_takes_over_with_a_new_epoch(root: str) -> None:
    """At once, when the earlier agent is gone."""
    first = scene.take(root)
    first.leave()
    second = scene.take(root)
    assert second.epoch == first.epoch + 1
    second.close()


def test_the_same_token_ends_its_own_hung_agent(root: str) -> None:
    """By the identity in the lease; the lock is taken when that process is gone."""
    hung = scene.take(root)
    named: list[dict[str, Any]] = []

    def end(agent: dict[str, Any]) -> bool:
        named.append(agent)
        hung.leave()
        return True

    tree = scene.take(root, kill_agent=end)
    assert [agent["pid"] for agent in named] == [os.getpid()]
    assert named[0]["boot_id"] == BOOT
    assert named[0]["start_ticks"] > 0
    tree.close()


def test_an_agent_that_cannot_be_ended_keeps_the_tree(root: str) -> None:
    """No taking over beside a living one."""
    hung = scene.take(root)
    assert refusal(lambda: scene.take(root)).kind == "busy"
    hung.leave()


def test_after_the_lease_whoever_comes_goes_on(root: str) -> None:
    """What the silent one had applied is theirs to recover."""
    before = scene.picture(root)
    clock = Clock()
    silent = scene.take(root, clock=clock, lease_s=30.0)
    silent.apply("e1", scene.three_changes(root))
    silent.leave()
    clock.now_s += 31
    other = scene.take(root, holder=OTHER, clock=clock)
    assert (other.open_transaction() or {})["state"] == "applied"
    assert refusal(lambda: other.apply("e2", scene.three_changes(root))).kind == "dirty"
    assert refusal(other.snapshot).kind == "dirty"
    assert refusal(other.close).kind == "dirty"
    assert other.recover_files("the lease of anna ended")["state"] == "clean"
    assert scene.picture(root) == before
    other.close()


def test_a_lease_of_another_boot_is_void(root: str) -> None:
    """CLOCK_BOOTTIME started again."""
    scene.take(root).leave()
    tree = scene.take(root, holder=OTHER, boot_id="boot-2")
    tree.close()


def test_a_closed_tree_is_free_at_once(root: str) -> None:
    """Its lease is given back."""
    scene.take(root).close()
    scene.take(root, holder=OTHER).close()


def test_a_holder_whose_lease_ran_out_may_not_write(root: str) -> None:
    """Its guard may be at work."""
    clock = Clock()
    tree = scene.take(root, clock=clock, lease_s=30.0)
    assert tree.beat(40.0) == clock.now_s + 40
    clock.now_s += 39
    assert tree.beat() == clock.now_s + 40
    clock.now_s += 41
    for call in (tree.beat, tree.snapshot, lambda: tree.apply("e1", scene.three_changes(root))):
        assert refusal(call).kind == "busy"
    tree.leave()


def test_a_stale_epoch_may_not_write(root: str) -> None:
    """Somebody took over while this one was asleep."""
    clock = Clock()
    late = scene.take(root, clock=clock)
    late._lock.close()
    late._lock = state.Lock(Fs(), root, late.state_dir)
    scene.take(root, clock=clock).leave()
    assert refusal(lambda: late.apply("e1", scene.three_changes(root))).kind == "busy"
    late.leave()


def test_the_guard_undoes_with_the_journal_alone(root: str) -> None:
    """Not before the end of the lease, not for another epoch; the outcome waits until it is acknowledged."""
    before = scene.picture(root)
    clock = Clock()
    agent = scene.take(root, clock=clock, lease_s=30.0)
    agent.apply("e1", scene.three_changes(root))
    agent.leave()

    def guard(epoch: int) -> Tree:
        return Tree.for_guard(Fs(), root, [], agent.state_dir, epoch, boot_id=BOOT, clock=clock, patience_s=0.0)

    assert refusal(lambda: guard(agent.epoch)).kind == "busy"
    clock.now_s += 31
    assert refusal(lambda: guard(agent.epoch - 1)).kind == "busy"
    tree = guard(agent.epoch)
    assert refusal(lambda: scene.take(root, holder=OTHER, clock=clock)).what.startswith("the guard is undoing")
    tree.recover_files("the lease ended")
    tree.note("GUARD_REVERTED", {"why": "the lease ended"})
    tree.close()
    assert scene.picture(root) == before
    late = scene.take(root, clock=clock)
    assert (late.outcome() or {})["why"] == "the lease ended"
    late.acknowledge()
    late.close()
    assert scene.take(root, clock=clock).outcome() is None


def test_a_launch_is_open_until_it_is_stopped(root: str) -> None:
    """In the journal, so for the next agent too."""
    tree = scene.take(root)
    tree.note("LAUNCH_INTENT", {"launch_id": "l1"})
    seq = tree.note("LAUNCHED", {"launch_id": "l1", "pid": 5})
    assert tree.open_launch() == {"kind": "LAUNCHED", "seq": seq, "launch_id": "l1", "pid": 5}
    assert refusal(tree.close).kind == "dirty"
    tree.leave()
    again = scene.take(root)
    assert (again.open_launch() or {})["pid"] == 5
    again.note("STOPPED", {"launch_id": "l1"})
    assert again.open_launch() is None
    again.close()


def test_the_journal_is_compacted_and_remembers_what_matters(root: str) -> None:
    """Hundreds of experiments later: one MiB still, the epoch counts on, old names stay refused."""
    tree = scene.take(root)
    while tree.epoch < 3 or tree._journal.used_bytes * 2 <= tree._journal.capacity_bytes:
        tree.note("FILLER", {"text": "x" * 100_000})
        tree.leave()
        tree = scene.take(root)
    epoch = tree.epoch
    tree.apply("e1", scene.three_changes(root))
    tree.revert("e1", "done")
    assert tree._journal.capacity_bytes == 1 << 20
    assert tree._journal.used_bytes < 1 << 17
    assert refusal(lambda: tree.apply("e1", scene.three_changes(root))).kind == "refused"
    tree.close()
    assert scene.take(root).epoch == epoch + 1


# -- transactions --------------------------------------------------------------------------------------------------


def test_applying_twice_is_refused(tree: Tree, root: str) -> None:
    """While it is applied, and after it was reverted."""
    before = scene.picture(root)
    changes = scene.three_changes(root)
    tree.apply("e1", changes)
    assert refusal(lambda: tree.apply("e1", changes)).kind == "dirty"
    assert refusal(lambda: tree.apply("e2", changes)).kind == "dirty"
    tree.revert("e1", "done")
    assert refusal(lambda: tree.apply("e1", changes)).kind == "refused"
    assert scene.picture(root) == before


def test_reverting_twice_gives_the_same_answer(tree: Tree, root: str) -> None:
    """A repeated request whose first answer was lost."""
    tree.apply("e1", scene.three_changes(root))
    first, second = tree.revert("e1", "done"), tree.revert("e1", "done")
    assert {**first, "seconds": 0} == {**second, "seconds": 0}
    assert refusal(lambda: tree.revert("e9", "done")).kind == "refused"


def test_nothing_open_is_nothing_to_recover(tree: Tree) -> None:
    """Recovery is idempotent."""
    assert tree.recover_files("test") == {"state": "clean", "did": [], "report": []}


def test_a_change_of_the_mode_alone_is_a_change(tree: Tree, root: str) -> None:
    """And comes back."""
    before = scene.picture(root)
    tree.apply("e1", [scene.replace(f"{root}/a.py", OLD_A, OLD_A, 0o755)])
    assert os.stat(f"{root}/a.py").st_mode & 0o777 == 0o755
    tree.revert("e1", "done")
    assert scene.picture(root) == before


def test_a_file_that_is_as_wanted_already_is_not_touched(tree: Tree, root: str) -> None:
    """No transaction is opened for it."""
    result = tree.apply("e1", [scene.replace(f"{root}/a.py", OLD_A, OLD_A)])
    assert result["files"][0]["before"] == result["files"][0]["after"]
    assert tree.open_transaction() is None


def test_an_empty_file_comes_back_empty(tree: Tree, root: str) -> None:
    """Absent and empty are different things."""
    before = scene.picture(root)
    tree.apply("e1", [scene.delete(f"{root}/pkg/__init__.py", b"")])
    tree.revert("e1", "done")
    assert scene.picture(root) == before


def test_owner_attributes_and_special_bits_are_kept_both_ways(tree: Tree, root: str) -> None:
    """While applied and after."""
    path = f"{root}/a.py"
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
    os.chmod(path, 0o6750)
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EOPNOTSUPP):
            pytest.skip("no extended attributes here")
        raise
    before = scene.picture(root)
    tree.apply("e1", [scene.replace(path, OLD_A, NEW_A)])
    found = os.stat(path)
    assert (found.st_mode & 0o7777, os.getxattr(path, "user.note")) == (0o6750, b"kept")
    assert (found.st_uid, found.st_gid) == before[path][1:3]
    tree.revert("e1", "done")
    assert scene.picture(root) == before


def test_a_reader_never_sees_a_missing_empty_or_mixed_file(tree: Tree, root: str) -> None:
    """A hundred opens between and during the swaps."""
    seen: set[bytes] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            with open(f"{root}/a.py", "rb") as file:
                seen.add(file.read())

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(10):
        tree.apply(f"e{number}", [scene.replace(f"{root}/a.py", OLD_A, NEW_A)])
        tree.revert(f"e{number}", "done")
    stop.set()
    reader.join(10)
    assert seen <= {OLD_A, NEW_A}
    assert OLD_A in seen


def test_guarded_paths_outside_the_tree_are_changed_and_proved_too(root: str, tmp_path: Path) -> None:
    """A file by name, and files in a directory that is named."""
    (tmp_path / "etc").mkdir()
    write(f"{tmp_path}/etc/one", b"1")
    write(f"{tmp_path}/conf", b"c")
    before = scene.picture(f"{tmp_path}/etc"), scene.picture(f"{tmp_path}/conf")
    tree = scene.take(root, guarded=(f"{tmp_path}/etc", f"{tmp_path}/conf"))
    tree.snapshot()
    changes = [scene.replace(f"{tmp_path}/conf", b"c", b"d"), scene.create(f"{tmp_path}/etc/two", b"2")]
    tree.apply("e1", changes)
    tree.revert("e1", "done")
    assert tree.verify()["differences"] == []
    assert (scene.picture(f"{tmp_path}/etc"), scene.picture(f"{tmp_path}/conf")) == before
    tree.close()


def test_a_path_through_a_linked_directory_is_the_real_one(tree: Tree, root: str) -> None:
    """Resolved first; reported as it was given."""
    os.symlink("pkg", f"{root}/alias")
    before = scene.picture(root)
    result = tree.apply("e1", [scene.delete(f"{root}/alias/b.py", OLD_B)])
    assert result["files"][0]["path"] == f"{root}/alias/b.py"
    assert not os.path.exists(f"{root}/pkg/b.py")
    tree.revert("e1", "done")
    assert scene.picture(root) == before


# -- refusals ------------------------------------------------------------------------------------------------------


def _link_twice(root: str) -> None:
    os.link(f"{root}/a.py", f"{root}/pkg/twin.py")


def _link(root: str) -> None:
    os.rename(f"{root}/a.py", f"{root}/real.py")
    os.symlink("real.py", f"{root}/a.py")


def _compile_unchecked(root: str) -> None:
    import py_compile

    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(f"{root}/a.py", invalidation_mode=mode, doraise=True)


def _make_fifo(root: str) -> None:
    os.unlink(f"{root}/a.py")
    os.mkfifo(f"{root}/a.py")


@pytest.mark.parametrize(
    ("prepare", "what"),
    [
        (_link_twice, "second name in the tree"),
        (_link, "symbolic link"),
        (_compile_unchecked, "used unchecked"),
        (_make_fifo, "not a regular file"),
    ],
)
def test_what_cannot_be_changed_safely_is_refused(root: str, prepare: Callable[[str], None], what: str) -> None:
    """With nothing recorded and nothing touched."""
    prepare(root)
    before = scene.picture(root)
    tree = scene.take(root)
    error = refusal(lambda: tree.apply("e1", [scene.replace(f"{root}/a.py", OLD_A, NEW_A)]))
    assert error.kind == "refused"
    assert what in error.what
    assert tree.open_transaction() is None
    assert scene.picture(root) == before
    tree.close()


def test_another_name_outside_the_tree_does_no_harm(tree: Tree, root: str, tmp_path: Path) -> None:
    """A package cache keeps the original; the link is the same afterwards."""
    os.link(f"{root}/a.py", f"{tmp_path}/cached.py")
    before = scene.picture(root)
    tree.apply("e1", [scene.replace(f"{root}/a.py", OLD_A, NEW_A)])
    assert Path(f"{tmp_path}/cached.py").read_bytes() == OLD_A
    tree.revert("e1", "done")
    assert scene.picture(root) == before


def test_an_open_writer_is_refused(tree: Tree, root: str) -> None:
    """Its late write would land in the parked original."""
    with open(f"{root}/a.py", "a"):
        error = refusal(lambda: tree.apply("e1", [scene.replace(f"{root}/a.py", OLD_A, NEW_A)]))
    assert error.kind == "refused"
    assert error.facts["pids"] == str(os.getpid())


class OddFs(Fs):
    """A mount point, an immutable file, a full disk, as the attributes say."""

    mounted = ""
    frozen = ""
    free = 1 << 40

    def mounts(self) -> list[Mount]:
        extra = [Mount(self.mounted, "/data/a.py", "ext4", "/dev/sdb")] if self.mounted else []
        return [*super().mounts(), *extra]

    def is_frozen(self, path: str) -> bool:
        return path == self.frozen

    def free_bytes(self, path: str) -> int:
        return self.free


@pytest.mark.parametrize(
    ("odd", "what"),
    [
        ({"mounted": "{root}/a.py"}, "the file is a mount point"),
        ({"frozen": "{root}/a.py"}, "the file is immutable"),
        ({"frozen": "{root}"}, "the directory is immutable"),
        ({"free": 1000}, "not enough space to stage the files"),
    ],
)
def test_mounts_flags_and_full_disks_are_refused(root: str, odd: dict[str, Any], what: str) -> None:
    """Before anything is recorded."""
    fs = OddFs()
    for name, value in odd.items():
        setattr(fs, name, value.format(root=root) if isinstance(value, str) else value)
    tree = scene.take(root, fs)
    error = refusal(lambda: tree.apply("e1", [scene.replace(f"{root}/a.py", OLD_A, NEW_A)]))
    assert (error.kind, error.what) == ("refused", what)
    tree.close()


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda root: scene.replace(f"{root}/a.py", b"other", NEW_A), "conflict"),
        (lambda root: scene.replace(f"{root}/none.py", OLD_A, NEW_A), "conflict"),
        (lambda root: scene.delete(f"{root}/no/where.py", OLD_A), "conflict"),
        (lambda root: scene.create(f"{root}/a.py", NEW_C), "conflict"),
        (lambda root: scene.create(f"{root}/a.py/below", NEW_C), "refused"),
        (lambda root: scene.create(f"{root}/../outside", NEW_C), "usage"),
        (lambda root: scene.create(f"{os.path.dirname(root)}/outside", NEW_C), "refused"),
        (lambda root: {**scene.create(f"{root}/x", NEW_C), "content_b64": "%%%"}, "usage"),
        (lambda root: {**scene.create(f"{root}/x", NEW_C), "kind": "append"}, "usage"),
        (lambda root: {**scene.create(f"{root}/x", NEW_C), "mode": 99999}, "usage"),
    ],
)
def test_what_does_not_fit_changes_nothing(
    tree: Tree, root: str, change: Callable[[str], dict[str, Any]], kind: str
) -> None:
    """The good changes beside it neither."""
    before = scene.picture(root)
    error = refusal(lambda: tree.apply("e1", [scene.delete(f"{root}/pkg/b.py", OLD_B), change(root)]))
    assert error.kind == kind
    assert scene.picture(root) == before


def test_the_same_file_twice_is_refused(tree: Tree, root: str) -> None:
    """By whatever names."""
    os.symlink("pkg", f"{root}/alias")
    twice = [scene.delete(f"{root}/pkg/b.py", OLD_B), scene.delete(f"{root}/alias/b.py", OLD_B)]
    assert refusal(lambda: tree.apply("e1", twice)).kind == "usage"


# -- third parties -------------------------------------------------------------------------------------------------

THEIRS = b"# edited by a colleague\n"


def _replace_file(path: str) -> None:
    write(f"{path}.tmp", THEIRS)
    os.rename(f"{path}.tmp", path)


MEDDLING: dict[str, tuple[Callable[[str], object], str]] = {
    "edited": (lambda root: write(f"{root}/a.py", THEIRS), "a.py"),
    "replaced": (lambda root: _replace_file(f"{root}/a.py"), "a.py"),
    "deleted": (lambda root: os.unlink(f"{root}/a.py"), "a.py"),
    "chmodded": (lambda root: os.chmod(f"{root}/a.py", 0o777), "a.py"),
    "made a directory": (lambda root: (os.unlink(f"{root}/a.py"), os.mkdir(f"{root}/a.py")), "a.py"),
    "created edited": (lambda root: write(f"{root}/new/sub/c.py", THEIRS), "new/sub/c.py"),
    "created chmodded": (lambda root: os.chmod(f"{root}/new/sub/c.py", 0o777), "new/sub/c.py"),
    "deleted made again": (lambda root: write(f"{root}/pkg/b.py", THEIRS), "pkg/b.py"),
}


@pytest.mark.parametrize("name", MEDDLING)
def test_what_a_third_party_changed_is_held_and_nothing_is_lost(tree: Tree, root: str, name: str) -> None:
    """One held file holds all; their version stays, the original stays, both are named."""
    meddle, path = MEDDLING[name]
    tree.apply("e1", scene.three_changes(root))
    meddle(root)
    during = scene.picture(root)
    error = refusal(lambda: tree.revert("e1", "done"))
    assert error.kind == "dirty"
    report = json.loads(error.facts["report"])
    assert [held["path"] for held in report] == [f"{root}/{path}"]
    assert scene.picture(root) == during
    if path != "new/sub/c.py":
        original = {"a.py": OLD_A, "pkg/b.py": OLD_B}[path]
        assert Path(report[0]["found_at"]).read_bytes() == original
    assert (tree.open_transaction() or {})["state"] == "held"
    assert tree.recover_files("again")["report"] == report
    assert tree.verify()["clean"] is False
    assert scene.picture(root) == during


def test_a_late_write_to_the_parked_original_is_held(tree: Tree, root: str) -> None:
    """Through a descriptor opened just before the swap, say."""
    tree.apply("e1", scene.three_changes(root))
    parked = next(name for name in scene.staged(tree) if name.endswith(".0"))
    with open(f"{tree.state_dir}/stage/{parked}", "ab") as file:
        file.write(THEIRS)
    report = json.loads(refusal(lambda: tree.revert("e1", "done")).facts["report"])
    assert "while it was parked" in report[0]["why"]


def test_a_stage_that_somebody_cleaned_is_held(tree: Tree, root: str) -> None:
    """The original is gone: only a person can say what now."""
    tree.apply("e1", scene.three_changes(root))
    for name in scene.staged(tree):
        os.unlink(f"{tree.state_dir}/stage/{name}")
    report = json.loads(refusal(lambda: tree.revert("e1", "done")).facts["report"])
    assert [held["found_at"] for held in report] == [None, None]


def test_when_they_take_their_edit_back_recovery_goes_through(tree: Tree, root: str) -> None:
    """Held is not for ever."""
    before = scene.picture(root)
    tree.apply("e1", scene.three_changes(root))
    write(f"{root}/a.py", THEIRS)
    assert tree.recover_files("test")["state"] == "held"
    write(f"{root}/a.py", NEW_A)
    assert tree.recover_files("test")["state"] == "clean"
    assert scene.picture(root) == before


def test_when_they_restored_the_content_themselves_the_original_file_comes_back(tree: Tree, root: str) -> None:
    """The same bytes and rights: nothing of theirs is lost by bringing back the inode and its time."""
    before = scene.picture(root)
    tree.apply("e1", scene.three_changes(root))
    write(f"{root}/a.py", OLD_A)
    tree.revert("e1", "done")
    assert scene.picture(root) == before


def test_a_touch_is_no_reason_to_hold(tree: Tree, root: str) -> None:
    """A new time on our version is no work of theirs."""
    before = scene.picture(root)
    tree.apply("e1", scene.three_changes(root))
    os.utime(f"{root}/a.py")
    tree.revert("e1", "done")
    assert scene.picture(root) == before


def test_a_created_directory_that_somebody_uses_stays(tree: Tree, root: str) -> None:
    """Our file goes, their file stays."""
    tree.apply("e1", scene.three_changes(root))
    write(f"{root}/new/theirs", THEIRS)
    did = tree.recover_files("test")["did"]
    assert f"kept {root}/new, which somebody else uses now" in did
    assert os.listdir(f"{root}/new") == ["theirs"]
    verdict = tree.verify()
    assert verdict["clean"]
    assert {entry["path"] for entry in verdict["differences"]} == {root, f"{root}/new", f"{root}/new/theirs"}


def test_a_directory_time_that_somebody_set_is_theirs(tree: Tree, root: str) -> None:
    """Only what we left is put back."""
    tree.apply("e1", scene.three_changes(root))
    os.utime(f"{root}/pkg", ns=(7, 7))
    tree.revert("e1", "done")
    assert os.stat(f"{root}/pkg").st_mtime_ns > 10**18  # moved by our revert, and not claimed to be as found
    assert os.stat(root).st_mtime_ns == 10**18 + 987654321


class Meddler(FaultFs):
    """Somebody who acts right before the n-th call of a name."""

    def __init__(self, call: str, number: int, act: Callable[[], object]) -> None:
        super().__init__()
        self._left = number
        self._call, self._act = call, act

    def step(self, call: str, path: str) -> None:
        super().step(call, path)
        self._left -= call == self._call
        if call == self._call and self._left == 0:
            self._act()


@pytest.mark.parametrize("name", ["edited", "replaced", "deleted", "chmodded"])
def test_an_edit_at_the_last_moment_before_the_swap_is_noticed(root: str, name: str) -> None:
    """What came out of the path is looked at; it goes back, and the apply is a conflict."""
    meddle, _ = MEDDLING[name]
    tree = scene.take(root, Meddler("exchange", 1, lambda: meddle(root)))
    error = refusal(lambda: tree.apply("e1", scene.three_changes(root)))
    assert error.kind == "conflict"
    assert tree.open_transaction() is None
    assert scene.staged(tree) == []
    now = scene.picture(root)
    if name == "deleted":
        assert f"{root}/a.py" not in now
    else:
        assert now[f"{root}/a.py"][6] == (OLD_A if name == "chmodded" else THEIRS)
    assert now[f"{root}/pkg/b.py"][6] == OLD_B
    tree.close()


def test_a_file_made_at_the_last_moment_is_not_replaced(root: str) -> None:
    """Where we wanted to create one."""
    tree = scene.take(root, Meddler("rename_noreplace", 1, lambda: write(f"{root}/new/sub/c.py", THEIRS)))
    assert refusal(lambda: tree.apply("e1", scene.three_changes(root))).kind == "conflict"
    assert Path(f"{root}/new/sub/c.py").read_bytes() == THEIRS
    assert Path(f"{root}/a.py").read_bytes() == OLD_A
    tree.close()


def test_an_edit_at_the_last_moment_before_the_swap_back_is_held(root: str) -> None:
    """After all verdicts, in the microseconds before the exchange: theirs stays, the original stays parked."""
    fs = Meddler("exchange", 2, lambda: write(f"{root}/a.py", THEIRS))
    tree = scene.take(root, fs)
    tree.apply("e1", [scene.replace(f"{root}/a.py", OLD_A, NEW_A)])
    report = json.loads(refusal(lambda: tree.revert("e1", "done")).facts["report"])
    assert Path(f"{root}/a.py").read_bytes() == THEIRS
    assert Path(report[0]["found_at"]).read_bytes() == OLD_A
    tree.leave()


@pytest.mark.parametrize("choice", ["theirs", "found"])
@pytest.mark.parametrize("name", ["edited", "deleted", "chmodded", "created edited", "deleted made again"])
def test_a_person_settles_what_is_held_and_no_byte_is_lost(tree: Tree, root: str, name: str, choice: str) -> None:
    """Either version stays; the other lies in `kept`; a kill at any call in between does not matter."""
    meddle, path = MEDDLING[name]
    before = scene.picture(root)
    tree.apply("e1", scene.three_changes(root))
    meddle(root)
    during = scene.picture(root)
    assert tree.recover_files("test")["state"] == "held"
    tree.leave()
    for at in range(1, 100):
        victim = scene.take(root, FaultFs())
        fs = victim._fs
        assert isinstance(fs, FaultFs)
        fs.at = len(fs.calls) + at
        try:
            if victim.open_transaction():
                victim.release("e1", choice)
        except Kill:
            victim.leave()
            continue
        except AgentError:  # the word was recorded before the kill: recovery finishes it
            fs.at = None
            victim.recover_files("again")
        victim.leave()
        break
    last = scene.take(root)
    assert last.open_transaction() is None
    now = scene.picture(root)
    if choice == "found":
        assert now == before
    else:
        assert now.get(f"{root}/{path}") == during.get(f"{root}/{path}")
        others = [at for at in before if at not in (root, f"{root}/{path}", os.path.dirname(f"{root}/{path}"))]
        assert {at: now.get(at) for at in others} == {at: before[at] for at in others}
    assert scene.staged(last) == []
    last.leave()


def test_only_a_held_transaction_is_released(tree: Tree, root: str) -> None:
    """A word too early is refused."""
    tree.apply("e1", scene.three_changes(root))
    assert refusal(lambda: tree.release("e1", "theirs")).kind == "refused"
    write(f"{root}/a.py", THEIRS)
    tree.recover_files("test")
    assert refusal(lambda: tree.release("e1", "mine")).kind == "usage"
    kept = tree.release("e1", "found")["kept"]
    assert THEIRS in [Path(path).read_bytes() for path in kept]
    tree.close()
    assert refusal(lambda: Tree.forget(Fs(), root, boot_id=BOOT, clock=Clock())).facts["kept"]


# -- proof ---------------------------------------------------------------------------------------------------------


def test_a_reverted_tree_is_proved_clean(tree: Tree, root: str) -> None:
    """No path differs, directory times included."""
    found = tree.found
    assert found is not None
    tree.apply("e1", scene.three_changes(root))
    tree.revert("e1", "done")
    verdict = tree.verify()
    assert (verdict["clean"], verdict["digest"], verdict["differences"]) == (True, found.digest, [])


def test_what_others_changed_is_listed_as_not_ours(tree: Tree, root: str) -> None:
    """And does not make the host dirty."""
    write(f"{root}/pkg/b.py", THEIRS)
    verdict = tree.verify()
    assert verdict["clean"]
    assert [(entry["path"], entry["what"], entry["ours"]) for entry in verdict["differences"]] == [
        (f"{root}/pkg/b.py", "changed", False)
    ]


def test_what_we_left_is_listed_as_ours(tree: Tree, root: str) -> None:
    """Content that we once wrote, a dot file with our name, something in the stage."""
    tree.apply("e1", scene.three_changes(root))
    assert tree.verify()["clean"] is False
    tree.revert("e1", "done")
    write(f"{root}/a.py", NEW_A)
    write(f"{root}/{os.path.basename(tree.state_dir)}-00000009.0", b"")
    write(f"{tree.state_dir}/stage/00000009.1", b"")
    verdict = tree.verify()
    assert not verdict["clean"]
    assert sum(entry["ours"] for entry in verdict["differences"]) == 3


def test_there_is_no_proof_without_a_manifest_as_found(root: str) -> None:
    """It says so."""
    fresh = scene.take(root)
    assert refusal(fresh.verify).kind == "refused"
    fresh.close()


def test_the_manifest_as_found_outlives_the_agent(tree: Tree, root: str) -> None:
    """The next one compares with the same."""
    found = tree.found
    tree.leave()
    again = scene.take(root)
    assert again.found is not None
    assert found is not None
    assert again.found.entries == found.entries
    again.leave()


# -- bytecode ------------------------------------------------------------------------------------------------------


def which(tree: Tree, root: str) -> str:
    """What a fresh interpreter runs, with the bytecode prefix of the tree."""
    env = {"PYTHONPYCACHEPREFIX": tree.pycache_dir, "PATH": os.environ["PATH"]}
    code = f"import sys; sys.path.insert(0, {root!r}); import a; print(a.which())"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_same_size_edit_in_the_same_second_runs(tree: Tree, root: str) -> None:
    """New code while applied, the old code after, though size never changes and all of it takes less than a second."""
    os.utime(f"{root}/a.py")
    seen = []
    for number in range(3):
        seen.append(which(tree, root))
        tree.apply(f"e{number}", [scene.replace(f"{root}/a.py", OLD_A, NEW_A)])
        seen.append(which(tree, root))
        tree.revert(f"e{number}", "done")
    assert seen == ["False", "True"] * 3
    assert not os.path.exists(f"{root}/__pycache__")


def test_compiled_forms_of_changed_files_are_dropped_and_others_stay(tree: Tree, root: str) -> None:
    """Only ours, only of these modules."""
    which(tree, root)
    folder = f"{tree.pycache_dir}{root}"
    write(f"{folder}/ab.cpython-311.pyc", b"another module")
    assert any(name.startswith("a.") for name in os.listdir(folder))
    tree.apply("e1", [scene.replace(f"{root}/a.py", OLD_A, NEW_A)])
    assert os.listdir(folder) == ["ab.cpython-311.pyc"]
    which(tree, root)
    tree.revert("e1", "done")
    assert os.listdir(folder) == ["ab.cpython-311.pyc"]


def test_every_version_has_a_second_of_its_own(tree: Tree, root: str) -> None:
    """Apart from the original's and from each other's."""
    os.utime(f"{root}/a.py")
    seconds = {int(os.stat(f"{root}/a.py").st_mtime)}
    for number in range(3):
        tree.apply(f"e{number}", [scene.replace(f"{root}/a.py", OLD_A, NEW_A)])
        seconds.add(int(os.stat(f"{root}/a.py").st_mtime))
        tree.revert(f"e{number}", "done")
    assert len(seconds) == 4


# -- old Python ----------------------------------------------------------------------------------------------------

OLD_SMOKE = """
import base64, hashlib, os, sys
sys.path.insert(0, sys.argv[1])
from orchestrator.agent.fs import Fs
from orchestrator.agent.tree import Tree
root = sys.argv[2]
holder = {"token": "t", "name": "n", "pid": 1}
tree = Tree.open(Fs(), root, [], holder, 60.0, kill_agent=lambda agent: False, boot_id="b")
tree.snapshot()
with open(root + "/a.py", "rb") as file:
    sha = hashlib.sha256(file.read()).hexdigest()
change = {"path": root + "/a.py", "kind": "replace", "before_sha256": sha, "mode": None}
change["content_b64"] = base64.b64encode(b"new").decode()
tree.apply("e1", [change])
tree.revert("e1", "done")
assert tree.verify()["differences"] == []
tree.close()
print(sys.version_info[:2], Tree.forget(Fs(), root))
"""


def test_it_runs_from_a_zip_on_python_3_8(root: str, tmp_path: Path) -> None:
    """As it is shipped: isolated, without site, the package alone."""
    python = shutil.which("python3.8")
    env = {**os.environ, "PYENV_VERSION": "3.8"}
    if python is None or subprocess.run([python, "-V"], env=env, capture_output=True, check=False).returncode:
        pytest.skip("no Python 3.8 here")
    with zipfile.ZipFile(tmp_path / "agent.zip", "w") as archive:
        archive.writestr("orchestrator/__init__.py", "")
        for source in sorted((HOME / "orchestrator" / "agent").glob("*.py")):
            archive.write(source, f"orchestrator/agent/{source.name}")
    command = [python, "-I", "-S", "-c", OLD_SMOKE, str(tmp_path / "agent.zip"), root]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(3, 8)")
