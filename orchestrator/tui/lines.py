"""Records as rows of the panes, and as the lines at the top. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from orchestrator.core.records import ExperimentRecord, FindingRecord, TodoRow
from orchestrator.report.text import interval, number, percent
from orchestrator.tui.picture import HostLine, Now
from orchestrator.tui.table import Column, Line
from orchestrator.tui.words import STYLES, cards, clean, clock, duration, epoch, fit, forest, scale_of

TODO = (
    Column("#", 4, "right"), Column("hypothesis", 0, most=34, least=20, is_flexible=True), Column("status", 1),
    Column("rank", 2, "right"), Column("expect", 5, "right"), Column("family", 6, most=20),
    Column("why", 3, most=120, least=24, is_flexible=True),
)  # fmt: skip
DIFF = (
    Column("exp", 1, "right"), Column("hypothesis", 0, most=34, is_flexible=True), Column("host", 3), Column("found →"),
    Column("verdict", 4), Column("changes", 5, most=80, is_flexible=True),
)  # fmt: skip
COMMANDS = (
    Column("time", 1), Column("host", 3), Column("act"), Column("exp", 4, "right"), Column("outcome", 2),
    Column("took", 5, "right"), Column("what", 1, most=400, is_flexible=True),
)  # fmt: skip
FOREST_WIDTH = 15


def findings_columns(scale: float) -> tuple[Column, ...]:
    reach = f"{scale * 100:.0f} %"
    head = f"-{reach}".ljust(FOREST_WIDTH - len(reach) - 1) + f"+{reach}"
    return (
        Column("exp", 5, "right"), Column("hypothesis", 0, most=34, is_flexible=True), Column("context", 7, most=14),
        Column("verdict", 1), Column("effect", 1, "right"), Column("interval", 3, "right"), Column(head, 2),
        Column("why", 6, most=120, least=24, is_flexible=True),
    )  # fmt: skip


def findings_lines(findings: Sequence[FindingRecord]) -> tuple[tuple[Column, ...], list[Line]]:
    """Newest first; one scale for the forest plot of all."""
    scale = scale_of(b for f in findings for b in (f.low, f.high, f.effect) if b is not None)
    lines = [
        Line(
            str(f.id),
            (
                f"#{f.experiment_id}", clean(f.hypothesis_id or "baseline"), clean(f.context),
                f.verdict.value + (" (reopened)" if f.reopened_at else ""), percent(f.effect), _interval(f.low, f.high),
                forest(f.low, f.effect, f.high, scale, FOREST_WIDTH), clean(f.cause or f.summary),
            ),
            f.verdict.value,
        )
        for f in findings
    ]  # fmt: skip
    return findings_columns(scale), lines


def _interval(low: float | None, high: float | None) -> str:
    """In per cent, as the effect beside it."""
    return interval(low, high).removesuffix(" %")


def todo_lines(todo: Sequence[TodoRow]) -> list[Line]:
    return [
        Line(
            row.id,
            (
                str(place), clean(row.id), row.status, _rank(row.rank), percent(row.expect), clean(row.family) or "–",
                clean(row.reason or str(row.hypothesis.get("claim", ""))),
            ),
            row.status,
        )
        for place, row in enumerate(todo, start=1)
    ]  # fmt: skip


def _rank(value: float | None) -> str:
    return number(value) if value is None or value < 1000 else f"{value:.0f}"


def diff_lines(changed: Sequence[ExperimentRecord], proofs: Mapping[int, bool]) -> list[Line]:
    lines = []
    for e in changed:
        if e.id in proofs:
            word = "reverted, proved" if proofs[e.id] else "NOT PROVED"
        else:
            word = "patched now" if e.state == "running" else "NOT PROVED"
        kinds = ", ".join(dict.fromkeys(kind for change in e.changes for kind in change))
        mark = "clean" if word.startswith("rev") else "busy" if word.startswith("pat") else "QUARANTINED"
        cells = (
            f"#{e.id}", clean(e.hypothesis_id or "baseline"), clean(e.host), word, e.verdict or e.state, clean(kinds),
        )  # fmt: skip
        lines.append(Line(str(e.id), cells, mark))
    return lines


def command_lines(commands: Sequence[Mapping[str, Any]]) -> list[Line]:
    return [_command(row) for row in commands]


def _command(row: Mapping[str, Any]) -> Line:
    at = epoch(row["at"])
    took = duration(epoch(row["ended_at"]) - at) if row["ended_at"] else ""
    outcome = row["outcome"] or ("pending" if row["kind"] == "intent" else "")
    experiment = f"#{row['experiment_id']}" if row["experiment_id"] else ""
    cells = (
        clock(at), clean(row["host"] or ""), clean(row["phase"]), experiment, outcome, took, clean(what_was_done(row)),
    )  # fmt: skip
    return Line(str(row["seq"]), cells, outcome if outcome in ("failed", "pending") else "")


def what_was_done(row: Mapping[str, Any]) -> str:
    """The command line, the files, or the rest of an event in one line."""
    data = row["data"]
    if "argv" in data:
        return " ".join(map(str, data["argv"]))
    if row["phase"] == "request":
        return f"{data.get('by', '')} {data.get('action', '')} {data.get('state', 'asked')} {data.get('answer', '')}"
    if "files" in data and isinstance(data["files"], list):
        return " ".join(map(str, data["files"]))
    return " ".join(f"{name}={value}" for name, value in data.items() if name != "arm")[:400]


# ---------------------------------------------------------------- the top


def host_text(line: HostLine, now: float, width: int) -> Text:
    sign = {"clean": "✓", "kept": "◆", "busy": "▶", "QUARANTINED": "✗", "cut off": "!"}[line.word]
    text = Text(no_wrap=True)
    text.append(f" {sign} {line.word}", STYLES[line.word])
    read_only = " write: false" if not line.may_write else ""
    text.append(fit(f" {clean(line.name)} for {duration(now - line.since)}{read_only} · {clean(line.why)}",
                    width - len(line.word) - 4))  # fmt: skip
    return text


def hosts_text(lines: Sequence[HostLine], now: float, width: int, most: int) -> Text:
    """One line a host, those that need somebody first; the rest is counted."""
    if not lines:
        return Text(" no host has been used yet", style="dim")
    shown = lines[:most] if len(lines) <= most else lines[: most - 1]
    text = Text("\n").join(host_text(line, now, width) for line in shown)
    if len(lines) > len(shown):
        rest: dict[str, list[str]] = {}
        for line in lines[len(shown) :]:
            rest.setdefault(line.word, []).append(clean(line.name))
        words = "; ".join(f"{len(names)} {word}: {', '.join(names)}" for word, names in rest.items())
        text.append("\n" + fit(f"   and {words}", width - 4) + " (h)", "not bold")
    return text


def now_text(now: Now | None, live: Mapping[str, Any], at: float, width: int) -> Text:
    """Two lines: what runs, and how long it has taken and will take."""
    if now is None:
        return Text(" nothing runs now", style="dim")
    e = now.experiment
    what = f"#{e.id} {e.hypothesis_id or 'baseline'} ({e.context})" if e is not None else f"run {now.run.id}: opening"
    phase = str(live.get("phase") or (e.phase if e is not None else "") or "…")
    since = float(live.get("phase_at") or now.phase_since)
    server = f" (server: {live['server']})" if live.get("server") else ""
    paused = "PAUSED after this phase · " if live.get("paused") else ""
    first = fit(f" ▶ {clean(what)} {now.arm} on {clean(now.run.host)}", width)
    second = (
        f"   {paused}phase {clean(phase)} {duration(at - since)}{clean(server)} · "
        f"{duration(at - now.since)} so far, {_rest(now.experiment_left_s(at))} · "
        f"{now.left} to go{_whole(now.campaign_left_s(at))}"
    )
    text = Text(first + "\n", style="bold", no_wrap=True)
    text.append(fit(second, width), "not bold")
    return text


def _rest(seconds: float | None) -> str:
    if seconds is None:
        return "end not known yet"
    return f"{duration(seconds)} left" if seconds > 0 else "longer than usual"


def _whole(seconds: float | None) -> str:
    return "" if seconds is None else f", {duration(seconds)}"


def gpu_text(memory: Mapping[str, tuple[int, int | None]], width: int) -> Text:
    lines = cards(memory, width - 6)
    if not lines:
        return Text(" GPU memory not read yet", style="dim")
    return Text("\n".join((" GPU " if i == 0 else "     ") + line for i, line in enumerate(lines)), no_wrap=True)
