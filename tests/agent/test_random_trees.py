"""Random trees of every kind of entry, random changes to them: apply then revert is the identity, and so is a refusal.

Trees hold files of any content and size, links to files, folders, nothing and themselves, second names inside and
outside of the tree, attributes, odd modes and times, names of any bytes, and folders that cannot be written.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.agent.errors import AgentError
from tests.agent import scene
from tests.agent.client import AgentClient, AgentReply

IS_ROOT = os.geteuid() == 0
CHUNK = 1 << 20
"""In which files are read: larger ones take another way."""

_BYTES = st.binary(min_size=1, max_size=60).filter(
    lambda raw: not set(b"/\0") & set(raw) and raw not in (b".", b"..") and not raw.startswith(b".orchestrator-")
)
NAMES = st.one_of(
    st.sampled_from(["a.py", "b.py", "__init__.py", "with space", " ", "line\nbreak.py", "-rf", "*", "$(x)", "é世.py"]),
    st.sampled_from([os.fsdecode(b"not \xff utf-8.py"), "x" * 255, "tab\t", "back\\slash", "a.py~", ".hidden"]),
    _BYTES.map(os.fsdecode),
)
FOLDERS = st.lists(NAMES, max_size=3).map("/".join)
CONTENTS = st.one_of(
    st.just(b""),
    st.binary(max_size=200),
    st.sampled_from([b"x = 1\n", b"no newline at the end", b"\r\n" * 20]),
    st.builds(
        lambda size, byte: bytes([byte]) * size, st.sampled_from([CHUNK, CHUNK + 1, 2 * CHUNK]), st.integers(0, 255)
    ),
)
MODES = st.integers(0, 0o7777) if IS_ROOT else st.sampled_from([0o644, 0o600, 0o755, 0o444])
TIMES = st.integers(0, 4 * 10**18)
LINKS = st.sampled_from(["file", "folder", "nothing", "itself", "outside"])


@dataclass(frozen=True)
class File:
    content: bytes
    mode: int
    mtime_ns: int
    attribute: bytes | None
    second_name: str | None
    """`inside` or `outside` of the tree, or None."""


FILES = st.builds(
    File,
    CONTENTS,
    MODES,
    TIMES,
    st.one_of(st.none(), st.binary(max_size=20)),
    st.sampled_from([None, None, None, None, "outside", "inside"]),
)


@dataclass(frozen=True)
class Plan:
    """`wanted`: (kind, path below the root, content, mode or None)."""

    files: dict[str, File]
    links: dict[str, str]
    wanted: tuple[tuple[str, str, bytes, int | None], ...]
    is_read_only: bool

    @property
    def why_refused(self) -> bool:
        """Whether what is wanted must not be done: a link, or a file with another name in the tree."""
        for _, path, _, _ in self.wanted:
            if path in self.links or (path in self.files and self.files[path].second_name == "inside"):
                return True
        return False


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    files: dict[str, File] = {}
    taken: set[str] = set()
    for folder, name in draw(st.lists(st.tuples(FOLDERS, NAMES), min_size=1, max_size=6)):
        path = os.path.normpath(f"{folder}/{name}").lstrip("/")
        if is_free(path, taken):
            files[path] = draw(FILES)
            taken.add(path)
    links: dict[str, str] = {}
    for name, kind in draw(st.dictionaries(NAMES, LINKS, max_size=3)).items():
        if is_free(name, taken):
            links[name] = kind
            taken.add(name)
    assume(files)
    wanted: list[tuple[str, str, bytes, int | None]] = []
    for path in draw(st.lists(st.sampled_from(sorted(files)), unique=True, max_size=4)):
        kind = draw(st.sampled_from(["replace", "replace", "delete"]))
        mode = draw(st.one_of(st.none(), MODES)) if kind == "replace" else None
        wanted.append((kind, path, draw(CONTENTS), mode))
    if links and draw(st.integers(0, 5)) == 0:
        wanted.append(("replace", draw(st.sampled_from(sorted(links))), b"through a link", None))
    for folder, name in draw(st.lists(st.tuples(FOLDERS, NAMES), max_size=2)):
        path = os.path.normpath(f"{folder}/{name}").lstrip("/")
        if is_free(path, taken):
            wanted.append(("create", path, draw(CONTENTS), draw(st.one_of(st.none(), MODES))))
            taken.add(path)
    assume(wanted)
    return Plan(files, links, tuple(wanted), IS_ROOT and draw(st.booleans()))


def is_free(path: str, taken: set[str]) -> bool:
    """No entry of that name, and none above or below it."""
    return not any(path == one or one.startswith(f"{path}/") or path.startswith(f"{one}/") for one in taken)


@contextmanager
def planted(plan: Plan) -> Iterator[str]:
    """The tree on a quick disk, times last; removed at the end."""
    home = tempfile.mkdtemp(prefix="orchestrator-test-", dir=scene.QUICK)
    root = f"{home}/work/tree"
    try:
        os.makedirs(root)
        os.mkdir(f"{home}/outside")
        for number, (path, file) in enumerate(plan.files.items()):
            plant_file(f"{root}/{path}", file, f"{home}/outside/{number}", f"{root}/second name {number}")
        for name, kind in plan.links.items():
            os.symlink(link_to(kind, name, sorted(plan.files)[0], home), f"{root}/{name}")
        for folder, _, _ in os.walk(root, topdown=False):
            os.chmod(folder, 0o555 if plan.is_read_only else 0o755)
            os.utime(folder, ns=(10**18, 10**18 + 7))
        yield root
    finally:
        shutil.rmtree(home)


def plant_file(path: str, file: File, outside: str, inside: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(file.content)
    if file.attribute is not None:
        os.setxattr(path, "user.orchestrator-test", file.attribute)
    if file.second_name is not None:
        os.link(path, outside if file.second_name == "outside" else inside)
    os.chmod(path, file.mode)
    os.utime(path, ns=(file.mtime_ns, file.mtime_ns))


def link_to(kind: str, name: str, file: str, home: str) -> str:
    targets = {"file": file, "folder": ".", "nothing": "not there", "itself": name, "outside": f"{home}/outside"}
    return targets[kind]


def as_changes(root: str, plan: Plan) -> list[dict[str, Any]]:
    made = []
    for kind, path, content, mode in plan.wanted:
        full = f"{root}/{path}"
        old = plan.files[path].content if path in plan.files else b""
        if kind == "replace":
            made.append(scene.replace(full, old, content, mode))
        elif kind == "create":
            made.append(scene.create(full, content, mode))
        else:
            made.append(scene.delete(full, old))
    return made


def check_applied(root: str, plan: Plan, before: dict[str, tuple[Any, ...]]) -> None:
    """Everything is as wanted, and what nobody asked for is as it was, apart from folders whose entries changed."""
    during = scene.picture(root)
    asked = {f"{root}/{path}": (kind, content, mode) for kind, path, content, mode in plan.wanted}
    for path, (kind, content, mode) in asked.items():
        if kind == "delete":
            assert path not in during
            continue
        assert during[path][6] == content
        if mode is not None:
            assert during[path][0] & 0o7777 == mode
        elif kind == "replace":
            assert during[path][:3] == before[path][:3]
    for path, meta in before.items():
        if path not in asked and os.path.islink(path) | os.path.isfile(path):
            assert during[path] == meta


@settings(max_examples=60, deadline=None)
@given(plans())
def test_applied_and_reverted_or_refused_everything_is_as_found(plan: Plan) -> None:
    """Twice in a row; a second change on top of the first is refused and harms nothing."""
    with planted(plan) as root:
        before = scene.picture(root)
        tree = scene.take(root)
        tree.snapshot()
        made = as_changes(root, plan)
        for txn in ("one", "two"):
            try:
                tree.apply(txn, made)
            except AgentError as error:
                assert error.kind == "refused" and plan.why_refused, error
            else:
                assert not plan.why_refused
                check_applied(root, plan, before)
                applied = scene.picture(root)
                if tree.open_transaction() is not None:
                    with pytest.raises(AgentError) as again:
                        tree.apply("again", made)
                    assert again.value.kind == "dirty"
                    assert scene.picture(root) == applied
                    tree.revert(txn, "test")
            assert scene.picture(root) == before
            assert scene.staged(tree) == []
            assert tree.verify()["clean"]
        tree.close()


@settings(max_examples=40, deadline=None)
@given(plans(), st.data())
def test_a_change_that_does_not_fit_is_refused_whole(plan: Plan, data: st.DataObject) -> None:
    """One file of the set, anywhere in it, is not what the change was made for: nothing happens to any of them."""
    with planted(plan) as root:
        before = scene.picture(root)
        made = as_changes(root, plan)
        wrong = data.draw(st.integers(0, len(made) - 1))
        if made[wrong]["kind"] == "create":
            made[wrong] = {**made[wrong], "kind": "replace", "before_sha256": scene.sha(b"nothing")}
        else:
            made[wrong] = {**made[wrong], "before_sha256": scene.sha(b"what nobody wrote \0 here")}
        tree = scene.take(root)
        with pytest.raises(AgentError) as failed:
            tree.apply("t", made)
        assert failed.value.kind in ("conflict", "refused")
        assert scene.picture(root) == before
        assert scene.staged(tree) == []
        assert tree.open_transaction() is None
        tree.close()


@settings(max_examples=12, deadline=None)
@given(plans())
def test_the_same_over_the_wire(plan: Plan) -> None:
    """A real agent, frames of JSON: names that are no text arrive as they are, and the reply names them again."""
    with planted(plan) as root:
        before = scene.picture(root)
        client = AgentClient(Path(root).parents[1])
        try:
            holder = {"token": "t", "name": "n", "pid": os.getpid()}
            client.call("open", root=root, guarded=[], holder=holder, lease_s=60.0)
            client.call("snapshot")
            made = as_changes(root, plan)
            try:
                reply = client.call("apply", txn="t", files=made)
            except AgentReply as error:
                assert error.kind == "refused" and plan.why_refused, error
            else:
                assert [one["path"] for one in reply["files"]] == [one["path"] for one in made]
                check_applied(root, plan, before)
                if client.call("verify")["open"] is not None:
                    client.call("revert", txn="t", reason="test")
            assert scene.picture(root) == before
            assert client.call("verify")["clean"]
            client.call("close")
        finally:
            assert client.close() == 0
