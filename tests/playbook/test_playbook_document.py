"""YAML as plain data: which scalar is what, and that every place is the place of what it names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.playbook.document import read_document, scalar
from orchestrator.playbook.source import Text, without_secret

Write = Callable[..., Path]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("true", True), ("False", False), ("~", None), ("", None),
        ("0", 0), ("-7", -7), ("+7", 7), ("010", "010"), ("0o10", 8), ("0x1f", 31), ("1_000", "1_000"),
        ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("01.5", "01.5"), ("1e999", "1e999"),
        (".inf", ".inf"), (".nan", ".nan"), ("1:30", "1:30"), ("2024-01-01", "2024-01-01"), ("9" * 400, "9" * 400),
        ("1.2.3", "1.2.3"), ("-", "-"), (".", "."), ("٣", "٣"),
    ],
)  # fmt: skip
def test_plain_scalars(written: str, value: object) -> None:
    """Core rules of YAML 1.2, except that what would lose digits or has no JSON stays text."""
    read = scalar(written)
    assert (read, type(read)) == (value, type(value))


def test_every_place(write: Write) -> None:
    """Keys and values are found where they stand, in blocks, in flow, behind aliases and in merges."""
    text = 'a: &x {b: 1}\nc:\n  - *x\n  -\n  - "q"\nd: {<<: *x,\n  e: 2}\nf:\n'
    document, problems = read_document(write(text))
    assert not problems
    places = {path: document.place(path) for path in document.values}
    assert {path: (p.line, p.column) for path, p in places.items()} == {
        (): (1, 1), ("a",): (1, 4), ("a", "b"): (1, 11),
        ("c",): (3, 3), ("c", 0): (3, 5), ("c", 0, "b"): (1, 11), ("c", 1): (4, 4), ("c", 2): (5, 5),
        ("d",): (6, 4), ("d", "b"): (1, 11), ("d", "e"): (7, 6), ("f",): (8, 1),
    }  # fmt: skip
    assert document.place(("d", "e"), key=True).column == 3
    assert document.place(("d", "e", "no", "such")) == document.place(("d", "e"))


@given(st.text(alphabet="a \n\r\x85\u2028é𝄞", max_size=40), st.integers(-5, 50))
def test_place_is_inside_of_the_text(content: str, index: int) -> None:
    """Any index has a line that exists and a column at most one behind its end."""
    place = Text("f", content).place(index)
    lines = content.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert place.line is not None and place.column is not None
    assert 1 <= place.line <= len(lines)
    assert 1 <= place.column <= len(lines[place.line - 1]) + 1
    assert place.text == lines[place.line - 1]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("  HF_TOKEN: hf_1", "  HF_TOKEN: ***"),
        ("env: {A: 1, MY_API_KEY: 'x', B: 2}", "env: {A: 1, MY_API_KEY: ***"),
        ('launch: [serve, "--api-key", abc]', 'launch: [serve, "--api-key", ***'),
        ("launch: serve --api-key abc", "launch: serve --api-key ***"),
        ('"api-key": abc', '"api-key": ***'),
        ("claim: one token more a step", "claim: one token more a step"),
        ("prompt_tokens: 5", "prompt_tokens: 5"),
        ("HF_TOKEN:", "HF_TOKEN:"),
    ],
)
def test_line_without_secret(line: str, shown: str) -> None:
    """A line is shown up to the value of a secret name, and whole when there is none."""
    assert without_secret(line) == shown
