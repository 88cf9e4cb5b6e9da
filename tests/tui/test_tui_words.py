"""What the dashboard says, without a screen."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from orchestrator.ledger.live import LiveLine
from orchestrator.tui.log import LogView, marked
from orchestrator.tui.screens import wrap
from orchestrator.tui.table import Column, Line, fit_columns
from orchestrator.tui.words import cards, clean, duration, fit, forest

effects = st.floats(-2.0, 2.0, allow_nan=False)


@given(effects, effects, effects, st.floats(0.01, 1.0), st.integers(5, 60))
def test_a_forest_plot_is_as_wide_as_asked_and_always_shows_the_effect(
    a: float, b: float, c: float, scale: float, width: int
) -> None:
    """Whatever the interval, also outside the scale."""
    low, effect, high = sorted((a, b, c))
    drawn = forest(low, effect, high, scale, width)
    assert len(drawn) == width
    assert drawn.count("●") == 1


def test_a_forest_plot_shows_which_side_of_zero_an_interval_lies_on() -> None:
    """Better is right of the line, worse left, and what goes on outside has an arrow."""
    assert forest(0.05, 0.1, 0.15, 0.2, 17) == "        │ ├─●─┤  "
    assert forest(-0.15, -0.1, -0.05, 0.2, 17) == "  ├─●─┤ │        "
    assert forest(-0.1, 0.0, 0.9, 0.2, 17) == "    ├───●───────›"
    assert forest(None, None, None, 0.2, 17) == "        │        "


@given(st.text(max_size=60), st.integers(0, 40))
def test_what_is_fitted_has_exactly_that_many_cells(text: str, width: int) -> None:
    """Wide characters included; nothing that a terminal acts on is left."""
    assert cell_len(fit(clean(text), width)) == width
    assert not {unicodedata.category(c) for c in clean(text)} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=5), st.integers(1, 200))
def test_columns_never_need_more_than_there_is(widths: list[tuple[int, int]], width: int) -> None:
    """At least one column is shown, in the order given, and all of them fit."""
    columns = [Column("h" * (head % 9 + 1), order, is_flexible=head % 2 == 0) for order, (head, _) in enumerate(widths)]
    lines = [Line("k", tuple("x" * body for _, body in widths))]
    shown = fit_columns(columns, lines, width)
    assert shown
    assert [i for i, _ in shown] == sorted(i for i, _ in shown)
    assert sum(size for _, size in shown) + len(shown) - 1 <= width


def test_durations_are_read_at_a_glance() -> None:
    """Two units at most; unknown is a dash, not zero."""
    given_s = (None, 0.42, 12.0, 65.0, 7620.0, 273600.0)
    assert [duration(s) for s in given_s] == ["–", "0.4 s", "12 s", "1m05s", "2h07m", "3d04h"]


@given(st.integers(1, 32), st.integers(40, 200))
def test_every_card_of_a_host_is_shown(count: int, width: int) -> None:
    """However many there are, on as many lines as they need."""
    lines = cards({str(i): (1024 * i, 98304) for i in range(count)}, width)
    assert sum(line.count("G") for line in lines) == count
    assert all(cell_len(line) <= width for line in lines)


def test_phases_are_marked_in_the_log_and_what_ended_well_is_not_repeated() -> None:
    """By signs that stand without colour."""
    assert marked(LiveLine("phase", 0.0, "ready\t#1 baseline")) == ("══ ready 00:00:00 ══ #1 baseline", "phase")
    assert marked(LiveLine("server", 0.0, "weights")) == ("── the server is at weights ──", "phase")
    assert marked(LiveLine("done", 0.0, "ready\t1.00\tok")) is None
    assert marked(LiveLine("done", 0.0, "ready\t1.00\texited")) == ("══ ready ended after 1.00 s: exited", "warn")
    assert marked(LiveLine("gpu", 0.0, "{}")) is None


@given(st.text(alphabet="ab c-é\n", max_size=400), st.integers(20, 80))
def test_wrapped_details_lose_no_word(text: str, width: int) -> None:
    """Each part fits, and together they say the whole."""
    parts = [part for part, _ in wrap((text, ""), width)]
    assert all(len(part) <= width for part in parts)
    assert "".join("".join(parts).split()) == "".join(clean(text).split())


def test_a_log_gives_up_its_oldest_lines_only() -> None:
    """Memory is bounded however much a server says."""
    view = LogView(empty="")
    for start in range(0, 60_000, 2_000):
        view._all += [(str(n), "") for n in range(start, start + 2_000)]
        view._shown += [(str(n), "") for n in range(start, start + 2_000)]
        view.give_up_oldest()
    assert len(view.shown) <= 22_000
    assert view.shown[-1][0] == "59999"
