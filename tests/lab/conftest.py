from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.lab import Lab, create


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return create(tmp_path / "lab")
