"""Plots as inline SVG. Colours are classes of the page's style, so that they follow light, dark and print; what a
colour tells is told in words or shape too."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape

from orchestrator.core.records import ExperimentRecord, FindingRecord, Sample
from orchestrator.report.overview import FINE, Band, BaselinePoint, Span, duration
from orchestrator.report.text import interval, number, percent, plain

WIDTH = 900
ROW = 24
MOST_ROWS = 120
MOST_SPANS = 1500
_LEFT, _RIGHT = 250, 170
_HATCH = (
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="hatch" width="2.5" height="6"/></pattern></defs>'
)


def text(value: str) -> str:
    """For SVG and HTML: nothing acts, nothing breaks out."""
    return escape(plain(value), quote=True)


def _svg(height: float, label: str, body: Iterator[str]) -> Iterator[str]:
    head = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{text(label)}">'
    yield f"{head}<title>{text(label)}</title>"
    yield from body
    yield "</svg>"


def _cut(value: str, length: int) -> str:
    shown = plain(value)
    return shown if len(shown) <= length else shown[: length - 1] + "…"


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round numbers from `low` to `high`."""
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [low]
    raw = span / wanted
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= raw)
    first = math.ceil(low / step)
    return [n * step for n in range(first, math.floor(high / step) + 1)]


# ---------------------------------------------------------------- effects


def forest(findings: Sequence[FindingRecord], min_effect: float | None) -> Iterator[str]:
    """Effect and interval of each measured finding, largest first; those that measured nothing say so."""
    measured = sorted((f for f in findings if f.effect is not None), key=lambda f: -(f.effect or 0.0))[:MOST_ROWS]
    others = [f for f in findings if f.effect is None][: max(0, MOST_ROWS - len(measured))]
    bounds = [v for f in measured for v in (f.effect, f.low, f.high) if v is not None and math.isfinite(v)]
    reach = max([0.02, *(abs(v) for v in bounds)]) * 1.1
    low, high = (max(-reach, min([-0.02, *bounds]) * 1.1), max(0.02, *bounds, 0.0) * 1.1)
    height = ROW * (len(measured) + len(others)) + 44

    def x(value: float) -> float:
        return _LEFT + (min(max(value, low), high) - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)

    def body() -> Iterator[str]:
        bottom = height - 30
        if min_effect:
            left, right = x(-min_effect), x(min_effect)
            yield f'<rect class="band" x="{left:.1f}" y="4" width="{right - left:.1f}" height="{bottom - 4}"/>'
        for tick in ticks(low, high):
            kind = "zero" if abs(tick) < 1e-12 else "grid"
            yield f'<line class="{kind}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="4" y2="{bottom}"/>'
            yield f'<text x="{x(tick):.1f}" y="{bottom + 18}" text-anchor="middle">{tick * 100:+.0f} %</text>'
        for row, finding in enumerate([*measured, *others]):
            yield from _effect_row(finding, 4 + ROW * row + ROW / 2, x)

    return _svg(height, "Effect of each hypothesis with its interval", body())


def _effect_row(f: FindingRecord, y: float, x: object) -> Iterator[str]:
    assert callable(x)
    name = f"{f.hypothesis_id or 'baseline'} ({f.context})"
    yield f'<a href="#experiment-{f.experiment_id}"><text x="0" y="{y + 4:.1f}">{text(_cut(name, 38))}</text></a>'
    if f.effect is None:
        words = text(f.verdict.replace("_", " "))
        yield f'<text class="v-{f.verdict}" x="{_LEFT + 8}" y="{y + 4:.1f}">{words}, no number</text>'
        return
    if f.low is not None and f.high is not None:
        ends = f'x1="{x(f.low):.1f}" x2="{x(f.high):.1f}"'
        yield f'<line class="whisker v-{f.verdict}" {ends} y1="{y:.1f}" y2="{y:.1f}"/>'
    at = x(f.effect)
    shape = f"M{at - 5:.1f} {y:.1f}L{at:.1f} {y - 5:.1f}L{at + 5:.1f} {y:.1f}L{at:.1f} {y + 5:.1f}Z"
    yield f'<path class="mark v-{f.verdict}" d="{shape}"/>'
    told = f"{percent(f.effect)} [{interval(f.low, f.high)}]" if f.low is not None else percent(f.effect)
    yield f'<text class="small" x="{WIDTH}" y="{y + 4:.1f}" text-anchor="end">{told}</text>'


# ---------------------------------------------------------------- baseline


