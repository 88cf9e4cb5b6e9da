"""The report as one HTML file: no scripts, nothing from elsewhere, light and dark, and for paper."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from orchestrator.core.differences import differences
from orchestrator.core.records import CampaignView, ExperimentRecord, FindingRecord, LaunchRecord, Verdict
from orchestrator.core.todo import announcements, standings, until
from orchestrator.report import plots
from orchestrator.report.best import best_of
from orchestrator.report.launches import file_diffs, log_excerpt, proof_sentence
from orchestrator.report.overview import Overview, band, by_run, duration, overview, value_of
from orchestrator.report.plots import text
from orchestrator.report.style import STYLE
from orchestrator.report.text import change, interval, number, percent

MOST_RUNS = 40
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_VOLATILE = ("port", "nccl_port", "weight_version", "random_seed")


def write_html(view: CampaignView, out: TextIO) -> None:
    """Experiments are read twice: once for the plots at the top, once as they are written."""
    for line in _page(view):
        out.write(line + "\n")


def _page(view: CampaignView) -> Iterator[str]:
    seen = overview(view)
    name = text(view.campaign.name)
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield f"<title>{name}</title><style>{STYLE}</style></head><body><main>"
    yield f"<header><h1>{name}</h1>"
    if view.campaign.description:
        yield f"<p>{text(view.campaign.description)}</p>"
    yield f"<p class='quiet'>as of {view.exported_at[:19].replace('T', ' ')} UTC</p></header>"
    yield from _summary(view, seen)
    yield from _plan(view)
    yield from _effects(view)
    yield from _baselines(view, seen)
    yield from _time(view, seen)
    yield from _dead_ends(view.findings)
    yield from _conclusions(view)
    yield from _experiments(view)
    yield from _fingerprints(view)
    yield "</main></body></html>"


# ---------------------------------------------------------------- the top


def _summary(view: CampaignView, seen: Overview) -> Iterator[str]:
    hosts = sorted({run.host for run in view.runs})
    counts = {v: sum(f.verdict is v for f in view.findings) for v in Verdict}
    figures = [
        (len(view.findings), "findings"), (len(seen.spans), "experiments"), (seen.launches, "launches"),
        (seen.samples, "samples"), (duration(seen.seconds), "in experiments"),
        (duration(sum(seen.lost_s.values())), "lost to failures"),
    ]  # fmt: skip
    yield "<section id='summary'><h2>Summary</h2><div class='figures'>"
    yield from (f"<div><b>{text(str(value))}</b><span>{label}</span></div>" for value, label in figures)
    yield "</div>"
    yield (
        f"<p>On {text(', '.join(hosts) or 'no host yet')}. "
        + " ".join(f"{_badge(v.value)} {count}" for v, count in counts.items() if count)
        + "</p>"
    )
    yield from _best(view, seen)
    yield "</section>"


def _best(view: CampaignView, seen: Overview) -> Iterator[str]:
    changes = {row.id: row.hypothesis.get("changes", []) for row in view.todo}
    winners = {(b.host, b.context): b.finding for b in best_of(view.findings)}
    rows = []
    for place in sorted({*winners, *seen.baselines}):
        finding, points = winners.get(place), seen.baselines.get(place, [])
        base = f"{number(band(points).mean)} ({len(points)} launches)" if points else "–"
        if finding is None:
            rows.append((text(place[0]), text(place[1]), "the baseline: nothing beat it", base, base, "–"))
            continue
        shown = " + ".join(f"<code>{text(change(c))}</code>" for c in changes.get(finding.hypothesis_id or "", []))
        name = f"<a href='#experiment-{finding.experiment_id}'>{text(finding.hypothesis_id or 'baseline')}</a> {shown}"
        effect = f"{percent(finding.effect)} <span class='quiet'>[{interval(finding.low, finding.high)}]</span>"
        value = f"{number(finding.treatment)} {text(finding.metric)}"
        rows.append((text(place[0]), text(place[1]), name, value, base, effect))
    yield "<h3>Best configuration</h3>"
    yield from _table(("host", "context", "configuration", "measured", "baseline", "effect"), rows)


def _plan(view: CampaignView) -> Iterator[str]:
    yield "<section id='plan'><h2>The plan, and what became of it</h2>"
    rows = [
        (
            f"<b>{text(s.row.id)}</b><br>{text(str(s.row.hypothesis.get('claim', '')))}", text(s.row.family) or "–",
            percent(s.row.expect), f"{_badge(s.row.status)}", text(s.became),
        )
        for s in standings(view.todo, view.findings)
    ]  # fmt: skip
    yield from _table(("hypothesis", "family", "expected", "status", "what became of it"), rows)
    for family in announcements(view.todo, view.findings):
        yield f"<p class='note'>{text(family.sentence)}</p>"
    yield "</section>"


def _effects(view: CampaignView) -> Iterator[str]:
    if not view.findings:
        return
    least = view.campaign.measure.get("min_effect")
    least_effect = _fraction(least)
    yield "<section id='effects'><h2>Effects</h2>"
    if least_effect:
        yield f"<p class='quiet'>Shaded: effects below {least_effect * 100:g} %, which count as none.</p>"
    yield from plots.forest(view.findings, least_effect)
    if len(view.findings) > plots.MOST_ROWS:
        yield f"<p class='quiet'>The {plots.MOST_ROWS} largest of {len(view.findings)} findings.</p>"
    rows = [
        (
            str(f.id), f"<a href='#experiment-{f.experiment_id}'>#{f.experiment_id}</a>",
            f"<b>{text(f.hypothesis_id or 'baseline')}</b><br>{text(f.context)} on {text(f.host)}",
            _badge(f.verdict.value), _effect(f), f"{f.baseline_launches} + {f.treatment_launches}",
            text(f.cause or f.summary),
        )
        for f in view.findings
    ]  # fmt: skip
    heads = ("finding", "exp.", "hypothesis", "verdict", "effect", "launches", "why")
    yield from _table(heads, rows)
    yield "</section>"


def _effect(f: FindingRecord) -> str:
    if f.effect is None:
        return "–"
    values = f"{number(f.baseline)} → {number(f.treatment)} {text(f.metric)}"
    return f"<b>{percent(f.effect)}</b> [{interval(f.low, f.high)}]<br><span class='quiet'>{values}</span>"


def _fraction(value: object) -> float | None:
    """`2%`, as a playbook's measure is kept, or a number."""
    if isinstance(value, str) and value.endswith("%"):
        return float(value[:-1]) / 100
    return float(value) if isinstance(value, int | float) else None


