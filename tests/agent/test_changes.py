"""Random trees and random changes, every verdict, and bugs that the crash points must find."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.agent import bytecode, changes, decisions, files, journal
from orchestrator.agent.decisions import BACK, HOLD, LEAVE, Change, decide
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.identity import Identity
from tests.agent import scene
from tests.agent.scene import FaultFs, Kill
from tests.agent.simfs import SimFs, subsets
from tests.agent.test_files import SIM_ROOT, plant_sim, recover_sim

# -- random trees --------------------------------------------------------------------------------------------------

FOLDERS = ["", "d", "d/e", "d\nline", "d \udcff\udcfe", "d'$(x)"]
ODD = ["f.py", "f", "f\nline.py", "f\udcff", "f ", "f\\", "f~", "f" * 200, "f.tar.gz", "f\u00e9\u4e16.py", "f.pyc"]
CONTENTS = st.sampled_from([b"", b"x = 1\n", b"\0\xff" * 300, b"y" * 5000])
MODES = st.sampled_from([0o644, 0o600, 0o755, 0o444, 0o6755, *([0o000] if os.geteuid() == 0 else [])])
PLACES = st.tuples(st.sampled_from(FOLDERS), st.sampled_from(ODD))
TREES = st.dictionaries(PLACES, st.tuples(CONTENTS, MODES), min_size=1, max_size=8)
ROOT_ONLY = os.geteuid() == 0  # nobody else may write in a read-only directory


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[dict[Any, Any], list[tuple[str, Any, Any]], bool]:
    """A tree, what to do with it, and whether its directories are read-only."""
    tree = draw(TREES)
    touched = draw(st.lists(st.sampled_from(sorted(tree)), unique=True, max_size=5))
    wanted = [(draw(st.sampled_from(["replace", "delete"])), place, draw(CONTENTS)) for place in touched]
    for folder, name in draw(st.lists(PLACES, unique=True, max_size=3)):
        if (folder, name) not in tree:
            wanted.append(("create", (draw(st.sampled_from([folder, f"{folder}/d new/deep"])), name), draw(CONTENTS)))
    return tree, wanted, ROOT_ONLY and draw(st.booleans())


@contextmanager
def planted(tree: dict[Any, Any], is_read_only: bool) -> Iterator[str]:
    home = tempfile.mkdtemp(prefix="orchestrator-test-", dir=scene.QUICK)
    root = f"{home}/tree"
    try:
        os.mkdir(root)
        for (folder, name), (content, mode) in tree.items():
            os.makedirs(f"{root}/{folder}", exist_ok=True)
            with open(f"{root}/{folder}/{name}", "wb") as file:
                file.write(content)
            os.chmod(f"{root}/{folder}/{name}", mode)
        for folder, _, _ in os.walk(root, topdown=False):
            os.chmod(folder, 0o555 if is_read_only else 0o755)
            os.utime(folder, ns=(10**18, 10**18))
        yield root
    finally:
        shutil.rmtree(home)


def as_changes(root: str, tree: dict[Any, Any], wanted: list[tuple[str, Any, Any]]) -> list[dict[str, Any]]:
    made = []
    for kind, (folder, name), content in wanted:
        path = os.path.normpath(f"{root}/{folder}/{name}")
        if kind == "create":
            made.append(scene.create(path, content))
        elif kind == "delete":
            made.append(scene.delete(path, tree[folder, name][0]))
        else:
            made.append(scene.replace(path, tree[folder, name][0], content))
    return made


@settings(max_examples=40, deadline=None)
@given(scenarios())
def test_apply_then_revert_is_identity(scenario: tuple[dict[Any, Any], list[tuple[str, Any, Any]], bool]) -> None:
    """Any names, modes and contents; while applied everything is as wanted."""
    tree_plan, wanted, is_read_only = scenario
    with planted(tree_plan, is_read_only) as root:
        before = scene.picture(root)
        tree = scene.take(root)
        made = as_changes(root, tree_plan, wanted)
        if not made:
            with pytest.raises(AgentError, match="a transaction without files"):
                tree.apply("e1", made)
            tree.close()
            return
        result = tree.apply("e1", made)
        during = scene.picture(root)
        for kind, (folder, name), content in wanted:
            path = os.path.normpath(f"{root}/{folder}/{name}")
            assert (path not in during) if kind == "delete" else (during[path][6] == content)
        if tree.open_transaction() is not None:
            with pytest.raises(AgentError, match="still open"):
                tree.apply("e2", made)
            tree.revert("e1", "done")
        assert len(result["files"]) == len(made)
        assert scene.picture(root) == before
        assert scene.staged(tree) == []
        tree.close()


@settings(max_examples=40, deadline=None)
@given(scenarios(), st.integers(1, 80), st.sampled_from([None, errno.EIO, errno.ENOSPC]))
def test_an_apply_cut_short_is_identity(
    scenario: tuple[dict[Any, Any], list[tuple[str, Any, Any]], bool], at: int, error: int | None
) -> None:
    """Killed or failing at any call: as found, at once or after recovery."""
    tree_plan, wanted, is_read_only = scenario
    with planted(tree_plan, is_read_only) as root:
        before = scene.picture(root)
        fs = FaultFs()
        tree = scene.take(root, fs)
        fs.at, fs.error = len(fs.calls) + at, error
        with suppress(Kill, AgentError):
            tree.apply("e1", as_changes(root, tree_plan, wanted))
        fs.at = None
        tree.leave()
        tree = scene.take(root)
        assert tree.recover_files("test")["state"] == "clean"
        assert scene.picture(root) == before
        assert scene.staged(tree) == []
        tree.close()


# -- verdicts ------------------------------------------------------------------------------------------------------

BEFORE = Identity("before", 6, 0o644, 1, 1, 1_000, 50, 1, "")
AFTER = Identity("after", 5, 0o644, 1, 1, 9_000, 0, 0, "")
ONES = [
    None,
    BEFORE,
    BEFORE._replace(mtime_ns=2_000, ino=51),  # the same content, by somebody else
    BEFORE._replace(sha256="late"),  # written to while parked
    AFTER._replace(ino=60, nlink=1),
    AFTER._replace(ino=60, nlink=1, mode=0o777),
    AFTER._replace(ino=60, nlink=1, mtime_ns=9_999),
    Identity("theirs", 6, 0o644, 1, 1, 3_000, 70, 1, ""),
    Identity("part", 2, 0o600, 0, 0, 3_000, 60, 1, ""),  # of a staged file
]
CASES = list(itertools.product(["replace", "create", "delete"], ONES, ONES, [True, False, None]))


def change(kind: str) -> Change:
    before = None if kind == "create" else BEFORE
    return Change("/t/a", "/t/a", kind, "/s/1.0", before, None if kind == "delete" else AFTER)


def is_original(one: Identity | None) -> bool:
    return one is not None and one.ino == BEFORE.ino


def test_a_verdict_never_drops_the_only_original() -> None:
    """In no combination of what is there and what is known."""
    for kind, now, parked, placed in CASES:
        verdict = decide(change(kind), now, parked, placed)
        assert verdict.action in (LEAVE, BACK, HOLD)
        if verdict.action == LEAVE and kind != "create" and is_original(parked):
            assert is_original(now), (kind, now, parked, placed)


def test_a_verdict_never_takes_away_what_is_not_ours() -> None:
    """What is undone at the path has our content and rights, or those of the original."""
    for kind, now, parked, placed in CASES:
        if decide(change(kind), now, parked, placed).action != BACK:
            continue
        if kind == "delete":
            assert now is None
            assert parked == BEFORE
            continue
        assert now is not None
        assert now.sha256 == "after" or (kind == "replace" and now.sha256 == "before")
        assert now.mode == 0o644
        assert kind == "create" or parked == BEFORE


def test_an_untouched_change_is_never_held() -> None:
    """At every point of an apply or a revert that nobody else disturbs."""
    ours = AFTER._replace(ino=60, nlink=1)
    part = ONES[-1]
    undisturbed = [
        *(("replace", BEFORE, staged, placed) for staged in (None, ours, part) for placed in (None, False)),
        *(("replace", ours, BEFORE, placed) for placed in (None, True)),
        *(("replace", BEFORE, staged, True) for staged in (None, ours)),
        *(("create", None, staged, placed) for staged in (None, ours, part) for placed in (None, False)),
        *(("create", ours, None, placed) for placed in (None, True)),
        *(("create", None, staged, True) for staged in (None, ours)),
        *(("delete", BEFORE, None, placed) for placed in (None, True, False)),
        *(("delete", None, BEFORE, placed) for placed in (None, True)),
    ]
    for kind, now, parked, placed in undisturbed:
        assert decide(change(kind), now, parked, placed).action != HOLD, (kind, now, parked, placed)


# -- third parties and crashes together ----------------------------------------------------------------------------


class Interrupted(Fs):
    """Somebody saves a file just before the first exchange; the agent is killed `after` calls later."""

    def __init__(self, path: str, content: bytes, after: int) -> None:
        super().__init__()
        self._edit: tuple[str, bytes] | None = (path, content)
        self._left = after

    def step(self, call: str, path: str) -> None:
        if self._edit is None:
            self._left -= 1
            if self._left == 0:
                raise Kill
        elif call == "exchange":
            Path(self._edit[0]).write_bytes(self._edit[1])
            self._edit = None


def test_their_bytes_survive_a_kill_right_after_their_edit(tmp_path: Path) -> None:
    """A colleague saves just before the swap, and the agent is killed at any later call."""
    theirs = b"# saved at the last moment\n"
    for at in range(1, 60):
        root = f"{tmp_path}/{at}/tree"
        scene.plant(root)
        fs = Interrupted(f"{root}/a.py", theirs, at)
        tree = scene.take(root, fs)
        is_over = False
        try:
            tree.apply("e1", scene.three_changes(root))
        except AgentError as error:
            assert error.kind == "conflict"
            is_over = True
        except Kill:
            pass
        tree.leave()
        tree = scene.take(root)
        tree.recover_files("test")
        places = [f"{root}/a.py", *(f"{tree.state_dir}/stage/{name}" for name in scene.staged(tree))]
        assert theirs in [Path(path).read_bytes() for path in places]
        assert scene.picture(root)[f"{root}/pkg/b.py"][6] == scene.OLD_B
        tree.leave()
        if is_over:
            return
    pytest.fail("no end of calls")


# -- power cuts during recovery ------------------------------------------------------------------------------------


def test_a_second_power_cut_during_recovery_loses_nothing() -> None:
    """A sample of first cuts, every call of the recovery, subsets of what was not synced."""
    first = SimFs()
    plant_sim(first)
    before = first.picture(SIM_ROOT)
    tree = scene.take(SIM_ROOT, first)
    first.settle()
    tree.apply("e1", scene.three_changes(SIM_ROOT))
    tree.revert("e1", "done")
    rng = random.Random(11)
    count = 0
    for moment in first.moments[8::4]:
        for kept in rng.sample(list(subsets(moment.pending, rng, 4)), 2 if moment.pending else 1):
            second = first.after_power_cut(moment, kept)
            assert recover_sim(second, before) == ""
            for later in second.moments[::2]:
                for still in rng.sample(list(subsets(later.pending, rng, 2)), 2 if later.pending else 1):
                    third = second.after_power_cut(later, still)
                    assert recover_sim(third, before) == "", (moment.call, later.call)
                    count += 1
    assert count > 300


# -- bugs that must be found ---------------------------------------------------------------------------------------


def _unchecked_swap(fs: Fs, change: Change) -> None:
    if change.kind == "replace":
        files.swap(fs, change.stage, change.path)
    elif change.kind == "create":
        files.move(fs, change.stage, change.path)
    else:
        files.move(fs, change.path, change.stage)


def _three_renames(fs: Fs, stage: str, path: str) -> None:
    fs.rename(path, stage + "~")
    fs.rename(stage, path)
    fs.rename(stage + "~", stage)


def _rewrite(fs: Fs, change: Change, expected: Any) -> list[Any]:
    """Writes the old bytes over the new ones, as a copy would."""
    if change.kind == "replace":
        fd = fs.open(change.path, os.O_WRONLY | os.O_TRUNC)
        fs.write_all(fd, fs.read_file(change.stage))
        fs.close(fd)
    elif change.kind == "create":
        fs.unlink(change.path)
    else:
        files.move(fs, change.stage, change.path)
    return []


def _records_too_early(self: Any, transaction: Any, placed: Any, touched: Any, reason: str) -> Any:
    paths = [change.path for change in transaction.changes]
    self.note("REVERTED", {"txn": transaction.txn, "reason": reason, "kept": [], "paths": paths})
    return files.undo(self._fs, self._place, transaction, placed, touched, lambda plan: None)


class NoChecksum:
    @staticmethod
    def crc32(_raw: bytes) -> int:
        return 0


def _believes_the_journal(change: Change, now: Any, parked: Any, placed: Any) -> decisions.Verdict:
    return decisions.Verdict(BACK if placed else LEAVE, "")


BUGS: dict[str, tuple[object, str, object]] = {
    "directories are not synced after the swaps": (files, "sync_all", lambda fs, transaction: None),
    "staged files are kept": (files, "clear_away", lambda fs, transaction: []),
    "directory times are not restored": (files, "restore_times", lambda fs, transaction, touched: None),
    "owner is not copied": (files, "_keep_owner", lambda *_: None),
    "attributes are not copied": (files, "_copy_xattrs", lambda *_: None),
    "three renames instead of an exchange": (files, "swap", _three_renames),
    "the old bytes are written back": (files, "_put_back", _rewrite),
    "REVERTED is written before the swap back": (changes.Changes, "_undo", _records_too_early),
    "the journal alone decides": (files, "decide", _believes_the_journal),
    "what came out of the path is not looked at": (files, "swap_in", _unchecked_swap),
    "versions share a second": (bytecode, "free_mtime_ns", lambda now_ns, taken: now_ns),
    "records have no checksum": (journal, "zlib", NoChecksum),
}


def run_all_checks() -> None:
    """A plain run with every invariant, then power cuts; raises at the first thing that is wrong."""
    disk = SimFs()
    plant_sim(disk)
    a_file = disk.state[disk._walk(f"{SIM_ROOT}/a.py")]
    a_file.uid, a_file.xattrs = 1234, {"user.note": b"x"}
    disk.settle()
    before = disk.picture(SIM_ROOT)
    tree = scene.take(SIM_ROOT, disk)
    disk.settle()
    step = disk.step

    def watch(call: str, path: str) -> None:
        assert disk.find(f"{SIM_ROOT}/a.py") is not None, "missing in between"
        assert disk.lstat(f"{SIM_ROOT}/a.py").size > 0, "empty in between"
        step(call, path)

    disk.step = watch  # type: ignore[method-assign]
    tree.apply("e1", scene.three_changes(SIM_ROOT))
    during = disk.picture(SIM_ROOT)[f"{SIM_ROOT}/a.py"]
    assert (during[:4], during[5]) == (before[f"{SIM_ROOT}/a.py"][:4], before[f"{SIM_ROOT}/a.py"][5])
    assert during[4] // 10**9 != before[f"{SIM_ROOT}/a.py"][4] // 10**9  # type: ignore[operator]
    tree.revert("e1", "done")
    assert disk.picture(SIM_ROOT) == before
    assert disk.names(f"{tree.state_dir}/stage") == []
    rng = random.Random(5)
    for moment in disk.moments:
        for kept in subsets(moment.pending, rng, 3):
            problem = recover_sim(disk.after_power_cut(moment, kept), before)
            assert problem == "", moment.call
    _check_last_moment_edit()


def _check_last_moment_edit() -> None:
    disk = SimFs()
    plant_sim(disk)
    tree = scene.take(SIM_ROOT, disk)
    theirs = b"# theirs\n"

    def meddle(call: str, path: str) -> None:
        if call in ("exchange", "rename"):
            disk.step = lambda call, path: None  # type: ignore[method-assign]
            disk.make(f"{SIM_ROOT}/a.py", theirs)

    disk.step = meddle  # type: ignore[method-assign]
    kind = "nothing"
    try:
        tree.apply("e1", scene.three_changes(SIM_ROOT))
    except AgentError as error:
        kind = error.kind
    assert kind == "conflict"
    assert disk.read_file(f"{SIM_ROOT}/a.py").startswith(theirs)


def test_the_checks_pass_without_a_bug() -> None:
    """Else they would find bugs everywhere."""
    run_all_checks()


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness is tested with the bugs it is for."""
    owner, attribute, bug = BUGS[name]
    monkeypatch.setattr(owner, attribute, bug)
    with pytest.raises((AssertionError, AgentError, OSError, ValueError)):
        run_all_checks()
