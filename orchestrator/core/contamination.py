"""What makes a measurement unfit for a verdict: one function for each way, each with which and by how much.

Functions of one arm take what was recorded of it, functions of two arms take both. They return `Doubt`s: a blocking
one makes the experiment `invalid`; the others are caveats that stand beside the verdict. What was not recorded (None)
is not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from orchestrator.core.records import Sample

UNEQUAL_TOKENS = 0.01
CACHE_HITS = 0.01
CACHED_ALIKE = 2
"""Tokens that every prompt of a model begins with: cached, and no sign of anything."""
CLOCK_DIFFERENCE = 0.02
CLIENT_BOUND = 0.10
CLIENT_BUSY = 0.95
SWEEPS_AGREE = 0.05
CAP_HITS_POINTS = 5.0
LEAST_ACCEPT_LENGTH = 1.05
RETOKENISED_SHARE = 0.9
NOMINAL_TOKENS = 0.10
IDLE_POWER_SHARE = 0.6
BUSY_UTILISATION = 0.9


@dataclass(frozen=True)
class Doubt:
    """`kind` is stable and short, for tables; `sentence` says which and by how much."""

    kind: str
    sentence: str
    blocks: bool = True


@dataclass(frozen=True)
class ArmEvidence:
    """What was recorded while one arm was measured. Counters are differences over the measurement."""

    name: str
    samples: Sequence[Sample]
    asked_prompt_tokens: float | None = None
    asked_output_tokens: int | None = None
    cache_queries: float | None = None
    cache_hits: float | None = None
    is_reuse_declared: bool = False
    first_cached_tokens: int | None = None
    flushes_refused: int = 0
    own_requests: int | None = None
    requests_served: int | None = None
    allowed_error_rate: float = 0.0
    sweeps: Sequence[float] = ()
    client_load: float | None = None
    client: str | None = None
    client_tps: float | None = None
    server_tps: float | None = None
    retokenised_output_tokens: int | None = None
    sm_clocks_mhz: Sequence[float] = ()
    throttle_reasons: Sequence[str] = ()
    power_w: Sequence[float] = ()
    power_limit_w: float | None = None
    utilisation: Sequence[float] = ()
    is_speculative: bool = False
    accept_length: float | None = None
    dataset: str | None = None
    resolved: Mapping[str, str] = field(default_factory=dict)


def doubts_of_arm(arm: ArmEvidence) -> list[Doubt]:
    """Everything that can be said of one arm by itself."""
    checks = (
        no_valid_samples,
        failures,
        unsettled,
        bimodal_outputs,
        early_ends,
        nominal_lengths,
        cache_hits,
        flush,
        foreign_requests,
        client_bound,
        retokenised,
        throttling,
        power_mismatch,
        speculation,
    )
    return [doubt for check in checks if (doubt := check(arm)) is not None]


def doubts_of_pair(
    baseline: ArmEvidence, treatment: ArmEvidence, *, treated: Sequence[str] = (), is_latency: bool = False
) -> list[Doubt]:
    """Everything that can be said of two arms beside each other. `treated`: settings that were meant to differ."""
    pair = [
        *unequal_tokens(baseline, treatment),
        unequal_failures(baseline, treatment, is_latency=is_latency),
        cap_hits(baseline, treatment),
        clocks(baseline, treatment),
        different_clients(baseline, treatment),
        *settings_differ(baseline, treatment, treated),
    ]
    return [doubt for doubt in pair if doubt is not None]


# ---------------------------------------------------------------- one arm


def no_valid_samples(arm: ArmEvidence) -> Doubt | None:
    good = sum(s.ok for s in arm.samples)
    if good:
        return None
    return Doubt("no_samples", f"{arm.name}: no valid sample among {len(arm.samples)}; that is no number, and no win")


def failures(arm: ArmEvidence) -> Doubt | None:
    failed = [s for s in arm.samples if not s.ok]
    if not failed:
        return None
    causes = Counter(s.error or "failed" for s in failed)
    cause, count = causes.most_common(1)[0]
    done = len(arm.samples) - len(failed)
    said = f"{done}/{len(arm.samples)} requests succeeded; {count} × {cause}"
    is_allowed = len(failed) / len(arm.samples) <= arm.allowed_error_rate
    return Doubt("failures", f"{arm.name}: {said}", blocks=not is_allowed)


def unsettled(arm: ArmEvidence) -> Doubt | None:
    """Sweeps of the warm-up that never agreed: the launch's own noise, or something that still settles."""
    if len(arm.sweeps) < 2:
        return None
    before, last = arm.sweeps[-2:]
    if abs(last - before) <= SWEEPS_AGREE * max(before, last):
        return None
    said = f"{len(arm.sweeps)} sweeps of warm-up, and the last two still differ by {abs(last / before - 1):.0%}"
    return Doubt("unsettled", f"{arm.name}: {said}", blocks=False)


