"""Rendering and reading diffs, against git as the oracle, and what is left of a change."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.patching import (
    FileEdit,
    parse,
    paths_of,
    plan_files,
    residue,
    unified,
)
from orchestrator.errors import PatchConflict


def test_residue_names_our_lines_and_only_ours() -> None:
    """After a half revert beside a stranger's edit, our lines that remain and those not back are listed with lines."""
    found, patched = b"a\nb\nc\n", b"a\nB\nc\nd\n"
    assert residue(found, patched, found).is_clean
    assert residue(found, patched, b"a\nb\nc\ntheirs\n").is_clean
    left = residue(found, patched, b"theirs\na\nB\nc\n")
    assert (left.ours, left.missing) == (((3, b"B\n"),), ((2, b"b\n"),))
    full = residue(found, patched, patched)
    assert full.ours == ((2, b"B\n"), (4, b"d\n"))


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"\r\n", b"- x\n", b"+++ y\n", b"\xff\x0c\n"]), max_size=25)
TEXT = st.builds(lambda lines, tail: b"".join(lines) + tail, LINES, st.sampled_from([b"", b"end"]))


@given(TEXT, TEXT)
def test_a_rendered_diff_applies_to_exactly_its_result(before: bytes, after: bytes) -> None:
    """Rendering and applying are inverse for any two contents."""
    diff = unified(before, after, "dir/a file.py")
    if before == after:
        assert diff == b""
        return
    patch = parse(diff, "p")
    edits = plan_files(patch, {"dir/a file.py": before})
    assert [edit.after for edit in edits] == [after]
    assert residue(before, after, before).is_clean


@given(TEXT, st.sampled_from(["f", "a b", 'q"uote', "tab\there", "né", "back\\slash"]))
def test_creation_and_deletion_render_and_apply(content: bytes, path: str) -> None:
    """A new or removed file of any name makes the way through a diff and back."""
    made, gone = unified(None, content, path), unified(content, None, path)
    assert plan_files(parse(made, "p"), {path: None})[0].after == content
    assert plan_files(parse(gone, "p"), {path: content})[0] == FileEdit(path, content, None, 0o644, None)


@given(TEXT, TEXT, TEXT)
@settings(max_examples=200)
def test_a_patch_applies_exactly_or_not_at_all(before: bytes, after: bytes, other: bytes) -> None:
    """On a file it was not made for, a patch conflicts, or every old line of every hunk stood at its stated place."""
    diff = unified(before, after, "f")
    if not diff:
        return
    patch = parse(diff, "p")
    try:
        plan_files(patch, {"f": other})
    except PatchConflict as error:
        assert error.problems
        return
    lines = other.split(b"\n")
    for hunk in patch.files[0].hunks:
        stands = [line.removesuffix(b"\n") for line in hunk.old]
        assert lines[hunk.first : hunk.first + len(stands)] == stands


def git(folder: Path, *args: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    return subprocess.run(["git", *args], cwd=folder, input=data, env=env, capture_output=True, check=False, timeout=60)


def test_git_diffs_are_read_as_git_applies_them(tmp_path: Path) -> None:
    """Against git itself: a commit with odd names, renames, copies, modes and missing newlines gives the same tree."""
    before: dict[str, bytes] = {
        "keep.py": b"".join(b"line %d\n" % n for n in range(60)),
        "moved/old name.py": b"".join(b"x %d\n" % n for n in range(30)),
        "gone.py": b"gone\n",
        'od"d\té.py': b"a\nb\nc",
    }
    after: dict[str, bytes] = {
        "keep.py": before["keep.py"].replace(b"line 3\n", b"three\n").replace(b"line 50\n", b""),
        "moved/new name.py": before["moved/old name.py"].replace(b"x 7\n", b"seven\n"),
        "copy of keep.py": before["keep.py"].replace(b"line 9\n", b"nine\n"),
        'od"d\té.py': b"a\nB\nc\n",
        "new.py": b"new",
        "empty.py": b"",
    }
    git(tmp_path, "init", "-q")
    for files in (before, after):
        for path in before:
            (tmp_path / path).unlink(missing_ok=True)
        for path, content in files.items():
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_bytes(content)
        git(tmp_path, "add", "-A")
        made = git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x")
        assert made.returncode == 0, made.stderr
    for options in (["-M"], ["-M", "-C"], ["--no-renames"], ["--no-prefix", "-M"], ["-U0"]):
        diff = git(tmp_path, "diff", *options, "HEAD~1", "HEAD").stdout
        patch = parse(diff, "p")
        read = {path: before.get(path) for path in paths_of([patch])}
        now: dict[str, bytes | None] = dict(before)
        now.update({edit.path: edit.after for edit in plan_files(patch, read)})
        assert {path: content for path, content in now.items() if content is not None} == after, options


def test_git_reads_what_we_render(tmp_path: Path) -> None:
    """`git apply` accepts a rendered diff and arrives at the same bytes."""
    before, after = b"a\n" * 10 + b"mid\n" + b"b\n" * 10 + b"end", b"x\n" + b"a\n" * 10 + b"MID\n" + b"b\n" * 10
    (tmp_path / "a b.py").write_bytes(before)
    done = git(tmp_path, "apply", "-", data=unified(before, after, "a b.py"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a b.py").read_bytes() == after


@given(TEXT, TEXT)
def test_a_second_application_is_always_refused(before: bytes, after: bytes) -> None:
    """Whatever a diff does, the file it leaves behind is never patched again."""
    if diff := unified(before, after, "f"):
        with pytest.raises(PatchConflict):
            plan_files(parse(diff, "p"), {"f": after})


def test_a_line_counts_as_ours_no_more_often_than_we_added_it() -> None:
    """Somebody who wrote the same line once more does not make two lines of ours."""
    left = residue(b"a\n", b"a\nours\n", b"ours\na\nours\n")
    assert left.ours == ((1, b"ours\n"),)
