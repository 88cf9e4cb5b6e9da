"""Patches are read, applied exactly or refused with every reason, and composed, all in memory."""

from __future__ import annotations

import pytest

from orchestrator.core.patching import (
    Action,
    Block,
    Change,
    FileEdit,
    TextEdit,
    WholeFile,
    marker_ids,
    parse,
    paths_of,
    plan_files,
)
from orchestrator.errors import Bug, PatchConflict, PlaybookError

GATE = b"""\
# Base: some version. Apply at strip level 1.
--- a/pkg/comm.py
+++ b/pkg/comm.py
@@ -1,4 +1,5 @@
 from x import (
     sm100,
+    sm120,
 )

@@ -7,3 +8,3 @@ def gate():
     return (
-        sm100
+        (sm100 or sm120)
         and ready
"""
COMM = b"from x import (\n    sm100,\n)\n\n\ndef gate():\n    return (\n        sm100\n        and ready\n    )\n"
PATCHED = (
    b"from x import (\n    sm100,\n    sm120,\n)\n\n\ndef gate():\n"
    b"    return (\n        (sm100 or sm120)\n        and ready\n    )\n"
)


def apply(diff: bytes, files: dict[str, bytes | None], **options: str) -> dict[str, bytes | None]:
    patch = parse(diff, "x.patch")
    read = {path: files.get(path) for path in paths_of([patch])}
    return {edit.path: edit.after for edit in plan_files(patch, read, **options)}  # type: ignore[arg-type]


def conflict(diff: bytes, files: dict[str, bytes | None], **options: str) -> PatchConflict:
    with pytest.raises(PatchConflict) as caught:
        apply(diff, files, **options)
    return caught.value


# ---------------------------------------------------------------- reading


def test_leading_comments_and_hunks_are_read_with_their_lines() -> None:
    """A patch with comments before the diff keeps the line numbers a person can open."""
    [diff] = parse(GATE, "gate.patch").files
    assert (diff.action, diff.path) == (Action.MODIFY, "pkg/comm.py")
    assert [(h.old_start, h.line) for h in diff.hunks] == [(1, 4), (7, 10)]


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        (b"/etc/passwd", "absolute"),
        (b"a/../../etc/passwd", "climbs out"),
        (b'"a/x\\000y"', "NUL"),
        (b"a/", "empty"),
        (b"a/.git/hooks/post-checkout", "git directory"),
        (b'"a/x', "no closing quote"),
        (b'"a/x\\q"', "unknown escape"),
    ],
)
def test_a_path_that_could_leave_the_tree_is_refused_with_its_line(path: bytes, complaint: str) -> None:
    """Each unsafe path is a problem that names the patch and the line of its header."""
    diff = b"# why\n--- %s\n+++ %s\n@@ -1 +1 @@\n-a\n+b\n" % (path, path.replace(b"a/", b"b/", 1))
    with pytest.raises(PlaybookError) as caught:
        parse(diff, "bad.patch", strip=0 if path.startswith(b"/") else 1)
    [problem] = caught.value.problems
    assert complaint in problem.what
    assert problem.where is not None
    assert (problem.where.file, problem.where.line) == ("bad.patch", 2)


