"""A change that stays: beyond lease and guard, with later changes on top, until it is taken back byte for byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.tree import Tree
from tests.agent import scene
from tests.agent.scene import NEW_A, OLD_A, Clock, FaultFs, Kill

THIRD = NEW_A + b"# a later experiment\n"


def plant(path: Path) -> str:
    root = str(path / "tree")
    os.makedirs(root)
    scene.plant(root)
    return root


def keep(root: str, fs: Fs | None = None) -> Tree:
    tree = scene.take(root, fs)
    tree.snapshot()
    tree.apply("e1", scene.three_changes(root))
    tree.keep("e1")
    return tree


def test_what_is_kept_is_clean_closes_and_survives_recovery(tmp_path: Path) -> None:
    """Its own manifest is the one to compare with; close, another controller, recovery: it stays."""
    root = plant(tmp_path)
    tree = keep(root)
    assert tree.verify()["clean"]
    assert tree.verify()["differences"] == []
    tree.close()
    other = scene.take(root, holder=scene.OTHER)
    assert other.recover_files("test")["did"] == []
    assert other.kept() == ["e1"]
    assert Path(root, "a.py").read_bytes() == NEW_A
    assert other.verify()["differences"] == []
    other.close()


def test_later_changes_come_and_go_on_top(tmp_path: Path) -> None:
    """An experiment on a kept file is reverted to what is kept."""
    root = plant(tmp_path)
    tree = keep(root)
    tree.snapshot()
    kept = scene.picture(root)
    tree.apply("e2", [scene.replace(f"{root}/a.py", NEW_A, THIRD)])
    assert Path(root, "a.py").read_bytes() == THIRD
    tree.revert("e2", "done")
    assert scene.picture(root) == kept
    assert tree.verify()["clean"]
    tree.close()


def test_all_that_is_kept_is_taken_back_byte_for_byte(tmp_path: Path) -> None:
    """Two kept changes, one on top of the other: the inodes as found, the manifest as found, nothing staged."""
    root = plant(tmp_path)
    before = scene.picture(root)
    tree = keep(root)
    tree.snapshot()
    tree.apply("e2", [scene.replace(f"{root}/a.py", NEW_A, THIRD)])
    tree.keep("e2")
    assert tree.kept() == ["e1", "e2"]
    assert tree.restore_kept()["state"] == "clean"
    assert scene.picture(root) == before
    verdict = tree.verify()
    assert (verdict["clean"], verdict["differences"]) == (True, [])
    assert scene.staged(tree) == []
    tree.close()
    Tree.forget(Fs(), root, boot_id=scene.BOOT, clock=Clock())


@pytest.mark.parametrize("beneath", [0, 1])
@pytest.mark.parametrize("act", ["keep", "restore"])
def test_a_kill_at_any_call_leaves_it_kept_or_as_found(tmp_path: Path, act: str, beneath: int) -> None:
    """Recovery ends in one of the two, with the manifest that goes with it, also where another change stays beneath;
    nothing in between, nothing lost."""
    at = 0
    is_killed = True
    seen = set()
    while is_killed:
        at += 1
        root = plant(tmp_path / str(at))
        before = scene.picture(root)
        fs = FaultFs()
        tree = keep(root, fs) if beneath else scene.take(root, fs)
        tree.snapshot()
        change = scene.replace(f"{root}/a.py", NEW_A, THIRD)
        tree.apply("e2", [change] if beneath else scene.three_changes(root))
        if act == "restore":
            tree.keep("e2")
        fs.at = len(fs.calls) + at
        try:
            if act == "keep":
                tree.keep("e2")
            else:
                tree.restore_kept()
            is_killed = False
        except Kill:
            pass
        tree.leave()
        last = scene.take(root)
        last.recover_files("again")
        verdict = last.verify()
        assert (verdict["clean"], verdict["differences"]) == (True, []), at
        stay = len(last.kept())
        seen.add(stay)
        if stay:
            assert Path(root, "a.py").read_bytes() == {1: NEW_A, 2: THIRD}[stay]
        else:
            assert scene.picture(root) == before
            assert scene.staged(last) == []
        last.close()
    assert seen == ({beneath, beneath + 1} if act == "keep" else set(range(beneath + 2)))
    assert at > 10


def test_a_kept_file_that_somebody_edited_is_held_when_it_is_taken_back(tmp_path: Path) -> None:
    """Theirs is not overwritten: the usual decision ends it."""
    root = plant(tmp_path)
    tree = keep(root)
    Path(root, "a.py").write_bytes(b"theirs\n")
    result = tree.restore_kept()
    assert result["state"] == "held"
    assert Path(root, "a.py").read_bytes() == b"theirs\n"
    tree.release("e1", "found")
    assert Path(root, "a.py").read_bytes() == OLD_A
    tree.leave()


def test_only_an_applied_change_is_kept_and_its_originals_are_not_forgotten(tmp_path: Path) -> None:
    root = plant(tmp_path)
    tree = scene.take(root)
    tree.snapshot()
    with pytest.raises(AgentError) as refused:
        tree.keep("e1")
    assert refused.value.kind == "refused"
    with pytest.raises(AgentError):
        tree.restore_kept() if tree.kept() else tree._changes.reopen()
    tree.apply("e1", scene.three_changes(root))
    tree.keep("e1")
    tree.close()
    with pytest.raises(AgentError) as kept:
        Tree.forget(Fs(), root, boot_id=scene.BOOT, clock=Clock())
    assert "restore-found" in str(kept.value.hint)
