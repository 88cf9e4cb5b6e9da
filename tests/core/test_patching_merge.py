"""Three versions of a file: what merges does so exactly, what meets is reported."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.patching import merge

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n"]), max_size=12).map(b"".join)
NUMBERED = [b"line %d\n" % number for number in range(30)]


def test_their_edit_lands_on_the_file_as_found() -> None:
    """Ours changed one line, theirs another far away: the result is found with theirs alone."""
    found = b"".join(NUMBERED)
    ours = found.replace(b"line 3\n", b"ours\n")
    theirs = ours.replace(b"line 20\n", b"theirs\nand more\n")
    merged = merge(found, ours, theirs)
    assert merged.is_possible
    assert merged.content == found.replace(b"line 20\n", b"theirs\nand more\n")


def test_an_edit_of_our_own_lines_is_an_overlap_with_its_place() -> None:
    """The line they changed is the one we changed: nothing is guessed, all three versions are named."""
    found = b"".join(NUMBERED)
    ours = found.replace(b"line 3\n", b"ours\n")
    merged = merge(found, ours, ours.replace(b"ours\n", b"theirs\n"))
    assert not merged.is_possible
    first = merged.overlaps[0]
    assert (first.first, first.found, first.ours, first.theirs) == (4, (b"line 3\n",), (b"ours\n",), (b"theirs\n",))


@given(LINES, LINES)
def test_without_an_edit_of_theirs_the_merge_is_the_file_as_found(found: bytes, ours: bytes) -> None:
    assert merge(found, ours, ours).content == found


@given(LINES, LINES)
def test_without_a_change_of_ours_the_merge_is_theirs(ours: bytes, theirs: bytes) -> None:
    assert merge(ours, ours, theirs).content == theirs


@given(LINES, LINES)
def test_who_went_back_to_the_file_as_found_gets_it(found: bytes, ours: bytes) -> None:
    """The same edit on both sides is carried out once."""
    merged = merge(found, ours, found)
    assert merged.is_possible
    assert merged.content == found


@given(st.integers(0, 29), st.integers(0, 29), st.binary(min_size=1, max_size=5))
def test_edits_of_lines_apart_always_merge(one: int, other: int, text: bytes) -> None:
    """Any two lines that are not neighbours: found with exactly their line in it, whatever bytes it holds."""
    if abs(one - other) < 2:
        return
    theirs_line = text.replace(b"\n", b"") + b"!\n"
    found = list(NUMBERED)
    ours = [b"ours\n" if at == one else line for at, line in enumerate(found)]
    theirs = [theirs_line if at == other else line for at, line in enumerate(ours)]
    wanted = [theirs_line if at == other else line for at, line in enumerate(found)]
    merged = merge(b"".join(found), b"".join(ours), b"".join(theirs))
    assert merged.content == b"".join(wanted)
