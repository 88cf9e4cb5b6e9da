"""Every key, by a pilot."""

from __future__ import annotations

import pytest

from orchestrator.core.requests import ACTIONS, BY_NAME
from orchestrator.tui.actions import DEEDS
from orchestrator.tui.log import LogView
from orchestrator.tui.screens import CONFIRM_KEY, Agree, Details, FilterBox
from orchestrator.tui.table import Rows
from tests.tui.stage import Opened, run, screen_text, until

SHOWS: dict[str, str] = {
    "1": "▶ 1 run", "2": "▶ 2 todo", "3": "▶ 3 findings", "4": "▶ 4 diff", "5": "▶ 5 commands", "h": "host gpu2",
    "d": "families and dead ends", "f": "not following", "/": "show lines that hold", "y": "experiment show 3 --log",
    "question_mark": "keys and signs", "colon": "Search for commands",
}  # fmt: skip
"""Key of the first screen → what is to be read after it."""


MOVES = {
    "down down": 2, "up": 1, "end": 3, "home": 0, "pagedown": 3, "pageup": 0, "j j k": 1, "G": 3, "g": 0, "space": 3,
}  # fmt: skip
"""Keys, one after another, and the row of four on which the cursor is then."""
FOLLOWS = {"up": False, "end": True, "pageup": False, "G": True, "g": False, "f": True}


@pytest.mark.parametrize("key", SHOWS)
def test_each_key_that_looks_shows_what_it_names(dashboard: Opened, key: str) -> None:
    """Panes, screens, filter, follow, copy, help and palette each come by their key."""

    async def look() -> None:
        async with dashboard() as (app, pilot):
            await pilot.press(key)
            await until(pilot, lambda: SHOWS[key] in screen_text(app))

    run(look())


def test_every_action_has_a_key_of_its_own_and_a_test() -> None:
    """The table of keys has no two of one key, none that tmux wants, and none that is tried nowhere."""
    keys = [deed.key for deed in DEEDS]
    assert len(set(keys)) == len(keys)
    assert not set(keys) & {"ctrl+b", CONFIRM_KEY}
    assert set(keys) == set(SHOWS) | {a.key for a in ACTIONS} | {"0", "q", "w"}


def test_zero_escape_and_the_same_key_bring_all_panes_back(dashboard: Opened) -> None:
    """A pane that was made large gives way again."""

    async def look() -> None:
        async with dashboard() as (app, pilot):
            for back in ("0", "escape", "2"):
                await pilot.press("2")
                await until(pilot, lambda: "3 findings" not in screen_text(app))
                await pilot.press(back)
                await until(pilot, lambda: "3 findings" in screen_text(app))

    run(look())


def test_tab_and_arrows_move_and_enter_opens_details_of_that_row(dashboard: Opened) -> None:
    """Tab reaches each pane; the cursor keys move in it; Enter shows the row under the cursor."""

    async def look() -> None:
        async with dashboard() as (app, pilot):
            await pilot.press("tab")
            rows = app.query_one("#todo", Rows)
            await until(pilot, lambda: rows.has_focus)
            for keys, at in MOVES.items():
                await pilot.press(*keys.split())
                await until(pilot, lambda at=at: rows.cursor == at)  # type: ignore[misc]
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, Details) and "is faster" in screen_text(app))

    run(look())


def test_the_log_scrolls_and_follows_again_at_its_end(dashboard: Opened) -> None:
    """Who scrolls back reads in peace; the end key follows again."""

    async def look() -> None:
        async with dashboard(80, 24) as (app, pilot):
            log = app.query_one(LogView)
            for key, follows in (
                ("up", False),
                ("end", True),
                ("pageup", False),
                ("G", True),
                ("g", False),
                ("f", True),
            ):
                await pilot.press(key)
                await until(pilot, lambda follows=follows: log.is_following is follows)  # type: ignore[misc]

    run(look())


def test_a_filter_leaves_the_lines_that_hold_its_words(dashboard: Opened) -> None:
    """In the log and in a list, which asks the ledger; an empty one shows all again."""

    async def look() -> None:
        async with dashboard() as (app, pilot):
            log, todo = app.query_one(LogView), app.query_one("#todo", Rows)
            await pilot.press("/", *"mem=88", "enter")
            await until(
                pilot, lambda: [line for line, _ in log.shown] == ["[12:02:02 TP0] Load weight begin. avail mem=88 GB"]
            )
            await pilot.press("2", "/")
            await until(pilot, lambda: isinstance(app.screen, FilterBox))
            await pilot.press(*"fusion", "enter")
            await until(pilot, lambda: [line.key for line in todo.lines] == ["fusion"])
            await pilot.press("/")
            await until(pilot, lambda: isinstance(app.screen, FilterBox))
            await pilot.press(*["backspace"] * 6, "enter")
            await until(pilot, lambda: len(todo.lines) == 4)

    run(look())


