"""What Enter shows: a record in full, as lines. Pure but for what `Watch` reads."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator.core.records import ArmRecord, FindingRecord, LaunchRecord, TodoRow
from orchestrator.core.requests import RequestRecord
from orchestrator.ledger.watching import Watch
from orchestrator.report.text import change, interval, number, percent
from orchestrator.tui.lines import what_was_done
from orchestrator.tui.log import Marked
from orchestrator.tui.words import FOREST_NOTE, cards, clean, duration, epoch, forest, scale_of

SHORT = 40


def _head(text: str) -> Marked:
    return clean(text), "head"


def _fact(name: str, value: object) -> Marked:
    return clean(f"  {name:<12} {value}"), ""


def finding(f: FindingRecord) -> list[Marked]:
    lines: list[Marked] = [_head(f"finding {f.id}: {f.hypothesis_id or 'baseline'} on {f.host} ({f.context})")]
    lines += [_fact("verdict", f.verdict.value), _fact("summary", f.summary)]
    if f.effect is not None:
        scale = scale_of(b for b in (f.low, f.high, f.effect) if b is not None)
        lines.append(_fact("effect", f"{percent(f.effect)}  interval {interval(f.low, f.high)}"))
        lines.append(_fact("", f"{forest(f.low, f.effect, f.high, scale, 41)}  ±{scale * 100:.0f} %"))
        lines.append(_fact("", FOREST_NOTE))
        lines.append(_fact("measured", f"{number(f.baseline)} → {number(f.treatment)} {f.metric}"))
        lines.append(_fact("launches", f"{f.baseline_launches} baseline, {f.treatment_launches} treatment"))
    if f.cause:
        lines.append((clean(f"  cause        {f.cause}"), "warn"))
    lines += [_head("evidence"), *((clean(f"  {line}"), "") for line in f.evidence or ("none",))]
    return [*lines, *reopening(f), _fact("experiment", f"#{f.experiment_id}, {f.created_at}")]


def reopening(f: FindingRecord) -> list[Marked]:
    """Whether it closes its hypothesis, and what would open it again."""
    if not f.closes:
        return []
    if f.reopened_at is not None:
        return [_head("was a dead end"), _fact("reopened", f"{f.reopened_at}: {f.reopened_because}")]
    facts = [_fact("", f"{name} is no longer {value}") for name, value in f.depends_on.items()]
    return [_head("dead end; it reopens when one of these changes"), *facts]


def hypothesis(row: TodoRow) -> list[Marked]:
    body = row.hypothesis
    lines = [_head(f"{row.id}: {row.status}"), _fact("claim", body.get("claim", "")), _fact("why", body.get("why", ""))]
    lines += [
        _fact("family", row.family or "–"), _fact("expected", percent(row.expect)), _fact("rank", number(row.rank)),
        _fact("reason", row.reason or "–"),
        _fact("from", f"{row.origin} of {row.parent}" if row.parent else row.origin),
    ]  # fmt: skip
    lines += [_head("changes"), *((clean(f"  {change(each)}"), "") for each in body.get("changes", ()))]
    for name in ("requires", "after", "context"):
        if body.get(name):
            lines.append(_fact(name, json.dumps(body[name], ensure_ascii=False)))
    return lines


def experiment(watch: Watch, experiment_id: int) -> list[Marked]:
    """Found → patched → reverted: the difference of every file, the proof of its revert, then every launch."""
    e = watch.experiment(experiment_id)
    lines = [_head(f"experiment #{e.id}: {e.hypothesis_id or 'baseline'} on {e.host} ({e.context})")]
    lines += [_fact("verdict", e.verdict or e.state), _fact("phase", e.phase or "–")]
    if e.ended_at:
        lines.append(_fact("took", duration(epoch(e.ended_at) - epoch(e.started_at))))
    if e.cause:
        lines.append((clean(f"  cause        {e.cause}"), "warn"))
    lines += [(clean(f"  change       {change(each)}"), "") for each in e.changes]
    for path, found, patched in watch.images(e.id):
        lines += file_diff(path, found, patched)
    for arm in e.arms:
        if arm.changes:
            lines += _revert(arm)
    for arm in e.arms:
        lines += _arm(arm)
    return lines


def _arm(arm: ArmRecord) -> list[Marked]:
    lines = [_head(f"{arm.kind} {arm.number}")]
    for launch in arm.launches:
        lines += _launch(launch)
    return lines


def _launch(launch: LaunchRecord) -> list[Marked]:
    value = launch.facts.get("value")
    shown = f"{value:.2f}" if isinstance(value, float) else "no value"
    ready = f", ready in {duration(launch.ready_s)}" if launch.ready_s is not None else ""
    lines: list[Marked] = [_fact("launch", f"{launch.launch_id}: {launch.outcome or 'lives'}, {shown}{ready}")]
    lines.append(_fact("command", " ".join(launch.argv)))
    if launch.cause:
        lines.append((clean(f"  cause        {launch.cause}"), "warn"))
    for check in launch.facts.get("checks") or ():
        word = {True: "holds", False: "DOES NOT HOLD", None: "not seen"}[check.get("holds")]
        lines.append(_fact("check", f"{check.get('what')}: {word} ({check.get('found')})"))
    return lines


def _revert(arm: ArmRecord) -> list[Marked]:
    title = _head(f"patched → reverted ({arm.kind} {arm.number})")
    if arm.proof is None:
        return [title, ("  not proved yet" if arm.ended_at is None else "  NOT PROVED", "warn")]
    proof = arm.proof
    if proof.clean:
        same = f"  proved clean over {proof.files} files: found {proof.found_digest[:12]} = now {proof.now_digest[:12]}"
        return [title, (same, "clean"), *_differences(proof.differences)]
    return [title, ("  NOT CLEAN", "warn"), *_differences(proof.differences)]


def _differences(differences: Sequence[Mapping[str, Any]]) -> list[Marked]:
    return [
        (clean(f"  {d.get('what')} {d.get('path')}{'' if d.get('ours', True) else ' (not by us)'}"), "warn")
        for d in differences
    ]


def file_diff(path: str, found: bytes | None, patched: bytes | None) -> list[Marked]:
    title = _head(f"found → patched  {path}")
    if found is None and patched is None:
        return [title, ("  neither is kept any more", "done")]
    lines = difflib.unified_diff(
        _text(found), _text(patched), f"found{' (absent)' if found is None else ''}", "patched", lineterm="", n=3
    )
    marks = {"+": "add", "-": "del", "@": "phase"}
    return [title, *((clean(line), marks.get(line[:1], "")) for line in lines)]


def _text(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines()


def command(row: Mapping[str, Any]) -> list[Marked]:
    lines = [_head(f"event {row['seq']}: {row['phase']} on {row['host']}"), _fact("at", row["at"])]
    lines += [_fact("kind", row["kind"]), _fact("outcome", f"{row['outcome'] or '–'} {row['ended_at'] or ''}")]
    lines += [_head("what"), (clean(f"  {what_was_done(row)}"), "")]
    for title, data in (("data", row["data"]), ("answer", row["answer"])):
        if data:
            text = json.dumps(data, indent=2, ensure_ascii=False)
            lines += [_head(title), *((clean(f"  {line}"), "") for line in text.splitlines())]
    return lines


# ---------------------------------------------------------------- hosts and families


def host(watch: Watch, name: str, memory: Mapping[str, tuple[int, int | None]], word: str, why: str) -> list[Marked]:
    """Its facts, its GPUs, and who holds them with what would become of each."""
    entry = watch.inventory().get("hosts", {}).get(name, {})
    facts = watch.facts(name)
    lines = [_head(f"{name}: {word}"), _fact("because", why)]
    lines += [_fact("may change", "yes" if entry.get("write", True) else "no: write: false in the inventory")]
    lines += [
        _fact("route", json.dumps(entry.get("route", {}), ensure_ascii=False)),
        _fact("reap", entry.get("reap", "ours")),
    ]
    lines += [_head("GPUs"), *_gpus(facts.get("gpus") or (), memory)]
    lines += holders(watch.last_look(name))
    lines.append(_head("facts"))
    return lines + [_fact(k, v) for k, v in sorted(facts.items()) if isinstance(v, str | int | float)]


def _gpus(gpus: Iterable[Mapping[str, Any]], memory: Mapping[str, tuple[int, int | None]]) -> list[Marked]:
    lines = []
    for gpu in gpus:
        index = str(gpu.get("index"))
        used = cards({index: memory[index]}, 24)[0] if index in memory else f"{index} memory not read yet"
        total = gpu.get("memory_total_mib")
        lines.append(_fact(used.ljust(24), f"{gpu.get('name')} {f'{total} MiB' if total else ''}"))
    return lines or [("  none was seen", "done")]


def holders(look: RequestRecord | None) -> list[Marked]:
    title = "who holds the GPUs and the port"
    if look is None:
        return [_head(title), ("  nobody has looked yet: o does", "done")]
    lines = [_head(f"{title}, as of {look.ended_at} ({look.answer})")]
    for each in look.result.get("holders", ()):
        fate = "would be ended" if each.get("would_end") else "stays"
        gpu = f"{each['gpu_mib']} MiB" if each.get("gpu_mib") is not None else "memory unknown"
        what = f"  {each.get('pid')} {each.get('user')} {duration(each.get('age_s'))} {gpu}: {fate}: {each.get('why')}"
        lines.append((clean(what), "warn" if each.get("would_end") else ""))
        lines.append((clean(f"      {', '.join(each.get('holds', ()))}  {each.get('command')}"), "done"))
    return lines


def families(todo: Sequence[TodoRow], findings: Sequence[FindingRecord]) -> list[Marked]:
    """Every family with its members, and for each dead end what would reopen it."""
    ends = {f.hypothesis_id: f for f in reversed(findings) if f.is_dead_end}
    members: dict[str, list[TodoRow]] = {}
    for row in todo:
        members.setdefault(row.family or "(no family)", []).append(row)
    lines: list[Marked] = []
    for family, rows in sorted(members.items()):
        closed = [row for row in rows if row.id in ends]
        word = "CLOSED" if len(closed) == len(rows) else f"{len(rows) - len(closed)} of {len(rows)} open or decided"
        lines.append(_head(f"{family}: {word}"))
        for row in rows:
            end = ends.get(row.id)
            if end is None:
                lines.append((clean(f"  {row.id}: {row.status}; {row.reason}"), ""))
                continue
            lines.append((clean(f"  {row.id}: dead end, {end.verdict.value}: {end.cause or end.summary}"), "warn"))
            facts = ", ".join(f"{name} ≠ {_short(value)}" for name, value in end.depends_on.items())
            lines.append((clean(f"      reopens when {facts or 'asked for by --only'}"), "note"))
    return lines or [("no hypothesis is known yet", "done")]


def _short(value: str) -> str:
    """The finding itself has it in full."""
    return value if len(value) <= SHORT else f"{value[: SHORT - 1]}…"
