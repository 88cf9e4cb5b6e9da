"""Routes of these tests keep their agent in a cache of the test, not in that of whoever runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sshd import sshd, sshd_factory

__all__ = ["sshd", "sshd_factory"]


@pytest.fixture(autouse=True)
def agent_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where local routes of this test store the agent."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "orchestrator"
