"""Idle levels of GPU memory."""

from __future__ import annotations

from pathlib import Path

from orchestrator.controller.clock import SystemClock
from orchestrator.controller.memory import IdleMemory, idle_memory_of
from orchestrator.hosts.gputool import Gpu
from orchestrator.ledger import open_ledger


def gpu(index: int, used_mib: int | None) -> Gpu:
    return Gpu(index, "card", f"GPU-{index}", "9.0", 80_000, used_mib, 5, 16)


def test_the_lowest_level_counts_from_visit_to_visit(tmp_path: Path) -> None:
    """Somebody was there when we came first; what was idle then is not what is idle."""
    with open_ledger(tmp_path, clock=SystemClock(), mask=lambda data: data) as ledger:
        first = idle_memory_of(ledger, "h")
        first.learn([gpu(0, 40_000), gpu(1, 3)], "580")
        assert first.above({0: 40_100, 1: 3}, None) == {}
        second = idle_memory_of(ledger, "h")
        second.learn([gpu(0, 5), gpu(1, 70_000)], "580")
        third = idle_memory_of(ledger, "h")
        third.learn([gpu(0, 40_000), gpu(1, 70_000)], "580")
        assert third.above({0: 40_000, 1: 70_000}, None) == {0: 39_995, 1: 69_997}
        assert third.above({0: 40_000, 1: 70_000}, (1,)) == {1: 69_997}
        assert idle_memory_of(ledger, "other").level(0) is None


def test_another_driver_has_levels_of_its_own() -> None:
    """A driver that reserves more must not look like somebody who never leaves."""
    idle = IdleMemory()
    idle.learn([gpu(0, 0)], "550")
    idle.learn([gpu(0, 616)], "580")
    assert idle.above({0: 616}, None) == {}


def test_cards_that_do_not_tell_are_not_accused() -> None:
    """`[N/A]` is no level."""
    idle = IdleMemory()
    idle.learn([gpu(0, None)], "580")
    assert idle.above({0: 900}, None) == {}
    idle.observe({0: 10})
    assert idle.above({0: 900}, None) == {0: 890}
