"""Rules of sound measuring that are not about one arm's numbers: order of steps, warm-up, claims, promotion."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.core.contamination import Doubt
from orchestrator.core.records import Sample

SWEEPS_AGREE = 0.05
POOLS_DIFFER = 0.001
SHORTEST_WINDOWS = 20
PHASES = ("warm-up", "flush", "prime", "measure")


def sweeps_agree(values: Sequence[float], tolerance: float = SWEEPS_AGREE) -> bool:
    """Do the last two sweeps of a warm-up agree? Until then the server is still compiling, caching or settling."""
    if len(values) < 2:
        return False
    before, now = values[-2:]
    return abs(now - before) <= tolerance * max(abs(before), abs(now))


def wrong_order(phases: Sequence[str]) -> Doubt | None:
    """Warm-up, flush, prime where the workload declares reuse, measure: each in its place, none but `prime` missing."""
    wanted = [p for p in PHASES if p != "prime" or p in phases]
    if list(phases) == wanted:
        return None
    return Doubt("order", f"measured as {' → '.join(phases) or 'nothing'}, not as {' → '.join(wanted)}")


def stream_error(events: Iterable[str]) -> str | None:
    """The error inside a stream that began with status 200, or None. `events`: lines of server-sent events."""
    for line in events:
        data = line.removeprefix("data:").strip()
        if not data.startswith("{"):
            continue
        try:
            body = json.loads(data)
        except ValueError:
            return f"unreadable event {data[:80]!r}"
        error = body.get("error")
        if error is not None:
            return str(error.get("message", error)) if isinstance(error, dict) else str(error)
    return None


def too_few_requests(samples: Sequence[Sample], least: int = 2) -> Doubt | None:
    """One request is mostly its time to the first token, and that is the compiler's."""
    good = sum(s.ok for s in samples)
    return None if good >= least else Doubt("one_request", f"{good} request a launch, at least {least} are needed")


def claim_within_null(gain: float, null_gaps: Sequence[float]) -> Doubt | None:
    """A gain no larger than a gap between two launches of the same configuration, made in the same session."""
    widest = max((abs(gap) for gap in null_gaps), default=0.0)
    if widest < abs(gain):
        return None
    return Doubt("null_pair", f"a gain of {gain:+.1%} where equal arms already differ by {widest:.1%}")


def log_windows(source: str, windows: int) -> Doubt | None:
    """Throughput from periodic log lines counts idle time of a window: short runs drown in it."""
    if source != "log" or windows >= SHORTEST_WINDOWS:
        return None
    return Doubt("log_windows", f"throughput from {windows} log windows is diluted by the idle part of each")


@dataclass(frozen=True)
class Acceptance:
    """Accepted share of drafted tokens by two estimators, which differ by points; neither goes without its name."""

    token_weighted: float
    request_weighted: float

    @property
    def sentence(self) -> str:
        return f"acceptance {self.token_weighted:.2%} token-weighted, {self.request_weighted:.2%} request-weighted"


def acceptance(requests: Sequence[tuple[int, int]]) -> Acceptance:
    """(accepted, drafted) of each request. Raises ValueError where nothing was drafted."""
    drafted = sum(d for _, d in requests)
    if not drafted:
        raise ValueError("nothing was drafted")
    shares = [a / d for a, d in requests if d]
    return Acceptance(sum(a for a, _ in requests) / drafted, fmean(shares))


def quality_difference(baseline: float, treatment: float, floor: float) -> Doubt | None:
    """Scores in points. A difference up to the one between two passes of the same server is none."""
    if abs(treatment - baseline) <= floor:
        return None
    return Doubt("quality", f"score {treatment:.2f} against {baseline:.2f}, equal passes differ by {floor:.2f}")


def uninitialised(lines: Iterable[str]) -> Doubt | None:
    """Weights that were not in the checkpoint: the text stays fluent, and no longer follows the prompt."""
    for line in lines:
        low = line.lower()
        if "not initialized from checkpoint" in low or ("weights" in low and "not initialized" in low):
            return Doubt("uninitialised", f"weights were not loaded: {line.strip()[:200]}")
    return None


def unverified(has_passed_gate: bool | None) -> Doubt | None:
    """Speed without a passed check of the output may be shown, and may become no baseline and no win."""
    if has_passed_gate:
        return None
    word = "was not made" if has_passed_gate is None else "failed"
    return Doubt("unverified", f"unverified: the check of the outputs {word}")


def caveats(order: Sequence[str], kv_pool_tokens: tuple[float | None, float | None] = (None, None)) -> list[Doubt]:
    """What a sound verdict still carries. `order`: the arms as they were launched; pools of baseline and treatment."""
    found = []
    first = order[:1]
    half = len(order) // 2
    if len(set(order)) > 1 and len(set(order[:half])) == 1 and len(set(order[half:])) == 1:
        found.append(Doubt("not_interleaved", f"all of {first[0]} ran first: a drift would look like an effect", False))
    a, b = kv_pool_tokens
    if a and b and abs(a - b) / max(a, b) > POOLS_DIFFER:
        found.append(Doubt("kv_pool", f"the KV pools differ: {a:g} and {b:g} tokens ({b / a - 1:+.1%})", False))
    return found


@dataclass(frozen=True)
class Point:
    """One point of a sweep."""

    concurrency: int
    prompt_tokens: int


def smoke_tests(sweep: Sequence[Point]) -> list[Point]:
    """What to send before a sweep: its widest point, its longest prompt, and both at once."""
    if not sweep:
        return []
    widest, longest = max(p.concurrency for p in sweep), max(p.prompt_tokens for p in sweep)
    extremes = [max(sweep, key=lambda p: (p.concurrency, p.prompt_tokens))]
    extremes.append(max(sweep, key=lambda p: (p.prompt_tokens, p.concurrency)))
    both = Point(widest, longest)
    return list(dict.fromkeys([*extremes, both] if both in sweep else extremes))


def sweep_row(point: Point, value: float | None, failure: str | None) -> str:
    """A crash in the middle of a sweep stays a crash: not 0 tok/s, and not a missing row."""
    shown = f"CRASH: {failure}" if failure else "no valid samples" if value is None else f"{value:.1f}"
    return f"{point.concurrency} × {point.prompt_tokens} tokens: {shown}"