def bimodal_outputs(arm: ArmEvidence) -> Doubt | None:
    """Some answers empty, the others not: an aggregate over both describes neither."""
    counts = _outputs(arm)
    empty = sum(c == 0 for c in counts)
    if not empty:
        return None
    spread = f"output tokens min {min(counts)}, median {median(counts):g}, max {max(counts)}"
    return Doubt("empty_outputs", f"{arm.name}: {empty} of {len(counts)} answers are empty ({spread})")


def early_ends(arm: ArmEvidence) -> Doubt | None:
    if arm.asked_output_tokens is None:
        return None
    early = [c for c in _outputs(arm) if 0 < c < arm.asked_output_tokens]
    if not early:
        return None
    shown = f"{min(early)} to {max(early)}" if len(set(early)) > 1 else f"{early[0]}"
    said = f"{len(early)} of {len(arm.samples)} answers ended early: {shown} of {arm.asked_output_tokens} tokens"
    return Doubt("early_ends", f"{arm.name}: {said}")


def nominal_lengths(arm: ArmEvidence) -> Doubt | None:
    """Prompts that are not as long as asked for: comparable with one another, not with what others call this length."""
    measured = _mean([s.prompt_tokens for s in arm.samples if s.ok])
    if measured is None or not arm.asked_prompt_tokens:
        return None
    off = measured / arm.asked_prompt_tokens - 1
    if abs(off) <= NOMINAL_TOKENS:
        return None
    said = f"prompts hold {measured:g} tokens, {arm.asked_prompt_tokens:g} were asked for ({off:+.0%})"
    return Doubt("nominal_lengths", f"{arm.name}: {said}", blocks=False)


def cache_hits(arm: ArmEvidence) -> Doubt | None:
    """The server's counters, else what it reported for each request."""
    queries, hits = arm.cache_queries, arm.cache_hits
    if queries is None or hits is None:
        cached = [s.cached_tokens for s in arm.samples]
        if not cached or any(c is None for c in cached):
            return None
        queries, hits = float(sum(s.prompt_tokens or 0 for s in arm.samples)), float(sum(c or 0 for c in cached))
    if arm.is_reuse_declared or not queries or hits / queries <= CACHE_HITS:
        return None
    if hits <= CACHED_ALIKE * len(arm.samples):
        return None
    said = f"{hits / queries:.0%} of prompt tokens came from the prefix cache ({hits:g} of {queries:g})"
    return Doubt("cache_hits", f"{arm.name}: {said}, in a workload that declares no reuse")


def flush(arm: ArmEvidence) -> Doubt | None:
    """The first request after the flush shows whether there was one, whatever the command said."""
    if arm.is_reuse_declared:
        return None
    if (arm.first_cached_tokens or 0) > CACHED_ALIKE:
        said = f"the first request found {arm.first_cached_tokens} cached tokens after the flush"
        return Doubt("flush", f"{arm.name}: {said}")
    if arm.flushes_refused and arm.first_cached_tokens is None:
        said = f"{arm.flushes_refused} flushes were refused, and the server does not tell what it had cached"
        return Doubt("flush", f"{arm.name}: {said}", blocks=False)
    return None


