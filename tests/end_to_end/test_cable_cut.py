"""The cable to a real sshd is cut for longer than the lease, silently, under a run of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end import cutting

SAMPLE = [("measuring", False), ("stopping", True)]
"""Phase, and whether the controller is killed meanwhile; all of them: `python benchmarks/cable_cut.py`."""


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cutting.Far]:
    if reason := cutting.why_not():
        pytest.skip(reason)
    with cutting.far_host(tmp_path_factory.mktemp("far")) as host:
        yield host


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "is_killed"), SAMPLE)
def test_the_host_is_clean_before_the_cable_is_back(
    far: cutting.Far, tmp_path: Path, name: str, is_killed: bool
) -> None:
    """Tree byte for byte, no process, port free, outcome written, within the lease and a second; the run, `host
    recover`, `host verify` and `ledger check` then tell it as it is, and book no number."""
    phase = next(phase for phase in cutting.PHASES if phase.name == name)
    seen = cutting.cut(tmp_path / "cut", far, phase, is_killed=is_killed)
    assert seen.problems == []
    assert seen.recover_code == 0
    assert seen.verdict == "none"