def _baselines(view: CampaignView, seen: Overview) -> Iterator[str]:
    if not seen.baselines:
        return
    metric = str(view.campaign.measure.get("metric", "output_tps"))
    yield "<section id='baseline'><h2>Baseline</h2>"
    for (host, context), points in sorted(seen.baselines.items()):
        noise = band(points)
        told = f"mean {number(noise.mean)} {metric} over {noise.launches} launches"
        if noise.low is not None:
            spread = (noise.mean - noise.low) / noise.mean if noise.mean else 0.0
            told += f"; shaded: two standard deviations between launches, ± {spread * 100:.1f} %"
        yield f"<h3>{text(context)} on {text(host)}</h3><p class='quiet'>{text(told)}</p>"
        yield from plots.trend(points, noise, metric)
    yield "</section>"


def _time(view: CampaignView, seen: Overview) -> Iterator[str]:
    runs = by_run(seen.spans)
    if not runs:
        return
    lost = ", ".join(f"{duration(s)} {outcome}" for outcome, s in sorted(seen.lost_s.items(), key=lambda p: -p[1]))
    share = sum(seen.lost_s.values()) / seen.seconds if seen.seconds else 0.0
    yield "<section id='time'><h2>Where the time went</h2>"
    yield f"<p>{duration(seen.seconds)} in experiments; lost to launches that came to nothing: "
    yield f"{text(lost)} ({share:.0%}), hatched below.</p>" if lost else "nothing.</p>"
    states = {run.id: run for run in view.runs}
    for run_id in sorted(runs)[-MOST_RUNS:]:
        run = states.get(run_id)
        label = f"run #{run_id} on {run.host}, {run.started_at[:19].replace('T', ' ')}, {run.state}" if run else ""
        yield f"<h3>{text(label)}</h3>"
        yield from plots.timeline(runs[run_id])
    if len(runs) > MOST_RUNS:
        yield f"<p class='quiet'>The last {MOST_RUNS} of {len(runs)} runs.</p>"
    yield "</section>"


def _dead_ends(findings: Sequence[FindingRecord]) -> Iterator[str]:
    closed = [f for f in findings if f.closes]
    if not closed:
        return
    yield "<section id='dead-ends'><h2>Dead ends</h2><ul>"
    for f in closed:
        why = f": <code>{text(f.cause)}</code>" if f.cause else ""
        after = f"reopened: {f.reopened_because}" if f.reopened_at is not None else until(f.depends_on)
        where = f"<b>{text(f.hypothesis_id or 'baseline')}</b> ({text(f.context)})"
        yield f"<li>{where} {_badge(f.verdict.value)}{why} <span class='quiet'>{text(after)}</span></li>"
    yield "</ul></section>"


