"""What differs travels, and the whole file comes out of it."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.splices import expand
from orchestrator.controller.splices import file_change
from orchestrator.controller.treatment import FileEdit

DATA = st.binary(max_size=60) | st.lists(st.sampled_from([b"a\n", b"b\n"]), max_size=30).map(b"".join)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("splices")


@given(before=DATA, after=DATA)
def test_every_replacement_survives_its_splice(place: Path, before: bytes, after: bytes) -> None:
    """Whatever two contents have in common, the agent puts the new one together byte for byte."""
    path = place / "file"
    path.write_bytes(before)
    (whole,) = expand(Fs(), [file_change(FileEdit(str(path), before, after))])
    assert whole["content"] == after
    assert "splice" not in whole


def test_two_lines_of_a_large_file_travel_alone(place: Path) -> None:
    """A hundred kilobytes with two neighbouring edits cost less than a packet."""
    before = b"filler = 1\n" * 10_000
    after = before[:55_000] + b"x = 2\n" + before[55_000:55_110] + b"y = 3\n" + before[55_110:]
    assert len(file_change(FileEdit("/f", before, after))["splice"]["middle_b64"]) < 300


def test_another_file_is_left_to_the_preflight(place: Path) -> None:
    """Nothing is built upon a file that is not the one the splice was made for."""
    path = place / "other"
    path.write_bytes(b"somebody else's\n")
    (whole,) = expand(Fs(), [file_change(FileEdit(str(path), b"a\nb\n", b"a\nc\n"))])
    assert whole["content"] == b""
    assert whole["before_sha256"] == hashlib.sha256(b"a\nb\n").hexdigest()


def test_a_splice_that_makes_something_else_is_refused(place: Path) -> None:
    """The digest of the result is checked before anything is staged."""
    path = place / "torn"
    path.write_bytes(b"a\nb\n")
    change = file_change(FileEdit(str(path), b"a\nb\n", b"a\nc\n"))
    change["splice"]["middle_b64"] = base64.b64encode(b"x").decode()
    with pytest.raises(AgentError, match="does not make"):
        expand(Fs(), [change])
