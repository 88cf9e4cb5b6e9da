"""docs/lab.md against the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.lab.hardware.faults import KINDS, PHASES
from orchestrator.lab.hardware.model import Constants, Machine
from orchestrator.lab.reference import table

TEXT = (Path(__file__).parents[2] / "docs" / "lab.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("record", [Constants(), Machine()], ids=["constants", "machine"])
def test_the_tables_are_up_to_date(record: Constants | Machine) -> None:
    """Every constant stands there with its default; `python -m orchestrator.lab.reference` prints the tables."""
    assert table(record) in TEXT


def test_every_fault_is_described() -> None:
    """All kinds and phases are named."""
    assert [word for word in (*KINDS, *PHASES) if f"`{word}`" not in TEXT] == []