def _conclusions(view: CampaignView) -> Iterator[str]:
    for title, rows in (("Decisions", view.decisions), ("Insights", view.insights)):
        if rows:
            yield f"<section><h2>{title}</h2><ul>"
            for row in rows:
                rests = f" (findings {', '.join(map(str, row.finding_ids))})" if row.finding_ids else ""
                by = " · ".join(filter(None, (row.author, row.created_at[:10])))
                yield f"<li>{text(row.text)}{rests} <span class='quiet'>{text(by)}</span></li>"
            yield "</ul></section>"


# ---------------------------------------------------------------- experiments


def _experiments(view: CampaignView) -> Iterator[str]:
    yield "<section id='experiments'><h2>Experiments</h2>"
    resolved: dict[tuple[str, str], Mapping[str, Any]] = {}  # what the last baseline said of its configuration
    of: dict[int, list[FindingRecord]] = {}
    for finding in view.findings:
        of.setdefault(finding.experiment_id, []).append(finding)
    is_empty = True
    for experiment in view.experiments:
        is_empty = False
        yield from _experiment(view, experiment, of.get(experiment.id, []), resolved)
    yield "<p>None yet.</p></section>" if is_empty else "</section>"


def _experiment(
    view: CampaignView,
    e: ExperimentRecord,
    findings: Sequence[FindingRecord],
    resolved: dict[tuple[str, str], Mapping[str, Any]],
) -> Iterator[str]:
    mark = e.verdict.value if e.verdict else f"running {e.phase}".strip() if e.state == "running" else e.state
    yield f"<article id='experiment-{e.id}'><h3>#{e.id} {text(e.hypothesis_id or 'baseline')} {_badge(mark)}</h3>"
    ended = (e.ended_at or "now")[:19].replace("T", " ")
    yield f"<p class='quiet'>{text(e.context)} on {text(e.host)}, {e.started_at[:19].replace('T', ' ')} to {ended},"
    yield f" run #{e.run_id}" + (f", <a href='#fingerprint-{e.fingerprint_id}'>fingerprint {e.fingerprint_id}</a>"
                                 if e.fingerprint_id else "") + "</p>"  # fmt: skip
    for finding in findings:
        yield f"<p><b>{text(finding.summary)}</b></p>"
        yield from _list([text(line) for line in finding.evidence])
    if e.cause and not findings:
        yield f"<p>{text(e.cause)}</p>"
    yield from _list([f"<code>{text(change(c))}</code>" for c in e.changes])
    for path, diff in file_diffs(view.artifacts(e.id), view.content):
        yield f"<details open><summary>{text(path)}</summary>{_diff(diff)}</details>"
    yield from _launch_table(e)
    plot = list(plots.samples(e))
    if plot:
        yield "<h4>Samples</h4><p class='quiet'>tokens a second; ● baseline, ■ treatment</p>"
        yield from plot
    for arm in e.arms:
        for launch in arm.launches:
            yield from _log(view, launch)
            yield from _configuration(launch, arm.kind, resolved.get((e.host, e.context)))
            if arm.kind == "baseline" and launch.facts.get("resolved"):
                resolved[e.host, e.context] = launch.facts["resolved"]
    yield "<h4>Proof of revert</h4>"
    yield from _list([_proof(arm.kind, arm.number, proof_sentence(arm)) for arm in e.arms] or ["nothing was launched"])
    kept = [f"{text(a.name)} ({text(a.kind)}, sha256 {a.sha256[:12]}, {a.size} bytes)" for a in view.artifacts(e.id)]
    yield from (f"<details><summary>{len(kept)} kept files</summary>", *_list(kept), "</details>") if kept else ()
    yield "</article>"


def _proof(kind: str, number_: int, sentence: str) -> str:
    mark = "bad" if sentence.startswith(("NOT", "not proved")) else "good"
    return f"{kind} arm {number_}: <span class='{mark}'>{text(sentence)}</span>"


