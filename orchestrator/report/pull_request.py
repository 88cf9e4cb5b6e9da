"""The report as Markdown that reads well in a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from orchestrator.core.records import (
    ArmRecord,
    ArtifactRecord,
    CampaignView,
    DecisionRecord,
    ExperimentRecord,
    FindingRecord,
    TodoRow,
)
from orchestrator.core.todo import announcements
from orchestrator.report.best import best_of
from orchestrator.report.overview import band, overview
from orchestrator.report.text import change, code, interval, markdown, number, percent


def markdown_lines(view: CampaignView) -> Iterator[str]:
    """Line by line; experiments are read as they are written."""
    yield f"# Campaign {markdown(view.campaign.name)}"
    yield ""
    if view.campaign.description:
        yield from (markdown(view.campaign.description), "")
    hosts = ", ".join(sorted({markdown(run.host) for run in view.runs})) or "no host yet"
    yield f"{_count(view.runs, 'run')} on {hosts}; {_count(view.findings, 'finding')}; as of {view.exported_at[:19]}Z."
    yield ""
    yield from _best(view)
    yield from _findings(view.findings)
    yield from _dead_ends(view.findings)
    yield from _families(view)
    yield from _conclusions("Decisions", view.decisions)
    yield from _conclusions("Insights", view.insights)
    yield from _still_open(view.todo)
    yield from _experiments(view)


def _best(view: CampaignView) -> Iterator[str]:
    yield from ("## Best configuration", "")
    changes = {row.id: row.hypothesis.get("changes", []) for row in view.todo}
    baselines = overview(view).baselines
    winners = {(b.host, b.context): b.finding for b in best_of(view.findings)}
    metric = str(view.campaign.measure.get("metric") or next((f.metric for f in view.findings), "output_tps"))
    rows = []
    for host, context in sorted({*winners, *baselines}):
        f, points = winners.get((host, context)), baselines.get((host, context), [])
        if f is None:
            mean = f"{number(band(points).mean)} ({markdown(metric)})" if points else "–"
            rows.append((markdown(host), markdown(context), "the baseline", mean, "–", "–"))
            continue
        shown = " + ".join(code(change(c)) for c in changes.get(f.hypothesis_id or "", []))
        name = f"{markdown(f.hypothesis_id or 'baseline')}: {shown}" if shown else markdown(f.hypothesis_id or "")
        value = f"{number(f.treatment)} ({markdown(f.metric)})"
        rows.append((markdown(host), markdown(context), name, value, percent(f.effect), interval(f.low, f.high)))
    yield from _table(("host", "context", "configuration", "measured", "effect", "interval"), rows)


def _families(view: CampaignView) -> Iterator[str]:
    closed = announcements(view.todo, view.findings)
    if closed:
        yield from ("## Closed families", "")
        yield from (f"- {markdown(family.sentence)}" for family in closed)
        yield ""


def _findings(findings: Sequence[FindingRecord]) -> Iterator[str]:
    yield from ("## Findings", "")
    rows = [
        (
            str(f.experiment_id), markdown(f.hypothesis_id or "baseline"), markdown(f.context), f"**{f.verdict}**",
            percent(f.effect), interval(f.low, f.high), f"{number(f.baseline)} → {number(f.treatment)}",
            f"{f.baseline_launches} + {f.treatment_launches}", code(f.cause) if f.cause else markdown(f.summary) or "–",
        )
        for f in findings
    ]  # fmt: skip
    heads = (
        "experiment", "hypothesis", "context", "verdict", "effect", "interval", "baseline → treatment", "launches",
        "why",
    )  # fmt: skip
    yield from _table(heads, rows)


def _dead_ends(findings: Iterable[FindingRecord]) -> Iterator[str]:
    closed = [f for f in findings if f.closes]
    if not closed:
        return
    yield from ("## Dead ends", "")
    for f in closed:
        why = f": {code(f.cause)}" if f.cause else ""
        line = f"- {markdown(f.hypothesis_id or 'baseline')} ({markdown(f.context)}) {f.verdict}{why}."
        if f.reopened_at is not None:
            line += f" Reopened: {markdown(f.reopened_because or '')}."
        elif f.depends_on:
            facts = ", ".join(f"{code(name)} is no longer {code(value)}" for name, value in f.depends_on.items())
            line += f" Reopens when {facts}."
        else:
            line += " Nothing reopens it by itself."
        yield line
    yield ""


def _conclusions(title: str, rows: Sequence[DecisionRecord]) -> Iterator[str]:
    if not rows:
        return
    yield from (f"## {title}", "")
    for row in rows:
        rests = f" (findings {', '.join(map(str, row.finding_ids))})" if row.finding_ids else ""
        author = f" – {markdown(row.author)}" if row.author else ""
        yield f"- {markdown(row.text)}{rests}{author}"
    yield ""


def _still_open(todo: Sequence[TodoRow]) -> Iterator[str]:
    rows = [row for row in todo if row.status in ("open", "running")]
    if not rows:
        return
    yield from ("## Still to do", "")
    for row in rows:
        claim = markdown(str(row.hypothesis.get("claim", "")))
        reason = f" ({markdown(row.reason)})" if row.reason else ""
        yield f"- {markdown(row.id)}: {claim}{reason}"
    yield ""


def _experiments(view: CampaignView) -> Iterator[str]:
    yield from ("## Experiments", "")
    is_empty = True
    for experiment in view.experiments:
        is_empty = False
        yield from _experiment(experiment, view.artifacts(experiment.id))
    if is_empty:
        yield from ("None yet.", "")


def _experiment(e: ExperimentRecord, artifacts: Sequence[ArtifactRecord]) -> Iterator[str]:
    verdict = e.verdict.value if e.verdict else f"{e.state} {e.phase}".strip()
    name = markdown(e.hypothesis_id or "baseline")
    yield from (f"### Experiment {e.id}, {name}: {markdown(verdict)}", "")
    yield f"On {markdown(e.host)}, context {markdown(e.context)}, {e.started_at[:19]}Z to {(e.ended_at or 'now')[:19]}."
    yield ""
    for each in e.changes:
        yield f"- change: {code(change(each))}"
    if e.cause:
        yield f"- cause: {code(e.cause)}"
    for arm in e.arms:
        yield f"- {arm.kind} arm {arm.number}: {_launches(arm)}"
    yield f"- revert: {_proof(e)}"
    if artifacts:
        files = ", ".join(f"{code(a.name)} ({markdown(a.kind)}, sha256 {a.sha256[:12]})" for a in artifacts)
        yield f"- kept files: {files}"
    yield ""


def _launches(arm: ArmRecord) -> str:
    if not arm.launches:
        return "no launch"
    told = []
    for launch in arm.launches:
        outcome = launch.outcome.value if launch.outcome else "running"
        samples = f", {_count(launch.samples, 'sample')}" if launch.samples else ""
        code_ = "" if launch.exit_code in (None, 0) else f", exit code {launch.exit_code}"
        signal = "" if launch.signal is None else f", signal {launch.signal}"
        told.append(f"{outcome}{samples}{code_}{signal}")
    return "; ".join(told)


def _proof(e: ExperimentRecord) -> str:
    changing = [arm for arm in e.arms if arm.changes]
    if not changing:
        return "nothing was changed"
    told = []
    for arm in changing:
        p = arm.proof
        if p is None:
            told.append(f"arm {arm.number} **not proved**")
        elif p.clean:
            foreign = f"; {len(p.differences)} foreign differences" if p.differences else ""
            told.append(f"arm {arm.number} proved, {p.files} paths as found (manifest {p.found_digest[:12]}{foreign})")
        else:
            paths = ", ".join(code(str(d.get("path", d))) for d in p.differences)
            told.append(f"arm {arm.number} **not clean**: {paths or 'no path named'}")
    return "; ".join(told)


def _count(rows: Sequence[object], noun: str) -> str:
    return f"{len(rows)} {noun}{'' if len(rows) == 1 else 's'}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        yield from ("None yet.", "")
        return
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
