from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.ledger import Ledger, open_ledger
from tests.ledger.ledger_story import Clock, Story


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def ledger(state_dir: Path, clock: Clock) -> Iterator[Ledger]:
    with open_ledger(state_dir, clock=clock) as ledger:
        yield ledger


@pytest.fixture
def story(ledger: Ledger) -> Story:
    return Story(ledger)