def foreign_requests(arm: ArmEvidence) -> Doubt | None:
    ours = len(arm.samples) if arm.own_requests is None else arm.own_requests
    if arm.requests_served is None or arm.requests_served <= ours:
        return None
    foreign = arm.requests_served - ours
    return Doubt("foreign_requests", f"{arm.name}: the server answered {foreign} requests that were not ours")


def client_bound(arm: ArmEvidence) -> Doubt | None:
    """The server says it made tokens faster, or slower, than the client saw them; or the client had no time left."""
    if arm.client_load is not None and arm.client_load >= CLIENT_BUSY:
        said = f"the client filled {arm.client_load:.0%} of a core: what was measured may be the client"
        return Doubt("client_bound", f"{arm.name}: {said}", blocks=False)
    if not arm.client_tps or not arm.server_tps:
        return None
    off = arm.client_tps / arm.server_tps - 1
    if abs(off) <= CLIENT_BOUND:
        return None
    said = f"the client saw {arm.client_tps:g} tok/s, the server made {arm.server_tps:g} ({off:+.0%})"
    return Doubt("client_bound", f"{arm.name}: {said}: what was measured is the client")


def retokenised(arm: ArmEvidence) -> Doubt | None:
    """Text that was streamed holds far fewer tokens than the server counted: it was held back or lost."""
    reported = sum(_outputs(arm))
    counted = arm.retokenised_output_tokens
    if counted is None or not reported or counted / reported >= RETOKENISED_SHARE:
        return None
    return Doubt("retokenised", f"{arm.name}: the server counted {reported} output tokens, the text holds {counted}")