def trend(points: Sequence[BaselinePoint], noise: Band, metric: str) -> Iterator[str]:
    """Each launch of the baseline in the order it ran, with mean and noise band."""
    values = [p.value for p in points] + [v for v in (noise.low, noise.high) if v is not None]
    low, high = min(values), max(values)
    pad = (high - low) * 0.15 or abs(high) * 0.05 or 1.0
    low, high, height, left = low - pad, high + pad, 180, 70

    def y(value: float) -> float:
        return 10 + (high - value) / (high - low) * (height - 45)

    def x(place: int) -> float:
        return left + (place + 0.5) / len(points) * (WIDTH - left - 10)

    def body() -> Iterator[str]:
        if noise.low is not None and noise.high is not None:
            top, bottom = y(noise.high), y(noise.low)
            yield f'<rect class="band" x="{left}" y="{top:.1f}" width="{WIDTH - left}" height="{bottom - top:.1f}"/>'
        for tick in ticks(low, high, 4):
            yield f'<line class="grid" x1="{left}" x2="{WIDTH}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
            yield f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{number(tick)}</text>'
        yield f'<line class="mean" x1="{left}" x2="{WIDTH}" y1="{y(noise.mean):.1f}" y2="{y(noise.mean):.1f}"/>'
        path = " ".join(f"{x(n):.1f},{y(p.value):.1f}" for n, p in enumerate(points))
        yield f'<polyline class="trend" points="{path}"/>'
        for n, p in enumerate(points):
            told = f"experiment {p.experiment_id}, {_clock(p.at_s)}: {p.value:.4g} {metric}"
            at = f'cx="{x(n):.1f}" cy="{y(p.value):.1f}"'
            yield f'<circle class="dot" {at} r="4"><title>{text(told)}</title></circle>'
        for n in {0, len(points) - 1}:
            anchor = "start" if n == 0 else "end"
            edge = left if n == 0 else WIDTH
            yield f'<text x="{edge}" y="{height - 8}" text-anchor="{anchor}">{_clock(points[n].at_s)}</text>'

    return _svg(height, f"Baseline over its launches, {metric}", body())


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


# ---------------------------------------------------------------- time


def timeline(spans: Sequence[Span]) -> Iterator[str]:
    """One run: its experiments side by side in time; what was lost to failures is hatched."""
    shown = spans[:MOST_SPANS]
    start, end = min(s.start_s for s in shown), max(s.end_s for s in shown)
    length = max(end - start, 1e-6)
    height = 74

    def x(at_s: float) -> float:
        return (at_s - start) / length * WIDTH

    def body() -> Iterator[str]:
        yield _HATCH
        yield f'<rect class="idle" x="0" y="8" width="{WIDTH}" height="34"/>'
        for span in shown:
            width = max(x(span.end_s) - x(span.start_s), 0.8)
            told = f"#{span.experiment_id} {span.name}: {span.mark}, {duration(span.seconds)}"
            told += f", {duration(span.lost_s)} lost" if span.lost_s else ""
            yield f'<a href="#experiment-{span.experiment_id}"><g><title>{text(told)}</title>'
            at = f'x="{x(span.start_s):.1f}" y="8" height="34"'
            yield f'<rect class="span v-{text(span.mark)}" {at} width="{width:.1f}"/>'
            if span.lost_s:
                lost = min(width, max(span.lost_s / length * WIDTH, 0.8))
                yield f'<rect class="lost" {at} width="{lost:.1f}"/>'
            if width > 34:
                middle = x(span.start_s) + width / 2
                yield f'<text class="on" x="{middle:.1f}" y="30" text-anchor="middle">#{span.experiment_id}</text>'
            yield "</g></a>"
        for tick in ticks(0.0, length, 8):
            anchor = "start" if tick < length * 0.03 else "end" if tick > length * 0.97 else "middle"
            yield f'<text x="{x(start + tick):.1f}" y="62" text-anchor="{anchor}">{duration(tick)}</text>'

    return _svg(height, "Experiments of one run in time", body())


# ---------------------------------------------------------------- samples


def samples(experiment: ExperimentRecord) -> Iterator[str]:
    """Decode speed of every sample, a row for each launch: circles of the baseline, squares of the treatment."""
    rows = [
        (arm.kind, launch.launch_id, [v for s in launch.samples if (v := speed(s)) is not None])
        for arm in experiment.arms for launch in arm.launches if launch.outcome in FINE or launch.samples
    ]  # fmt: skip
    rows = [row for row in rows if row[2]][:60]
    if not rows:
        return
    values = [v for _, _, speeds in rows for v in speeds]
    low, high = min(values), max(values)
    pad = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    low, high, height = low - pad, high + pad, ROW * len(rows) + 40

    def x(value: float) -> float:
        return _LEFT + (value - low) / (high - low) * (WIDTH - _LEFT - 20)

    def body() -> Iterator[str]:
        for tick in ticks(low, high):
            yield f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="4" y2="{height - 30}"/>'
            yield f'<text x="{x(tick):.1f}" y="{height - 12}" text-anchor="middle">{number(tick)}</text>'
        for n, (kind, launch, speeds) in enumerate(rows):
            y = 4 + ROW * n + ROW / 2
            yield f'<text x="0" y="{y + 4:.1f}">{text(kind)} {text(_cut(launch, 26))}</text>'
            for value in speeds[:200]:
                yield _sample_mark(kind, x(value), y, value)

    yield from _svg(height, "Tokens a second of each sample", body())


def _sample_mark(kind: str, x: float, y: float, value: float) -> str:
    title = f"<title>{value:.4g} tok/s</title>"
    if kind == "baseline":
        return f'<circle class="s-baseline" cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>'
    return f'<rect class="s-treatment" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8">{title}</rect>'


def speed(sample: Sample) -> float | None:
    """Tokens a second while decoding; over the whole request where only that is known. Failed ones have none."""
    if not sample.ok:
        return None
    if sample.decode_tokens and sample.decode_s:
        return sample.decode_tokens / sample.decode_s
    if sample.output_tokens and sample.total_s:
        return sample.output_tokens / sample.total_s
    return None
