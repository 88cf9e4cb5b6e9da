"""Settings that differ between two servers, and what of that a patch of the server accounts for."""

from __future__ import annotations

import pytest

from orchestrator.serving.settings import patched_names

RESOLVER = b"""class Args:
    def resolve(self):
        if self.tp_size > 1:
            self.page_size = 64
        if (
            not self.fusion
            and is_new(self.card)
            and self.nodes == 1
        ):
            self.fusion = True
            log("on by itself")
        self.radix_cache = True

    def adjust(self, graph_bs):
        # What the graphs take.
        self.graph_bs = min(graph_bs, 128)
        parser.add_argument("--max-prefill", default=4)
"""


def changed(find: bytes, replace: bytes) -> list[tuple[str, bytes | None, bytes | None]]:
    assert RESOLVER.count(find) == 1
    return [("/engine/args.py", RESOLVER, RESOLVER.replace(find, replace))]


NAMES = ["fusion", "graph_bs", "max_prefill", "nodes", "radix_cache", "tp_size"]


@pytest.mark.parametrize(
    ("find", "replace", "explained"),
    [
        (b"is_new(self.card)", b"(is_new(self.card) or is_newer())", ["fusion", "nodes"]),
        (b"self.radix_cache = True", b"self.radix_cache = False", ["radix_cache"]),
        (b'            log("on by itself")\n', b"", []),
        (b"# What the graphs take.", b"# What they take.", []),
        (b"default=4", b"default=8", ["max_prefill"]),
        (
            b"        self.radix_cache = True\n",
            b"        self.radix_cache = True\n        self.tp_size = 2\n",
            ["tp_size"],
        ),
    ],
)
def test_a_patch_accounts_for_what_the_statements_it_changes_name(
    find: bytes, replace: bytes, explained: list[str]
) -> None:
    """The condition of a setting counts with what it guards; a line beside it, a comment or another statement does
    not."""
    assert patched_names(NAMES, changed(find, replace)) == explained


def test_a_setting_that_goes_with_a_patched_one_is_its_consequence() -> None:
    """What engines derive may differ beside a setting that was patched, and not without one."""
    differing = ["max_running_requests", "radix_cache"]
    assert patched_names(differing, changed(b"radix_cache = True", b"radix_cache = False")) == differing
    assert patched_names(["max_running_requests"], changed(b"radix_cache = True", b"radix_cache = False")) == []


def test_a_file_that_is_no_python_accounts_for_its_changed_lines() -> None:
    """A configuration file, and a source that does not parse: only the lines that differ count."""
    old = b'{"nnodes": 1,\n "dtype": "auto"}\n'
    names = ["dtype", "nnodes", "tp_size"]
    assert patched_names(names, [("config.json", old, old.replace(b"auto", b"half"))]) == ["dtype"]
    assert patched_names(names, [("config.yaml", None, b"dtype: half\n")]) == ["dtype"]
    broken = b"def (:\n  dtype\n  tp_size\n"
    assert patched_names(names, [("a.py", broken, broken.replace(b"dtype", b"nnodes"))]) == ["dtype", "nnodes"]


def test_without_files_nothing_is_accounted_for() -> None:
    """A baseline, a variable or a flag has none."""
    assert patched_names(NAMES, []) == []
