from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.report.best import best_of
from orchestrator.report.tables import Column, Row, Table, experiments_table, findings_table, lines, todo_table
from orchestrator.report.text import cell, change, code, markdown, plain
from tests.report.report_story import EP, EVIL, TREE, finding, todo, view


def test_findings_are_rows_with_their_verdict_as_mark() -> None:
    """Cells are text, aligned by the column; the mark is what a colour tells."""
    table = findings_table(view().findings)
    assert [row.mark for row in table.rows] == ["crashed", "improved"]
    assert table.rows[1].cells[5:8] == ("+9.3 %", "+8.1 … +10.5 %", "82")
    assert next(lines(table)).split() == [c.head for c in table.columns]


def test_todo_and_experiments_are_rows_too() -> None:
    """Origin, rank and reason of a todo row; phase of a running experiment."""
    rows = todo_table(view().todo).rows
    assert rows[2].cells == ("mscclpp", "–", "open", "1.5", "–", "isolation of fusion", "never tried")
    experiments = experiments_table(view().experiments).rows
    assert [(r.cells[0], r.cells[4], r.mark) for r in experiments] == [
        ("#41", "done", "crashed"), ("#42", "done", "improved"), ("#43", "running measure", "running"),
    ]  # fmt: skip


def test_lines_are_aligned_and_cut() -> None:
    """Wide characters count twice, the last column gives way to the width."""
    table = Table((Column("n", "right"), Column("what")), [Row(("1", "日本 text"), ""), Row(("10", "plain"), "")])
    assert list(lines(table)) == [" n  what", " 1  日本 text", "10  plain"]
    assert list(lines(table, width=8)) == [" n  what", " 1  日…", "10  pla…"]


def test_a_change_is_told_in_a_line() -> None:
    """Each kind of change has its short form."""
    told = [
        change(c)
        for c in (
            *TREE,
            *EP,
            {"args": {"attention_backend": None, "cuda-graph-bs": [1, 2]}},
            {"patch": {"files": ["a.patch"], "edits": [{"file": "x.py"}, {"file": "x.py"}]}},
            {"patch": "b.patch"},
            {"patch": ["c.patch", "d.patch"]},
            {"sitecustomize": {"env": {"A": "1"}, "code": "x = 1\ny = 2\n"}},
            {"file": {"path": "/etc/x", "content": "y"}},
            {"file": {"path": "/etc/x", "delete": True}},
            {"unknown": 1},
        )
    ]
    assert told == [
        "NCCL_ALGO=Tree unset NCCL_PROTO",
        "--ep-size 8 --disable-radix-cache",
        "without --attention-backend --cuda-graph-bs 1 2",
        "patch a.patch edit of x.py",
        "patch b.patch",
        "patch c.patch d.patch",
        "sitecustomize A=1 and 2 lines of code",
        "file /etc/x",
        "delete /etc/x",
        "{'unknown': 1}",
    ]


def test_the_best_is_the_best_measured_value() -> None:
    """Treatments compare by value, in the direction of the metric, for each host and context."""
    higher = [
        finding(1, "a", "improved", effect=0.20, treatment=90.0, baseline=75.0),
        finding(2, "b", "improved", effect=0.05, treatment=95.0, baseline=90.0),
        finding(3, "c", "no_effect", effect=0.0, treatment=99.0),
        finding(4, "d", "crashed", context="speculative"),
    ]
    lower = [
        finding(5, "e", "improved", effect=0.1, treatment=30.0, direction="lower", metric="ttft_ms", host="gpu2"),
        finding(6, "f", "improved", effect=0.1, treatment=20.0, direction="lower", metric="ttft_ms", host="gpu2"),
    ]
    found = [(b.host, b.context, b.finding and b.finding.hypothesis_id) for b in best_of(higher + lower)]
    assert found == [("gpu1", "plain", "b"), ("gpu1", "speculative", None), ("gpu2", "plain", "f")]


def test_a_todo_row_of_the_host_acts_on_nothing() -> None:
    """Names and reasons pass through `plain`."""
    (row,) = todo_table([todo(1, "x", EP, reason=EVIL)]).rows
    assert "\x1b" not in "".join(row.cells)


@given(st.text())
def test_no_text_breaks_out_of_its_place(text: str) -> None:
    """One line, no control characters, no bar that ends a table cell, no formula, and a code span that is closed."""
    for shown in (plain(text), markdown(text), code(text)):
        assert shown.splitlines() in ([shown], [])
        assert all(c.isprintable() or c.isspace() for c in shown)
        assert not [c for c in shown if ord(c) < 32]
    assert "|" not in markdown(text).replace("\\|", "")
    assert not re.search(r"[@#]\w", markdown(text))
    assert not cell(text).startswith(("=", "+", "-", "@"))
