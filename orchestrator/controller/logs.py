"""Diagnosis of log files that lie here, apart from any run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.core.diagnosis import Diagnosis


def diagnose_files(paths: list[Path]) -> list[tuple[str, Diagnosis]]:
    """(file, diagnosis), in the order given. Raises `UsageError` for a file that cannot be read."""
    from orchestrator.core.diagnosis import diagnose

    return [(str(path), diagnose(_read(path))) for path in paths]


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
