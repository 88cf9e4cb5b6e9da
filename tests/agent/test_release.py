"""A person's decision for a merged version: killed at any call it is still carried out, and no byte is lost."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.tree import Tree
from tests.agent import scene
from tests.agent.scene import NEW_A, OLD_A, FaultFs, Kill

THEIRS = NEW_A + b"# theirs\n"
MERGED = OLD_A + b"# theirs\n"


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = str(tmp_path / "tree")
    os.mkdir(root)
    scene.plant(root)
    return root


def hold(root: str) -> None:
    """One file of three is edited by somebody else while the change is applied."""
    tree = scene.take(root)
    tree.snapshot()
    tree.apply("e1", scene.three_changes(root))
    Path(root, "a.py").write_bytes(THEIRS)
    os.chmod(f"{root}/a.py", 0o600)
    assert tree.recover_files("test")["state"] == "held"
    tree.leave()


def wanted(root: str, theirs: bytes = THEIRS) -> list[dict[str, str]]:
    content = base64.b64encode(MERGED).decode()
    return [{"path": f"{root}/a.py", "theirs_sha256": scene.sha(theirs), "content_b64": content}]


def kept(tree: Tree) -> set[bytes]:
    folder = Path(tree.state_dir, "kept")
    return {path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else set()


def merge_killed_at(root: str, at: int) -> bool:
    """Whether the kill came before the merge was over."""
    victim = scene.take(root, FaultFs())
    fs = victim._fs
    assert isinstance(fs, FaultFs)
    fs.at = len(fs.calls) + at
    try:
        victim.release("e1", "merge", wanted(root))
    except Kill:
        return True
    finally:
        victim.leave()
    return False


def test_a_merge_killed_at_any_call_is_finished_by_recovery(tmp_path: Path) -> None:
    """The merged bytes with their rights lie at the path, the rest is as found, and what was there is kept."""
    at = 0
    is_killed = True
    while is_killed:
        at += 1
        root = str(tmp_path / str(at) / "tree")
        os.makedirs(root)
        scene.plant(root)
        before = scene.picture(root)
        hold(root)
        is_killed = merge_killed_at(root, at)
        assert Path(root, "a.py").read_bytes() in (THEIRS, MERGED)
        last = scene.take(root)
        last.recover_files("again")
        if (last.open_transaction() or {}).get("state") == "held":  # killed before the word was recorded
            last.release("e1", "merge", wanted(root))
        assert last.open_transaction() is None
        assert Path(root, "a.py").read_bytes() == MERGED
        assert os.stat(f"{root}/a.py").st_mode & 0o777 == 0o600
        now = scene.picture(root)
        others = [path for path in before if path not in (root, f"{root}/a.py")]
        assert {path: now.get(path) for path in others} == {path: before[path] for path in others}
        assert {OLD_A, THEIRS} <= kept(last)
        assert scene.staged(last) == []
        assert last.verify()["clean"]
        last.leave()
    assert at > 25


def test_a_file_that_changed_after_the_merge_is_not_overwritten(root: str) -> None:
    """The merged version was made from bytes that are no longer there: a conflict, and nothing moves."""
    hold(root)
    tree = scene.take(root)
    Path(root, "a.py").write_bytes(b"later still\n")
    with pytest.raises(AgentError) as conflict:
        tree.release("e1", "merge", wanted(root))
    assert conflict.value.kind == "conflict"
    assert Path(root, "a.py").read_bytes() == b"later still\n"
    assert tree.open_transaction() is not None
    tree.leave()


class LateEdit(Fs):
    """Somebody writes right before the exchange."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path: str | None = path

    def exchange(self, one: str, other: str) -> None:
        if self._path == other:
            self._path = None
            Path(other).write_bytes(b"at the last moment\n")
        super().exchange(one, other)


def test_an_edit_at_the_last_moment_goes_back_and_another_word_settles_it(root: str) -> None:
    """What came out of the path is looked at; then the person may still decide otherwise, and nothing is lost."""
    hold(root)
    tree = scene.take(root, LateEdit(f"{root}/a.py"))
    with pytest.raises(AgentError) as dirty:
        tree.release("e1", "merge", wanted(root))
    assert dirty.value.kind == "dirty"
    assert Path(root, "a.py").read_bytes() == b"at the last moment\n"
    tree.release("e1", "found")
    assert Path(root, "a.py").read_bytes() == OLD_A
    assert b"at the last moment\n" in kept(tree)
    assert scene.staged(tree) == []
    tree.close()


@pytest.mark.parametrize(
    ("choice", "does"), [("theirs", "stays"), ("found", "as found comes back"), ("merge", "merged file comes")]
)
def test_a_dry_run_names_what_would_happen_and_changes_nothing(root: str, choice: str, does: str) -> None:
    hold(root)
    tree = scene.take(root)
    before = scene.picture(root)
    shown = {file["path"]: file for file in tree.foresee_release("e1", choice)["files"]}
    assert does in shown[f"{root}/a.py"]["does"]
    assert "nobody touched" in shown[f"{root}/pkg/b.py"]["does"]
    assert scene.picture(root) == before
    assert tree.open_transaction() is not None
    tree.leave()


def test_a_deleted_file_cannot_be_merged(root: str) -> None:
    """The refusal names the file and the other two ways; nothing is recorded."""
    hold(root)
    os.unlink(f"{root}/a.py")
    tree = scene.take(root)
    with pytest.raises(AgentError) as refused:
        tree.release("e1", "merge", wanted(root))
    assert refused.value.kind == "refused"
    assert refused.value.hint
    tree.release("e1", "theirs")
    tree.close()