@pytest.mark.parametrize(
    ("diff", "line", "complaint"),
    [
        (b"", None, "no diff"),
        (b"@@ -1 +1 @@\n-a\n+b\n", 1, "without a file header"),
        (b"--- a/f\n+++ b/f\n", 1, "without a hunk"),
        (b"--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n-a\n+b\n", 3, "do not add up"),
        (b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n+c\n", 6, "more lines"),
        (b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n a\n", 3, "changes nothing"),
        (b"--- a/f\n+++ b/f\n@@ -5 +5 @@\n-a\n+b\n@@ -5 +6 @@\n-a\n+b\n", 6, "overlaps"),
        (b"--- a/f\n+++ b/f\n@@ -0,1 +1 @@\n-a\n+b\n", 3, "line 1 or later"),
        (b"--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", 1, "two names differ"),
        (b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n\\ No newline\n-b\n+c\n+d\n", 3, "last line"),
        (b"diff --git a/f b/f\nindex 1..2 100644\nGIT binary patch\nliteral 1\n", 3, "binary"),
        (b"diff --git a/f b/f\nBinary files a/f and b/f differ\n", 2, "binary"),
        (b"Binary files a/f and b/f differ\n", 1, "binary"),
        (b"diff --git a/f b/f\nnew file mode 120000\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n", 2, "symbolic"),
        (b"diff --git a/f b/f\nindex 1..2 100644\n", 1, "changes nothing"),
        (b"diff --git a/f b/g\nold mode 100644\nnew mode 100755\n", 1, "names no file"),
        (b"diff --git a/f b/g\nrename from f\n", 1, "both ends"),
    ],
)
def test_a_malformed_diff_is_refused_at_its_line(diff: bytes, line: int | None, complaint: str) -> None:
    """What cannot be applied exactly is refused when it is read, with the line that shows it."""
    with pytest.raises(PlaybookError) as caught:
        parse(diff, "bad.patch")
    problem = caught.value.problems[0]
    assert complaint in problem.what
    assert problem.where is not None
    assert problem.where.line == line


def test_content_that_looks_like_a_header_is_content() -> None:
    """Lines are counted, not guessed at: a removed `-- x` and an added `++ y` are no file header."""
    diff = b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n--- x\n+++ y\n z\n"
    assert apply(diff, {"f": b"-- x\nz\n"}) == {"f": b"++ y\nz\n"}


def test_a_mail_with_signature_is_read() -> None:
    """The output of `git format-patch` is a patch: mail headers before it and the signature after it are no diff."""
    diff = b"From 1234 Mon Sep 17\nSubject: x\n\n f | 2 +-\n\ndiff --git a/f b/f\nindex 1..2 100644\n" + (
        b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n-- \n2.39.0\n\n"
    )
    assert apply(diff, {"f": b"a\n"}) == {"f": b"b\n"}


def test_strip_level_and_missing_prefixes() -> None:
    """`strip` drops leading parts; without it git's prefixes are noticed, and paths without them stay as they are."""
    body = b"@@ -1 +1 @@\n-a\n+b\n"
    assert parse(b"--- x/y/f\n+++ x/y/f\n" + body, "p", strip=2).files[0].path == "f"
    assert parse(b"--- x/y/f\n+++ x/y/f\n" + body, "p").files[0].path == "x/y/f"
    assert parse(b"--- i/y/f\n+++ w/y/f\n" + body, "p").files[0].path == "y/f"
    assert parse(b"--- a/f\n+++ a/f\n" + body, "p").files[0].path == "a/f"
    with pytest.raises(PlaybookError, match="fewer than 3"):
        parse(b"--- x/f\n+++ x/f\n" + body, "p", strip=3)


def test_a_plain_diff_marks_new_and_removed_files_by_the_time_zero() -> None:
    """`diff -N` has no /dev/null: the time stamp 0 of either side says that the file is not there."""
    zero = b"1970-01-01 01:00:00.000000000 +0100"
    new = b"--- a/f\t%s\n+++ b/f\t2026-01-01 00:00:00.0 +0000\n@@ -0,0 +1 @@\n+x\n" % zero
    gone = b"--- a/f\t2026-01-01 00:00:00.0 +0000\n+++ b/f\t%s\n@@ -1 +0,0 @@\n-x\n" % zero
    assert apply(new, {}) == {"f": b"x\n"}
    assert apply(gone, {"f": b"x\n"}) == {"f": None}


# ---------------------------------------------------------------- applying


def test_a_patch_gives_the_whole_new_file() -> None:
    """Hunks apply at their lines, the second in the coordinates of the file as found."""
    patch = parse(GATE, "gate.patch")
    assert plan_files(patch, {"pkg/comm.py": COMM}) == [FileEdit("pkg/comm.py", COMM, PATCHED)]


def test_applying_twice_is_refused_and_said() -> None:
    """The patched file is recognised as patched, not as a conflict, and nothing is changed."""
    error = conflict(GATE, {"pkg/comm.py": PATCHED})
    assert "already applied" in error.what
    moved = conflict(GATE, {"pkg/comm.py": b"# new\n" + PATCHED})
    assert "already applied" in moved.what


def test_lines_appended_at_the_end_do_not_fit_twice() -> None:
    """A hunk without context after its change belongs at the end of the file, so the appended lines are noticed."""
    diff = b"--- a/f\n+++ b/f\n@@ -1,2 +1,3 @@\n a\n b\n+c\n"
    assert apply(diff, {"f": b"a\nb\n"}) == {"f": b"a\nb\nc\n"}
    for offset in ("exact", "unique"):
        assert "already applied" in conflict(diff, {"f": b"a\nb\nc\n"}, offset=offset).what
        assert conflict(diff, {"f": b"a\nb\nd\n"}, offset=offset).facts["expected"] == "the end of the file"


def test_an_insertion_without_context_is_not_applied_twice() -> None:
    """A hunk of `diff -U0` fits anywhere; its own lines already standing there make it refused."""
    diff = b"--- a/f\n+++ b/f\n@@ -1,0 +2 @@\n+x\n"
    assert apply(diff, {"f": b"a\nb\n"}) == {"f": b"a\nx\nb\n"}
    assert "already applied" in conflict(diff, {"f": b"a\nx\nb\n"}).what


def test_a_deletion_without_context_that_does_not_fit_is_a_conflict() -> None:
    """A hunk that leaves no lines behind cannot be seen as applied: it simply does not fit."""
    diff = b"--- a/f\n+++ b/f\n@@ -2 +1,0 @@\n-x\n"
    assert apply(diff, {"f": b"a\nx\nb\n"}) == {"f": b"a\nb\n"}
    assert "does not apply" in conflict(diff, {"f": b"a\nb\n"}).what


def test_a_conflict_names_the_first_differing_line() -> None:
    """A misfit says file, line, expected, found and where else the old lines stand, at the hunk's line of the patch."""
    found = COMM.replace(b"        sm100\n        and", b"        sm100 and not fused\n        and")
    error = conflict(GATE, {"pkg/comm.py": found})
    assert error.exit_code == 4
    assert error.where is not None
    assert (error.where.file, error.where.line) == ("x.patch", 10)
    assert error.facts == {
        "file": "pkg/comm.py",
        "line": "8",
        "hunk": "2 of 2",
        "expected": "        sm100",
        "found": "        sm100 and not fused",
        "elsewhere": "nowhere",
    }


def test_all_conflicts_come_at_once() -> None:
    """One error carries every misfit of every file, in the order of the patch."""
    diff = GATE + b"--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n--- a/h\n+++ b/h\n@@ -1 +1 @@\n-a\n+b\n"
    error = conflict(diff, {"pkg/comm.py": b"x\n", "g": None, "h": b"a\n"})
    said = [(p.facts["file"], p.what) for p in error.problems]
    assert said == [
        ("pkg/comm.py", "the patch does not apply"),
        ("pkg/comm.py", "the patch does not apply"),
        ("g", "the file to patch is not there"),
    ]
    assert "and 2 more" in error.what


def test_a_moved_hunk_is_reported_and_taken_only_when_allowed() -> None:
    """One line more above is a conflict that names the other place; `offset: unique` accepts exactly that place."""
    moved = b"# a new first line\n" + COMM
    error = conflict(GATE, {"pkg/comm.py": moved})
    assert [p.facts["elsewhere"] for p in error.problems] == ["line 2", "line 8"]
    assert apply(GATE, {"pkg/comm.py": moved}, offset="unique") == {"pkg/comm.py": b"# a new first line\n" + PATCHED}


def test_two_possible_places_are_never_chosen_between() -> None:
    """Where the old lines stand twice and neither is the stated place, even `unique` refuses."""
    diff = b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+b\n c\n"
    twice = b"x\na\nc\na\nc\n"
    assert conflict(diff, {"f": twice}, offset="unique").facts["elsewhere"] == "line 2, line 4"


def test_after_a_moved_hunk_the_stated_place_of_the_next_proves_nothing() -> None:
    """Once one hunk had to move, a later one that also occurs elsewhere is refused, though it fits where it says."""
    diff = b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+ONE\n@@ -3 +3 @@\n-two\n+TWO\n"
    assert apply(diff, {"f": b"one\n\ntwo\n\ntwo\n"}) == {"f": b"ONE\n\nTWO\n\ntwo\n"}
    error = conflict(diff, {"f": b"\none\ntwo\ntwo\n"}, offset="unique")
    assert "an earlier one had to be moved" in error.what
    assert error.facts["elsewhere"] == "line 3, line 4"


def test_line_ends_matter_and_are_shown() -> None:
    """A patch in LF does not fit a file in CRLF, and the conflict shows the bytes since the text looks alike."""
    diff = b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"
    error = conflict(diff, {"f": b"a\r\n"})
    assert (error.facts["expected"], error.facts["found"]) == ("b'a\\n'", "b'a\\r\\n'")
    assert error.hint is not None
    assert "line ends" in error.hint


def test_a_patch_in_crlf_takes_the_line_ends_of_the_file() -> None:
    """Where even the headers end in CRLF the patch was converted on its way: it fits LF and CRLF files alike."""
    diff = b"--- a/f\r\n+++ b/f\r\n@@ -1,2 +1,2 @@\r\n-a\r\n+b\r\n c\r\n"
    assert apply(diff, {"f": b"a\nc\n"}) == {"f": b"b\nc\n"}
    assert apply(diff, {"f": b"a\r\nc\r\n"}) == {"f": b"b\r\nc\r\n"}


def test_a_file_in_crlf_keeps_its_line_ends() -> None:
    """CRLF in the content of an LF patch is content."""
    diff = b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\r\n+b\r\n"
    assert apply(diff, {"f": b"a\r\n"}) == {"f": b"b\r\n"}


def test_missing_newline_at_the_end_is_exact() -> None:
    """`\\ No newline at end of file` is honoured on either side and tells the two files apart."""
    diff = b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n"
    assert apply(diff, {"f": b"a"}) == {"f": b"b\n"}
    assert conflict(diff, {"f": b"a\n"}).facts["expected"] == "b'a'"


def test_bytes_of_any_encoding_and_form_feeds_survive() -> None:
    """Sources are bytes: Latin-1, NUL and form feed pass through, and only \\n ends a line."""
    diff = b"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n \xe9\x0c\x00\rx\n-b\n+\xff\n"
    assert apply(diff, {"f": b"\xe9\x0c\x00\rx\nb\n"}) == {"f": b"\xe9\x0c\x00\rx\n\xff\n"}


def test_created_deleted_renamed_copied_and_mode_changed_files() -> None:
    """Git's extended headers: every kind of change gives its edits, with modes and the file they are taken from."""
    diff = (
        b"diff --git a/new.sh b/new.sh\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/new.sh\n"
        b"@@ -0,0 +1 @@\n+x\n"
        b"diff --git a/empty b/empty\nnew file mode 100644\nindex 0..0\n"
        b"diff --git a/old b/old\ndeleted file mode 100644\nindex 1..0\n--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        b"diff --git a/from b/to\nsimilarity index 50%\nrename from from\nrename to to\n--- a/from\n+++ b/to\n"
        b"@@ -1 +1 @@\n-f\n+t\n"
        b"diff --git a/from b/twin\nsimilarity index 100%\ncopy from from\ncopy to twin\n"
        b"diff --git a/run b/run\nold mode 100644\nnew mode 100755\n"
    )
    patch = parse(diff, "x.patch")
    read = {"new.sh": None, "empty": None, "old": b"x\n", "from": b"f\n", "to": None, "twin": None, "run": b"r\n"}
    assert plan_files(patch, read) == [
        FileEdit("empty", None, b"", None, 0o644),
        FileEdit("from", b"f\n", None),
        FileEdit("new.sh", None, b"x\n", None, 0o755),
        FileEdit("old", b"x\n", None, 0o644, None),
        FileEdit("run", b"r\n", b"r\n", 0o644, 0o755),
        FileEdit("to", None, b"t\n", taken_from="from"),
        FileEdit("twin", None, b"f\n", taken_from="from"),
    ]
    after = {edit.path: edit.after for edit in plan_files(patch, read)}
    with pytest.raises(PatchConflict) as caught:
        plan_files(patch, {**read, **after})
    whats = {p.facts["file"]: p.what for p in caught.value.problems}
    assert whats["new.sh"] == whats["old"] == whats["to"] == "the patch is already applied"


def test_two_files_never_end_at_the_same_path() -> None:
    """A path that one rename leaves is free once, not twice."""
    moves = (b"x", b"y"), (b"y", b"w"), (b"z", b"y")
    diff = b"".join(b"diff --git a/%s b/%s\nrename from %s\nrename to %s\n" % (a, b, a, b) for a, b in moves)
    error = conflict(diff, {"x": b"1\n", "y": b"2\n", "z": b"3\n"})
    assert [problem.facts["file"] for problem in error.problems] == ["y"]


def test_two_files_can_swap_their_names() -> None:
    """Renames read the tree as it was before the patch, as git does."""
    diff = b"diff --git a/x b/y\nrename from x\nrename to y\ndiff --git a/y b/x\nrename from y\nrename to x\n"
    assert apply(diff, {"x": b"1\n", "y": b"2\n"}) == {"x": b"2\n", "y": b"1\n"}


@pytest.mark.parametrize(
    ("diff", "files", "what"),
    [
        (b"--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n", {"f": b"y\n"}, "already there"),
        (b"--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n", {"f": b"x\n"}, "already applied"),
        (b"--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", {"f": b"x\ny\n"}, "holds more"),
        (b"--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", {"f": None}, "already applied"),
        (b"diff --git a/f b/g\nrename from f\nrename to g\n", {"f": b"x", "g": b"y"}, "already there"),
        (b"diff --git a/f b/g\nrename from f\nrename to g\n", {}, "not there"),
    ],
)
def test_files_in_the_wrong_place_are_conflicts(diff: bytes, files: dict[str, bytes | None], what: str) -> None:
    """A file to create that is there, or one to delete or rename that is not as stated, is never forced."""
    assert what in conflict(diff, files).what


def test_an_unread_path_is_our_own_mistake() -> None:
    """A caller that plans without reading gets a bug, never a file taken for absent."""
    with pytest.raises(Bug):
        plan_files(parse(GATE, "x.patch"), {})


# ---------------------------------------------------------------- edits and composition


def test_search_and_replace_counts_its_occurrences() -> None:
    """An edit applies where its text occurs as often as expected; else the lines are named, or what resembles it."""
    read: dict[str, bytes | None] = {"f": b"a = 1\nb = 2\na = 1\n"}
    assert plan_files([TextEdit("f", b"b = 2", b"b = 3")], read)[0].after == b"a = 1\nb = 3\na = 1\n"
    assert plan_files([TextEdit("f", b"a = 1", b"a = 9", count=2)], read)[0].after == b"a = 9\nb = 2\na = 9\n"
    with pytest.raises(PatchConflict) as often:
        plan_files([TextEdit("f", b"a = 1", b"a = 9")], read)
    assert (often.value.facts["found"], often.value.facts["lines"]) == ("2", "1, 3")
    with pytest.raises(PatchConflict) as near:
        plan_files([TextEdit("f", b"b  =  2", b"x")], read)
    assert near.value.facts["similar"] == "line 2: b = 2"
    with pytest.raises(PatchConflict) as like:
        plan_files([TextEdit("f", b"bb = 2", b"x")], read)
    assert "line 2: b = 2" in like.value.facts["similar"]


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (TextEdit("f", b"x", b"y"), "already applied"),
        (TextEdit("g", b"(a or b", b"(a or b or c"), "already applied"),
        (TextEdit("h", b"aa", b"b"), "overlap"),
        (TextEdit("h", b"", b"b"), "something to find"),
        (TextEdit("h", b"a", b"a"), "something to find"),
        (TextEdit("absent", b"a", b"b"), "not there"),
    ],
)
def test_an_edit_that_is_done_or_ambiguous_is_refused(edit: TextEdit, what: str) -> None:
    """Applying twice, overlapping text, an empty search and a missing file are conflicts."""
    read = {"f": b"y\n", "g": b"if (a or b or c):\n", "h": b"aaa\n", "absent": None}
    with pytest.raises(PatchConflict, match=what):
        plan_files([edit], read)


def test_changes_on_one_file_compose_into_one_edit() -> None:
    """A patch, an edit and a block on the same file give one edit from what was found to what will be there."""
    changes: list[Change] = [
        parse(GATE, "gate.patch"),
        TextEdit("pkg/comm.py", b"and ready", b"and steady"),
        Block("pkg/comm.py", "x = 1\n", "b1"),
        Block("pkg/comm.py", "x = 2\n", "b2"),
        WholeFile("extra", b"e", 0o755),
        WholeFile("gone", None),
    ]
    edits = plan_files(changes, {"pkg/comm.py": COMM, "extra": None, "gone": b"g"})
    assert [edit.path for edit in edits] == ["extra", "gone", "pkg/comm.py"]
    comm = edits[2]
    assert comm.before == COMM
    assert comm.after is not None
    assert comm.after.startswith(PATCHED.replace(b"ready", b"steady"))
    assert marker_ids(comm.after) == ["b1", "b2"]
    assert (edits[0].mode_after, edits[1].after) == (0o755, None)


def test_a_file_that_ends_as_it_was_is_no_edit() -> None:
    """A change and its opposite leave nothing to do."""
    there, back = TextEdit("f", b"a", b"b"), TextEdit("f", b"b", b"a")
    assert plan_files([there, back], {"f": b"a\n"}) == []


def test_a_change_behind_a_failed_one_is_not_judged() -> None:
    """Later changes of a file that already failed add no misleading conflicts; other files are still judged."""
    changes = [TextEdit("f", b"no", b"x"), TextEdit("f", b"x", b"y"), TextEdit("g", b"no", b"x")]
    with pytest.raises(PatchConflict) as caught:
        plan_files(changes, {"f": b"a\n", "g": b"a\n"})
    assert [p.facts["file"] for p in caught.value.problems] == ["f", "g"]


def test_a_diff_of_two_places_says_how_to_write_its_header() -> None:
    """`diff -u TREE/FILE COPY` names two files; the complaint shows how one file is named."""
    with pytest.raises(PlaybookError) as refused:
        parse(b"--- tree/sglang/a.py\n+++ /tmp/a.py\n@@ -1 +1 @@\n-x\n+y\n", name="p.patch")
    assert "--label a/PACKAGE/FILE" in str(refused.value.problems[0].hint)
