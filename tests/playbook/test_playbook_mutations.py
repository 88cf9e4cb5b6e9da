"""However a playbook is broken, the answer is a list of problems with places inside of the file."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import PlaybookError
from orchestrator.playbook import check, load

RICH = """\
campaign: c # note
description: |
  some
  lines
host: gpu1
hosts:
  gpu1: &gpu
    route: {ssh: root@hv, hops: ["pct exec 129 --", {ssh: in}], connect_timeout: 5s}
    target: t
    reap: [1, 2]
  gpu2: {<<: *gpu, target: {engine: command, launch: [serve, --port, "{port}"]}}
targets:
  t:
    args: {tp-size: 8, "json": {"a": [1, "b c"]}, bare: true}
    env: {HF_TOKEN: secret, N: 1.10}
    ready: {limit: 30m, stall: 90s}
workload: {prompt_tokens: 64}
measure: {metric: itl_ms, direction: lower, min_effect: 2%}
contexts: {plain: {}, fast: {args: {k: 3}}}
hypotheses:
  - id: a
    claim: 'it''s'
    changes:
      - patch: {edits: [{file: f, find: x, replace: y}]}
      - patch: a.diff
  - id: b
    claim: "x\\ty"
    context: [plain, fast]
    after: [a]
    bundle: why
    requires: {packages: {torch: '*'}, gpu_arch: ['12.0'], files: [a/b]}
    changes:
      - env: {A: null}
      - args: {c: 2}
      - sitecustomize: {env: {B: x}, code: "import os"}
      - file: {path: p, content: z, mode: '0644'}
"""
TOKENS = re.findall(r"\s+|[\w.%']+|.", RICH, re.DOTALL)
SCRAPS = [
    ":", "-", "- ", "{", "}", "[", "]", ",", "&a ", "*a", "*gpu", "!!int ", "!x ", "|", ">", "'", '"', "\t", "\n", "  ",
    "\n  ", "#", "?", "? ", "---\n", "...", "%YAML 1.1\n", "<<: ", "null", "true", "8", "1e9", "\\", "\x07", "\u2028",
    "\ufeff", "ü", "@", "`", "--nnodes: 2", "nnodes: 2", "/", "../", "a.diff", "from: ", '"\\0"', '"\\ud800"', "=",
]  # fmt: skip

mutation = st.tuples(
    st.sampled_from(["drop", "insert", "replace", "copy"]),
    st.integers(0, len(TOKENS) - 1),
    st.integers(0, len(TOKENS) - 1),
    st.sampled_from(SCRAPS),
)


def mutate(tokens: list[str], step: tuple[str, int, int, str]) -> None:
    kind, at, other, scrap = step
    at, other = at % max(1, len(tokens)), other % max(1, len(tokens))
    if kind == "insert":
        tokens.insert(at, scrap)
    elif not tokens:
        tokens.append(scrap)
    elif kind == "drop":
        del tokens[at]
    elif kind == "replace":
        tokens[at] = scrap
    else:
        tokens.insert(at, tokens[other])


def assert_answered(path: Path, content: bytes) -> None:
    """`check` returns, `load` raises exactly what it returns, and every place can be opened."""
    path.write_bytes(content)
    problems = check(path, cwd=path.parent)
    try:
        load(path, cwd=path.parent)
        assert not problems
    except PlaybookError as error:
        assert list(error.problems) == problems
    lines = re.split(r"\r\n|\n|\r", content.decode("utf-8-sig", "replace"))
    for problem in problems:
        assert problem.what
        where = problem.where
        assert where is not None
        if where.file == str(path) and where.line is not None:
            assert 1 <= where.line <= len(lines)
            if where.column is not None:
                assert 1 <= where.column <= len(lines[where.line - 1]) + 1


@given(st.lists(mutation, min_size=1, max_size=5))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mutated_playbook_is_answered(tmp_path: Path, steps: list[tuple[str, int, int, str]]) -> None:
    """Tokens dropped, inserted, replaced and copied never cause anything but problems inside of the file."""
    tokens = list(TOKENS)
    for step in steps:
        mutate(tokens, step)
    assert_answered(tmp_path / "p.yaml", "".join(tokens).encode("utf-8", "replace"))


@given(st.lists(st.sampled_from([*SCRAPS, "a", "hypotheses", "hosts", "changes", "id"]), max_size=30))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_scraps_are_answered(tmp_path: Path, scraps: list[str]) -> None:
    """Nor does any heap of YAML's own signs."""
    assert_answered(tmp_path / "p.yaml", "".join(scraps).encode("utf-8", "replace"))


@given(st.binary(max_size=60))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bytes_are_answered(tmp_path: Path, content: bytes) -> None:
    """Nor do bytes of any kind."""
    assert_answered(tmp_path / "p.yaml", content)


def test_the_unmutated_one_is_right(tmp_path: Path) -> None:
    """The playbook that is mutated has one problem to begin with: its diff is not there."""
    (tmp_path / "p.yaml").write_text(RICH)
    assert [p.what.endswith("a.diff does not exist") for p in check(tmp_path / "p.yaml")] == [True]
