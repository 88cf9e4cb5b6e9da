"""A hypothesis' changes become file edits, settings and expectations, in memory."""

from __future__ import annotations

import pytest

from orchestrator.controller.treatment import Layout, build, paths_to_read
from orchestrator.core.model import Hypothesis
from orchestrator.errors import PatchConflict
from orchestrator.serving.configuration import Configuration

LAYOUT = Layout("/v/lib/sglang", "/v/lib", {"sglang": "/v/lib/sglang/__init__.py"}, "/v/lib/sitecustomize.py")
DIFF = b"""\
--- a/sglang/x.py
+++ b/sglang/x.py
@@ -1,2 +1,2 @@
-old
+new
 end
"""


def changes(*rows: dict[str, object]) -> Hypothesis:
    return Hypothesis.model_validate({"id": "h", "claim": "c", "bundle": "all of them", "changes": list(rows)})


def test_patch_edit_and_file_of_one_path_are_composed_in_order() -> None:
    """A diff and a search/replace edit of the same file give one replacement of it."""
    h = changes(
        {"patch": "x.patch"}, {"patch": {"edits": [{"file": "sglang/x.py", "find": "new", "replace": "newer"}]}}
    )
    texts = {"x.patch": DIFF}
    assert paths_to_read(h.changes, texts, LAYOUT) == ["/v/lib/sglang/x.py"]
    built = build(h.changes, texts, LAYOUT, Configuration(), {"/v/lib/sglang/x.py": b"old\nend\n"})
    assert [(f.path, f.after) for f in built.files] == [("/v/lib/sglang/x.py", b"newer\nend\n")]


def test_settings_lie_on_top_of_the_baseline() -> None:
    """Flags and variables are set and unset, and what was asked for is expected of the server."""
    h = changes({"args": {"ep-size": 8, "gone": None}}, {"env": {"NCCL_ALGO": "Tree", "OLD": None}})
    built = build(h.changes, {}, LAYOUT, Configuration({"gone": True, "tp-size": 8}, {"OLD": "1"}), {})
    assert built.configuration.flags == {"tp-size": 8, "ep-size": 8}
    assert built.configuration.env == {"OLD": None, "NCCL_ALGO": "Tree"}
    assert built.expectation.flags == {"ep-size": 8, "gone": None}
    assert not built.changes_files


def test_sitecustomize_of_the_environment_gets_a_guarded_block() -> None:
    """The file found keeps every byte it had, and ours follows between marks."""
    h = changes({"sitecustomize": {"env": {"NCCL_NTHREADS": "64"}}})
    found = {LAYOUT.sitecustomize: b"import os\n"}
    built = build(h.changes, {}, LAYOUT, Configuration(), found)  # type: ignore[arg-type]
    after = built.files[0].after or b""
    assert after.startswith(b"import os\n# >>> orchestrator")
    assert b"NCCL_NTHREADS" in after
    assert built.expectation.python_environ == {"NCCL_NTHREADS": "64"}


def test_sitecustomize_of_the_whole_host_is_chained_and_not_edited() -> None:
    """A file that every Python of the host reads stays as it is; ours runs from a directory of its own after it."""
    shared = Layout("/v/lib/sglang", "/v/lib", {}, "/etc/python3/sitecustomize.py", False)
    h = changes({"sitecustomize": {"env": {"A": "1"}}})
    assert paths_to_read(h.changes, {}, shared) == []  # Debian's is a link, which nothing of ours may follow
    built = build(h.changes, {}, shared, Configuration(), {})
    assert built.files == ()
    source = built.configuration.site["sitecustomize.py"].decode()
    assert source.index("/etc/python3/sitecustomize.py") < source.index("os.environ['A']")
    compile(source, "sitecustomize.py", "exec")
    assert "stays as it is" in built.remarks[0]


def test_a_file_can_be_created_replaced_and_deleted() -> None:
    """Each says what is there before and after; a deletion of nothing is a conflict."""
    h = changes(
        {"file": {"path": "sglang/new.json", "content": "{}", "mode": "0600"}},
        {"file": {"path": "/etc/x.conf", "content": "b"}},
        {"file": {"path": "sglang/old.py", "delete": True}},
    )
    found = {"/v/lib/sglang/new.json": None, "/etc/x.conf": b"a", "/v/lib/sglang/old.py": b"z"}
    built = build(h.changes, {}, LAYOUT, Configuration(), found)
    assert {(f.path, f.before, f.after, f.mode) for f in built.files} == {
        ("/v/lib/sglang/new.json", None, b"{}", 0o600),
        ("/etc/x.conf", b"a", b"b", None),
        ("/v/lib/sglang/old.py", b"z", None, None),
    }
    with pytest.raises(PatchConflict, match="already gone"):
        build(h.changes[2:], {}, LAYOUT, Configuration(), {**found, "/v/lib/sglang/old.py": None})


def test_what_was_changed_is_named_for_the_diagnosis() -> None:
    """A crash can be traced to the change whose file or variable it names."""
    h = changes({"patch": "x.patch"}, {"env": {"NCCL_ALGO": "Tree"}}, {"args": {"ep-size": 8}})
    built = build(h.changes, {"x.patch": DIFF}, LAYOUT, Configuration(), {"/v/lib/sglang/x.py": b"old\nend\n"})
    assert built.changed_paths == {"patch:1": ("sglang/x.py",)}
    assert built.changed_names == {"env:2": ("NCCL_ALGO",), "args:3": ("--ep-size",)}
