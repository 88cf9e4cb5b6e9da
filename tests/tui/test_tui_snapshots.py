"""Every screen at three sizes, as text, in colour and without."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.tui.stage import Opened, run, screen_text, until

SNAPSHOTS = Path(__file__).parent / "snapshots"
SIZES = ((80, 24), (100, 30), (140, 40))
ANEW = "ORCHESTRATOR_WRITE_SNAPSHOTS"
SCREENS = (
    ("first", (), "nccl-tree"),
    ("run", ("1",), "Load weight"),
    ("log", ("enter",), "Esc back"),
    ("todo", ("escape", "2"), "expected gain"),
    ("hypothesis", ("enter",), "claim"),
    ("findings", ("escape", "3"), "expert-parallel"),
    ("finding", ("down", "enter"), "interval"),
    ("diff", ("escape", "4"), "reverted, proved"),
    ("patched", ("enter",), "found → patched"),
    ("commands", ("escape", "5"), "apply"),
    ("command", ("enter",), "event"),
    ("quarantined", ("escape", "h"), "2 files differ"),
    ("host", ("right",), "would be ended"),
    ("families", ("escape", "d"), "reopens when"),
    ("keys", ("escape", "question_mark"), "Moving"),
    ("filter", ("escape", "0", "slash"), "show"),
    ("agreement", ("escape", "s"), "stops at its next safe moment"),
)
"""Name, keys after the screen before, and what shows that it is there."""


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("colour", [True, False], ids=["colour", "no_color"])
def test_every_screen_is_as_it_was_and_says_the_same_without_colour(
    dashboard: Opened, monkeypatch: pytest.MonkeyPatch, width: int, height: int, colour: bool
) -> None:
    """One file a screen and size holds for both: what a colour says, a word or a sign says too. Without colour only
    shades of grey are drawn. `ORCHESTRATOR_WRITE_SNAPSHOTS=1 pytest tests/tui` makes the files anew."""
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")

    async def look() -> None:
        async with dashboard(width, height, may_write=True) as (app, pilot):
            for name, keys, shown in SCREENS:
                await pilot.press(*keys)
                await until(pilot, lambda shown=shown: shown in screen_text(app))  # type: ignore[misc]
                await settle(app, pilot)
                compare(f"{name}-{width}x{height}.txt", screen_text(app))
                assert colour or is_grey(app), name

    run(look())


async def settle(app: Any, pilot: Any) -> None:
    """Until two drawings after one another are the same."""
    before = ""
    while before != (now := screen_text(app)):
        before = now
        await pilot.pause()
        await pilot.pause()


def compare(name: str, text: str) -> None:
    path = SNAPSHOTS / name
    if os.environ.get(ANEW):
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{name} is new; {ANEW}=1 writes it"
    assert text == path.read_text(encoding="utf-8"), f"{name} is stale; {ANEW}=1 writes it anew"


def is_grey(app: Any) -> bool:
    colours = {
        colour.get_truecolor()
        for strip in app.screen._compositor.render_strips()
        for segment in strip
        if segment.style is not None
        for colour in (segment.style.color, segment.style.bgcolor)
        if colour is not None and not colour.is_default
    }
    return all(max(c) - min(c) <= 2 for c in colours)