@pytest.mark.parametrize("action", [a.name for a in ACTIONS])
def test_each_action_says_what_it_does_and_is_done_by_another_key(
    dashboard: Opened, asked: list[list[str]], action: str
) -> None:
    """Its key opens the question, Esc and Enter leave it, `x` sends the command line that was shown."""
    deed = BY_NAME[action]

    async def look() -> None:
        async with dashboard(may_write=True) as (app, pilot):
            for leave in ("escape", "enter", deed.key):
                await pilot.press(deed.key)
                await until(pilot, lambda: isinstance(app.screen, Agree))
                await pilot.press(leave)
                if leave != deed.key:
                    await until(pilot, lambda: not isinstance(app.screen, Agree))
            assert asked == []
            assert f"orchestrator request {action} gpu1" in screen_text(app)
            await pilot.press(CONFIRM_KEY)
            await until(pilot, lambda: len(asked) == 1)
            await until(pilot, lambda: "gpu1 is clean" in screen_text(app))

    run(look())
    assert asked[0][:4] == ["orchestrator", "request", action, "gpu1"]
    assert ("--hypothesis" in asked[0]) is (action == "next")


@pytest.mark.parametrize("action", [a.name for a in ACTIONS if a.name != "look"])
def test_without_write_no_action_can_be_asked_for(dashboard: Opened, asked: list[list[str]], action: str) -> None:
    """Read-only unless it was started with --write, and says so."""

    async def look() -> None:
        async with dashboard() as (app, pilot):
            await pilot.press(BY_NAME[action].key)
            await until(pilot, lambda: "start with --write" in screen_text(app))
            assert not isinstance(app.screen, Agree)

    run(look())
    assert asked == []


def test_a_host_marked_read_only_wins_over_write(dashboard: Opened, asked: list[list[str]]) -> None:
    """`write: false` in the inventory refuses reap, release and revert from the host's own screen."""

    async def look() -> None:
        async with dashboard(may_write=True) as (app, pilot):
            await pilot.press("h")
            await until(pilot, lambda: isinstance(app.screen, Details))
            await pilot.press("left")
            await until(pilot, lambda: "host gpu3" in screen_text(app))
            for key in ("R", "L", "v"):
                await pilot.press(key)
                await until(pilot, lambda: "gpu3 is marked write: false" in screen_text(app))
                assert not isinstance(app.screen, Agree)

    run(look())
    assert asked == []


def test_copy_gives_the_command_line_of_the_pane_or_row(dashboard: Opened) -> None:
    """`y` puts it on the clipboard, in a pane, in details and in a question."""
    wanted: list[tuple[tuple[str, ...], str]] = [
        (("2", "y"), "orchestrator todo list --state state"),
        (("3", "y"), "orchestrator finding show 2 --state state"),
        (("4", "y"), "orchestrator experiment show 2 --state state"),
        (("5", "y"), "orchestrator ledger export --format jsonl --state state"),
        (("s", "y"), "orchestrator request stop gpu1 --state state"),
    ]

    async def look() -> None:
        async with dashboard(may_write=True) as (app, pilot):
            for keys, command in wanted:
                await pilot.press(*keys)
                await until(pilot, lambda command=command: app.clipboard == command)  # type: ignore[misc]

    run(look())


def test_q_closes_the_dashboard(dashboard: Opened) -> None:
    """It ends, and its reader with it."""

    async def look() -> None:
        async with dashboard() as (app, pilot):
            await pilot.press("q")
            await until(pilot, lambda: not app.is_running)

    run(look())


def test_the_palette_names_every_action_as_area_and_verb(dashboard: Opened) -> None:
    """What is typed finds it, Enter starts it."""

    async def look() -> None:
        async with dashboard(may_write=True) as (app, pilot):
            await pilot.press("colon")
            await until(pilot, lambda: "view: todo" in screen_text(app))
            await pilot.press(*"run: stop")
            await until(pilot, lambda: "run: stop" in screen_text(app).replace("run: stop\n", "", 1))
            await pilot.press("down", "enter")
            await until(pilot, lambda: isinstance(app.screen, Agree) and "stops at its next" in screen_text(app))

    run(look())


def test_what_a_host_says_cannot_act_on_the_screen(dashboard: Opened) -> None:
    """Markup is text, control characters and changes of direction are shown as escapes, on every screen."""

    async def look() -> None:
        async with dashboard(100, 30) as (app, pilot):
            seen = ""
            for keys, shown in (
                (("1",), "mean"),
                (("enter",), "mean"),
                (("escape", "d"), "mean"),
                (("escape", "h"), "mean"),
            ):
                await pilot.press(*keys)
                await until(pilot, lambda shown=shown: shown in screen_text(app))  # type: ignore[misc]
                seen += screen_text(app)
            assert "[red]mean[/red]" in seen
            assert not {"\x1b", "\x07", "\u202e"} & set(seen)

    run(look())