def _launch_table(e: ExperimentRecord) -> Iterator[str]:
    rows = []
    for arm in e.arms:
        for launch in arm.launches:
            ready = f"{launch.ready_s:.1f} s" if launch.ready_s is not None else "–"
            ended = f"signal {launch.signal}" if launch.signal is not None else (
                f"exit {launch.exit_code}" if launch.exit_code is not None else "–"
            )  # fmt: skip
            value = value_of(launch)
            said = [c for c in launch.facts.get("checks") or () if isinstance(c, Mapping)]
            holding = sum(c.get("holds") is True for c in said)
            failed = ", ".join(str(c.get("what")) for c in said if c.get("holds") is False)
            checks = f"{holding} of {len(said)} hold" + (f"; not: {failed}" if failed else "") if said else "–"
            outcome = launch.outcome.value if launch.outcome else "running"
            note = launch.cause or str(launch.facts.get("gate") or "")
            rows.append((f"{arm.kind} {arm.number}.{launch.number}", _badge(outcome), number(value), ready, ended,
                         str(len(launch.samples)), text(checks), text(note)))  # fmt: skip
    if rows:
        yield from _table(("launch", "outcome", "value", "ready in", "ended", "samples", "checks", "note"), rows)


def _log(view: CampaignView, launch: LaunchRecord) -> Iterator[str]:
    if not launch.cause:
        return
    lines = log_excerpt(launch, view.content)
    if not lines:
        return
    shown = [
        f"<span class='cause'>{line.number:>6} ▶ {text(line.text)}</span>" if line.is_cause
        else f"{line.number:>6}   {text(line.text)}"
        for line in lines
    ]  # fmt: skip
    body = "\n".join(shown)
    yield f"<details open><summary>Log of {text(launch.launch_id)}, the cause marked</summary>"
    yield f"<pre>{body}</pre></details>"


def _configuration(launch: LaunchRecord, kind: str, before: Mapping[str, Any] | None) -> Iterator[str]:
    resolved = launch.facts.get("resolved") or {}
    if not launch.argv and not resolved:
        return
    yield f"<details><summary>Configuration of {text(launch.launch_id)}</summary>"
    if launch.argv:
        yield f"<pre class='wrap'>{text(shlex.join(launch.argv))}</pre>"
    if kind == "treatment" and before is not None and resolved:
        rows = [str(d) for d in differences(before, resolved, ignore=_VOLATILE)]
        yield "<p>As the server says it, unlike the baseline before it:</p>"
        yield from _list([f"<code>{text(row)}</code>" for row in rows] or ["nothing"])
    elif resolved:
        yield f"<pre class='wrap'>{_pretty(resolved)}</pre>"
    yield "</details>"


def _fingerprints(view: CampaignView) -> Iterator[str]:
    if not view.fingerprints:
        return
    yield "<section id='fingerprints'><h2>Fingerprints</h2>"
    before: dict[str, Mapping[str, Any]] = {}
    for f in view.fingerprints:
        seen = f"{f.first_seen[:19].replace('T', ' ')} to {f.last_seen[:19].replace('T', ' ')}"
        yield f"<article id='fingerprint-{f.id}'><h3>Fingerprint {f.id} of {text(f.host)}</h3>"
        yield f"<p class='quiet'>{seen}, {text(f.digest[:12])}</p>"
        if f.host in before:
            rows = [str(d) for d in differences(before[f.host], f.facts)]
            yield "<p>Unlike the one before it:</p>"
            yield from _list([text(row) for row in rows])
        yield f"<details><summary>All facts</summary><pre class='wrap'>{_pretty(f.facts)}</pre></details></article>"
        before[f.host] = f.facts
    yield "</section>"


# ---------------------------------------------------------------- pieces


def _badge(mark: str) -> str:
    return f"<span class='badge v-{text(mark.split()[0] if mark else '')}'>{text(mark.replace('_', ' '))}</span>"


def _list(rows: Sequence[str]) -> list[str]:
    return ["<ul>", *(f"<li>{row}</li>" for row in rows), "</ul>"] if rows else []


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        yield "<p>None yet.</p>"
        return
    yield "<div class='scroll'><table><thead><tr>" + "".join(f"<th>{h}</th>" for h in heads) + "</tr></thead><tbody>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
    yield "</tbody></table></div>"


def _diff(diff: str) -> str:
    kinds = {"+": "added", "-": "removed", "@": "hunk"}
    lines = []
    for line in diff.rstrip("\n").split("\n"):
        kind = "quiet" if line.startswith(("+++", "---")) else kinds.get(line[:1], "same")
        lines.append(f"<span class='{kind}'>{text(line) or ' '}</span>")
    return "<pre class='diff'>" + "\n".join(lines) + "</pre>"


def _pretty(value: Mapping[str, Any]) -> str:
    return "\n".join(text(line) for line in json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True).split("\n"))
