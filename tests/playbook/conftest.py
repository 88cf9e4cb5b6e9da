"""A folder with a playbook in it, and the smallest playbook that is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SMALLEST = """\
campaign: c
hosts:
  gpu1:
    target: t
targets:
  t: {}
hypotheses:
  - id: a
    claim: x
    changes:
      - env: {A: 1}
"""

DIFF = b"--- a/pkg/m.py\n+++ b/pkg/m.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"


@pytest.fixture
def smallest() -> str:
    return SMALLEST


@pytest.fixture
def diff() -> bytes:
    return DIFF


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file below the test's own folder, by default the playbook, and returns its path."""

    def write_file(content: str | bytes, name: str = "campaigns/p.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file
