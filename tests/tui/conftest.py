"""A ledger under way, and the dashboard opened on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ledger import open_ledger
from orchestrator.ledger.live import LiveWriter
from orchestrator.tui.app import Dashboard
from orchestrator.tui.asking import Answer
from tests.tui.stage import HOSTILE, Opened, SteppedClock, fill, screen_text, until


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def state(tmp_path: Path, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A relative path, so that what is shown does not depend on where the test runs. Its run lives."""
    monkeypatch.chdir(tmp_path)
    folder = Path("state")
    with open_ledger(folder, clock=clock) as ledger:
        run_id = fill(ledger, clock)
        look = ledger.ask("look", "gpu1", asked_by="ann@desk")
        process = {"pid": 4711, "user": "bob", "age_s": 3900.0, "command": "python train.py", "gpu_mib": 20480}
        held = {**process, "holds": ["/dev/nvidia0"], "would_end": True, "why": "an engine of /venv/bin/python"}
        kept = {**held, "pid": 99, "would_end": False, "why": "a stranger, and the policy is ours"}
        ledger.answer_request(look.id, "done", "2 processes", {"holders": [held, kept]})
    live = LiveWriter(folder, run_id, clock.now, lambda text: text)
    live.write("phase", "launch\t")
    live.write("phase", "ready\t")
    live.write("log", *(f"[12:02:0{n} TP0] Load weight begin. avail mem={90 - n} GB" for n in range(5)), HOSTILE)
    live.write("server", "weights")
    live.write("gpu", '{"0": [70000, 97887], "1": [69000, 97887]}')
    live.write("warn", "gpu1 answers slowly")
    clock.at += 12.0
    yield folder
    live.close()


@pytest.fixture
def asked() -> list[list[str]]:
    return []


@pytest.fixture
def dashboard(state: Path, clock: SteppedClock, asked: list[list[str]]) -> Opened:
    """Opens the dashboard at a size, with everything read."""

    def ask(words: list[str]) -> Answer:
        asked.append(words)
        return Answer(True, "the run has ended; gpu1 is clean")

    @asynccontextmanager
    async def opened(width: int = 100, height: int = 30, *, may_write: bool = False) -> AsyncIterator[Any]:
        app = Dashboard(state, may_write=may_write, now=clock.now, ask=ask)
        async with app.run_test(size=(width, height), notifications=True) as pilot:
            await until(pilot, lambda: "weights" in screen_text(app) and "nccl-tree" in screen_text(app))
            yield app, pilot

    return opened
