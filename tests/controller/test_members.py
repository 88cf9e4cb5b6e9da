"""Bundles taken apart into members, and put together of some of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.controller.isolating import alone
from orchestrator.controller.members import PartialTexts, cut, members_of, some_of
from orchestrator.core.model import Hypothesis
from orchestrator.core.patching import parse

FUSION = Path(__file__).parents[2] / "patches" / "flashinfer-fusion-sm120.patch"
TEXTS = {"f.patch": FUSION.read_bytes()}
BUNDLE = Hypothesis.model_validate(
    {
        "id": "both",
        "claim": "c",
        "bundle": "b",
        "changes": [
            {"patch": {"files": ["f.patch"], "offset": "unique"}},
            {"sitecustomize": {"env": {"A": "1", "B": "2"}, "code": "import os"}},
            {"env": {"A": "3"}},
            {"args": {"ep-size": 8}},
            {"file": {"path": "p/x", "content": "y"}},
        ],
        "parts": {"just-a": {"change": 3, "claim": "A alone", "context": ["plain"]}},
    }
)


def test_hunks_that_need_one_another_are_one_member() -> None:
    """The import, the constant and its use stand or fall together; the other file's hunk stands alone."""
    names = [m.name for m in members_of(BUNDLE.changes, TEXTS)]
    assert names == [
        "communicator.py:71,77,100", "server_args.py:2102", "A (sitecustomize:2)", "B", "sitecustomize code",
        "A (env:3)", "--ep-size", "p/x",
    ]  # fmt: skip


@given(st.sets(st.integers(0, 7), min_size=1))
def test_some_of_the_members_are_exactly_those(chosen: set[int]) -> None:
    """Taken apart again, what was put together has the members that were chosen, and no others."""
    members = members_of(BUNDLE.changes, TEXTS)
    changes = some_of(BUNDLE.changes, [members[i] for i in sorted(chosen)])
    texts = PartialTexts(TEXTS)
    files = {file: texts[file] for change in changes for file in getattr(getattr(change, "patch", None), "files", ())}
    found = members_of(changes, files)
    assert [m.name.split(" (")[0] for m in found] == [members[i].name.split(" (")[0] for i in sorted(chosen)]


def test_part_of_a_diff_is_a_diff_of_the_same_hunks() -> None:
    """Pieces are counted through the whole diff, from 1; all of them are all of it."""
    whole = parse(TEXTS["f.patch"], "f.patch")
    part = parse(cut(TEXTS["f.patch"], "f.patch", {2, 4}), "part")
    assert [(f.path, [h.old_start for h in f.hunks]) for f in part.files] == [
        ("sglang/srt/layers/communicator.py", [77]),
        ("sglang/srt/server_args.py", [2102]),
    ]
    everything = parse(cut(TEXTS["f.patch"], "f.patch", {1, 2, 3, 4}), "all")
    assert [f.hunks[0].old for f in everything.files] == [f.hunks[0].old for f in whole.files]


@pytest.mark.parametrize("name", ["other.patch", "f.patch#", "f.patch#x", "g.patch#1"])
def test_a_name_that_no_file_has_is_none(name: str) -> None:
    assert PartialTexts(TEXTS).get(name) is None


def test_a_member_alone_is_called_as_its_part_says() -> None:
    """A part gives name, claim and contexts; without one the bundle's name and context serve."""
    named = alone(BUNDLE, 3, BUNDLE.changes[2:3], "speculative")
    assert (named.id, named.claim, named.context) == ("just-a", "A alone", ("plain",))
    unnamed = alone(BUNDLE, 4, BUNDLE.changes[3:4], "speculative")
    assert (unnamed.id, unnamed.context, unnamed.changes) == ("both.alone-4", ("speculative",), BUNDLE.changes[3:4])
