"""Leftovers of launches that nobody cleaned up after."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from orchestrator.agent import processes
from orchestrator.agent.processes import Identity
from orchestrator.agent.runs import Run
from orchestrator.agent.sweeping import sweep_dead

BOOT = processes.boot_id()


def note_run(state: Path, name: str, tmp: Path, identity: Identity, mapped: set[int], boot: str = BOOT) -> None:
    run = Run(str(state), name)
    os.makedirs(run.path)
    since = int(processes.boottime_s() * processes.TICKS_PER_S) - 1
    run.save_record({"tmp": str(tmp), "since_ticks": since, "boot_id": boot, "argv": []})
    run.save_seen({identity}, mapped)
    tmp.mkdir()


def dead() -> Identity:
    """A process that has been."""
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = processes.identity_of(process.pid, BOOT)
        process.kill()
    assert identity is not None
    return identity


@pytest.fixture
def shm() -> Path:
    return Path(f"/dev/shm/psm_t{os.getpid():x}{time.monotonic_ns() % 10**8}")


def test_what_dead_processes_left_goes_and_what_the_living_use_stays(tmp_path: Path, shm: Path) -> None:
    """Temporary directory and mapped segment of a dead launch go; a living launch, an open one, one of an earlier boot
    and a namesake keep theirs."""
    other = shm.with_name(shm.name + "x")
    living = processes.identity_of(os.getpid(), BOOT)
    assert living is not None
    try:
        note_run(tmp_path, "old-boot", tmp_path / "t3", dead(), set(), boot="another")
        ended = dead()
        note_run(tmp_path, "alive", tmp_path / "t2", living, set())
        note_run(tmp_path, "open", tmp_path / "t4", ended, set())
        shm.write_bytes(b"x")
        shm.chmod(0o600)
        note_run(tmp_path, "dead", tmp_path / "t1", ended, {shm.stat().st_ino})
        os.utime(shm)
        other.write_bytes(b"x")
        swept = sweep_dead(str(tmp_path), BOOT, "open")
        assert set(swept["removed"]) == {str(tmp_path / "t1"), str(tmp_path / "t3"), str(shm)}
        assert swept["alive"] == ["alive", "open"]
        assert str(other) in swept["kept"] and other.exists()
        assert (tmp_path / "t2").is_dir() and (tmp_path / "t4").is_dir()
        assert sweep_dead(str(tmp_path), BOOT, "open")["removed"] == []
    finally:
        for path in (shm, other):
            path.unlink(missing_ok=True)


def test_a_segment_that_somebody_maps_stays(tmp_path: Path, shm: Path) -> None:
    """Ours by inode, and yet in use."""
    try:
        ended = dead()
        note_run(tmp_path, "before", tmp_path / "t0", ended, set())
        shm.write_bytes(b"x")
        shm.chmod(0o600)
        note_run(tmp_path, "dead", tmp_path / "t1", ended, {shm.stat().st_ino})
        os.utime(shm)
        with shm.open("rb"):
            assert str(shm) in sweep_dead(str(tmp_path), BOOT, None)["kept"]
        assert shm.exists()
    finally:
        shm.unlink(missing_ok=True)


def test_a_launch_that_got_no_further_than_its_directory_is_passed_over(tmp_path: Path) -> None:
    """Nothing is known of it, so nothing is removed for it."""
    os.makedirs(Run(str(tmp_path), "half").path)
    assert sweep_dead(str(tmp_path), BOOT, None) == {"removed": [], "kept": [], "alive": []}