def throttling(arm: ArmEvidence) -> Doubt | None:
    """The clocks fell while it was measured: the end of the window is another machine than its beginning."""
    clocks_mhz = arm.sm_clocks_mhz
    if len(clocks_mhz) < 4:
        return None
    quarter = max(1, len(clocks_mhz) // 4)
    first, last = fmean(clocks_mhz[:quarter]), fmean(clocks_mhz[-quarter:])
    fall = 1 - last / first
    if fall <= CLOCK_DIFFERENCE:
        return None
    why = f" ({', '.join(sorted(set(arm.throttle_reasons)))})" if arm.throttle_reasons else ""
    return Doubt("throttling", f"{arm.name}: SM clocks fell from {first:.0f} to {last:.0f} MHz (−{fall:.0%}){why}")


def power_mismatch(arm: ArmEvidence) -> Doubt | None:
    """Busy, and drawing little: kernels that wait, or a fallback. Said in the report, no reason to discard."""
    if not arm.power_w or not arm.utilisation or not arm.power_limit_w:
        return None
    busy, drawn = fmean(arm.utilisation), fmean(arm.power_w)
    if busy < BUSY_UTILISATION or drawn / arm.power_limit_w >= IDLE_POWER_SHARE:
        return None
    said = f"{busy:.0%} busy at {drawn:.0f} of {arm.power_limit_w:.0f} W: kernels that wait, or a fallback"
    return Doubt("power_mismatch", f"{arm.name}: {said}", blocks=False)


def speculation(arm: ArmEvidence) -> Doubt | None:
    """An acceptance length of one is speculation that never succeeds; random tokens cannot be predicted at all."""
    if not arm.is_speculative:
        return None
    if arm.accept_length is not None and arm.accept_length < LEAST_ACCEPT_LENGTH:
        return Doubt(
            "speculation", f"{arm.name}: speculation is ineffective, acceptance length {arm.accept_length:.2f}"
        )
    if arm.dataset == "random":
        return Doubt(
            "speculation", f"{arm.name}: speculation was measured on random tokens, which no draft can predict"
        )
    return None


# ---------------------------------------------------------------- two arms


def unequal_tokens(baseline: ArmEvidence, treatment: ArmEvidence) -> list[Doubt]:
    """Measured tokens of a request, as the servers counted them. Nominal lengths are never compared."""
    found = []
    for what, get in (("prompt", _prompts), ("output", _outputs)):
        a, b = (_mean(get(arm)) for arm in (baseline, treatment))
        if a is None or b is None or max(a, b) == 0 or abs(a - b) / max(a, b) <= UNEQUAL_TOKENS:
            continue
        said = f"{a:g} {what} tokens a request in {baseline.name}, {b:g} in {treatment.name} ({b / a - 1:+.1%})"
        found.append(Doubt("unequal_work", f"unequal work: {said}" if a else f"unequal work: 0 against {b:g} {what}"))
    return found


def unequal_failures(baseline: ArmEvidence, treatment: ArmEvidence, *, is_latency: bool = False) -> Doubt | None:
    """A server that refuses work is not faster: an arm with more failures cannot win, least of all on latency."""
    rates = [sum(not s.ok for s in arm.samples) / max(1, len(arm.samples)) for arm in (baseline, treatment)]
    allowed = min(baseline.allowed_error_rate, treatment.allowed_error_rate)
    if max(rates) <= allowed or (rates[0] == rates[1] and not (is_latency and rates[1] > 0)):
        return None
    shown = ", ".join(
        f"{arm.name} {sum(s.ok for s in arm.samples)}/{len(arm.samples)}" for arm in (baseline, treatment)
    )
    return Doubt("unequal_failures", f"requests that succeeded: {shown}; refused work makes no arm faster")


def cap_hits(baseline: ArmEvidence, treatment: ArmEvidence) -> Doubt | None:
    """The share of answers cut off at the token limit, where answers may end by themselves."""
    shares = []
    for arm in (baseline, treatment):
        reasons = [s.finish_reason for s in arm.samples if s.ok and s.finish_reason]
        if not reasons:
            return None
        shares.append(100 * sum(r == "length" for r in reasons) / len(reasons))
    if abs(shares[0] - shares[1]) <= CAP_HITS_POINTS:
        return None
    said = f"{shares[0]:.1f} % of answers cut off in {baseline.name}, {shares[1]:.1f} % in {treatment.name}"
    return Doubt("cap_hits", f"not comparable: {said}")


def clocks(baseline: ArmEvidence, treatment: ArmEvidence) -> Doubt | None:
    if not baseline.sm_clocks_mhz or not treatment.sm_clocks_mhz:
        return None
    a, b = fmean(baseline.sm_clocks_mhz), fmean(treatment.sm_clocks_mhz)
    if abs(a - b) / max(a, b) <= CLOCK_DIFFERENCE:
        return None
    said = f"{a:.0f} MHz in {baseline.name}, {b:.0f} MHz in {treatment.name} ({b / a - 1:+.1%})"
    return Doubt("clocks", f"the GPUs ran at different clocks: {said}")


def different_clients(baseline: ArmEvidence, treatment: ArmEvidence) -> Doubt | None:
    if baseline.client is None or treatment.client is None or baseline.client == treatment.client:
        return None
    said = f"{baseline.name} by {baseline.client}, {treatment.name} by {treatment.client}"
    return Doubt("clients", f"measured by different clients: {said}")


def settings_differ(baseline: ArmEvidence, treatment: ArmEvidence, treated: Sequence[str] = ()) -> list[Doubt]:
    """Settings as the servers resolved them, beyond those that were to differ. What one side does not tell is left."""
    shared = baseline.resolved.keys() & treatment.resolved.keys()
    return [
        Doubt("settings", f"{name} is {baseline.resolved[name]} in {baseline.name}, {treatment.resolved[name]} in "
              f"{treatment.name}, beyond the treatment")
        for name in sorted(shared - set(treated))
        if baseline.resolved[name] != treatment.resolved[name]
    ]  # fmt: skip


def _outputs(arm: ArmEvidence) -> list[int]:
    return [s.output_tokens for s in arm.samples if s.ok and s.output_tokens is not None]


def _prompts(arm: ArmEvidence) -> list[int]:
    return [s.prompt_tokens for s in arm.samples if s.ok and s.prompt_tokens is not None]


def _mean(values: Sequence[int | None]) -> float | None:
    numbers = [v for v in values if v is not None]
    return fmean(numbers) if numbers else None
