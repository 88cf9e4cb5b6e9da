"""Candidates for the ranking, from what playbook, findings and probes say of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.core import planning
from orchestrator.core.budget import experiment_cost_s
from orchestrator.core.latency import Ceiling, Effect, LatencyBudget, lever_odds, most_gain
from orchestrator.core.latency import after_probe as odds_after_probe
from orchestrator.core.todo import record_without

if TYPE_CHECKING:
    from orchestrator.controller.session import HostSession
    from orchestrator.core.model import Bottleneck, Hypothesis, Playbook, Probe, Pull
    from orchestrator.core.records import FindingRecord
    from orchestrator.ledger import Ledger

PROBE = "probe"
"""Phase of the event that a probe leaves."""

STATED_LAUNCH_S = 900.0
LAUNCHES = 3.0
"""What a launch costs until one was seen, and how many a hypothesis takes: the same for all, so that it orders nothing
by chance."""


def weigh_rows(
    ledger: Ledger,
    playbook: Playbook,
    host: str,
    hypotheses: Mapping[str, Hypothesis],
    pins: Mapping[str, float | None],
) -> list[planning.Candidate]:
    findings = ledger.findings(playbook.campaign, host=host)
    won = {f.hypothesis_id: f for f in findings if f.reopened_at is None}
    members = [
        planning.Member(row.id, row.family, won[row.id].verdict if row.id in won else None)
        for row in ledger.todo(playbook.campaign)
    ]
    known = [x.ready_s for x in ledger.launches(host=host) if x.ready_s is not None]
    cost_s = experiment_cost_s(known, STATED_LAUNCH_S, LAUNCHES)
    factors = probe_factors(ledger, host, playbook)
    return [
        planning.weigh(
            h.id,
            expected=h.expect,
            ceiling=limit.gain if (limit := ceiling(playbook, h)) is not None else None,
            record=record_without(members, h.id, h.family),
            lever_odds=odds_of_lever(playbook, h, findings, hypotheses),
            probe_factor=factors.get(h.id, 1.0),
            cost_s=cost_s,
            after=h.after,
            pin=pins.get(h.id),
        )
        for h in hypotheses.values()
    ]


# ---------------------------------------------------------------- the bottleneck


def budget_of(bottleneck: Bottleneck) -> LatencyBudget:
    return LatencyBudget(bottleneck.calls, bottleneck.cost * 1000, bottleneck.rest * 1000)


def bottleneck_context(playbook: Playbook) -> str | None:
    """The context that the bottleneck describes; None where none is stated."""
    if playbook.bottleneck is None:
        return None
    return playbook.bottleneck.context or next(iter(playbook.contexts))


def ceiling(playbook: Playbook, hypothesis: Hypothesis) -> Ceiling | None:
    """What the hypothesis could gain at most; None where playbook or hypothesis say nothing of it."""
    if playbook.bottleneck is None or hypothesis.pull is None:
        return None
    return most_gain(budget_of(playbook.bottleneck), _effect(hypothesis.pull))


def _effect(pull: Pull) -> Effect:
    return Effect(
        calls=pull.calls,
        cost_ms=None if pull.cost is None else pull.cost * 1000,
        rest_ms=None if pull.rest is None else pull.rest * 1000,
        extra_ms=pull.extra * 1000,
        lever=pull.lever or "",
    )


def odds_of_lever(
    playbook: Playbook,
    hypothesis: Hypothesis,
    findings: Sequence[FindingRecord],
    hypotheses: Mapping[str, Hypothesis],
) -> float | None:
    """What measured effects of others on the same lever say; None where none was measured."""
    if hypothesis.pull is None or playbook.bottleneck is None:
        return None
    realised: list[tuple[float, float]] = []
    everyone = {h.id: h for h in playbook.hypotheses} | dict(hypotheses)
    for finding in findings:
        other = everyone.get(finding.hypothesis_id or "")
        if other is None or other.id == hypothesis.id or other.pull is None or finding.effect is None:
            continue
        limit = ceiling(playbook, other)
        if limit is not None and other.pull.lever == hypothesis.pull.lever:
            realised.append((finding.effect, limit.gain))
    return lever_odds(realised) if realised else None


# ---------------------------------------------------------------- probes


def probe_factors(ledger: Ledger, host: str, playbook: Playbook) -> dict[str, float]:
    """Hypothesis → what a probe has left of its odds, 1 at the most."""
    factors: dict[str, float] = {}
    after = 0
    while page := ledger.events(after=after, host=host, phase=PROBE):
        for event in page:
            if event.data.get("campaign") == playbook.campaign:
                factors[str(event.data["hypothesis"])] = float(event.data["factor"])
        after = page[-1].seq
    return factors


def run_probes(session: HostSession, ledger: Ledger, playbook: Playbook, due: Sequence[str], run_id: int) -> None:
    """Probes of hypotheses that are due and were not probed yet. Nothing of ours runs on the host beside them."""
    known = probe_factors(ledger, session.name, playbook)
    for hypothesis in playbook.hypotheses:
        if hypothesis.probe is None or hypothesis.id in known or hypothesis.id not in due:
            continue
        session.narrator.phase(session.name, "probe", hypothesis.id)
        value = measure_probe(session, hypothesis.probe)
        factor, sentence = judge_probe(hypothesis.probe, value)
        data = {"campaign": playbook.campaign, "hypothesis": hypothesis.id, "value": value, "factor": factor}
        ledger.note(PROBE, {**data, "sentence": sentence}, host=session.name, run_id=run_id)
        session.narrator.note(f"probe of {hypothesis.id}: {sentence}")


def measure_probe(session: HostSession, probe: Probe) -> float | None:
    """The number that the command printed, or None where it printed none or failed."""
    words = [word.replace("{python}", session.target.python) for word in probe.command]
    command = {"name": "probe", "argv": words, "env": dict(session.base_env), "timeout_s": probe.timeout}
    reply = session.connection.call("run", {"commands": [command]}, timeout_s=probe.timeout + 30.0)["probe"]
    found = re.search(probe.pattern, str(reply.get("stdout", ""))) if reply.get("rc") == 0 else None
    return float(found.group(1)) if found else None


def judge_probe(probe: Probe, value: float | None) -> tuple[float, str]:
    """What is left of the odds, and the sentence. A probe that told nothing changes nothing. Pure."""
    if value is None or value <= 0:
        return 1.0, "it told no number; the odds stay"
    predicted, probed = probe.now / probe.then - 1, probe.now / value - 1
    factor = odds_after_probe(1.0, predicted, probed)
    word = "holds" if factor >= 1.0 else f"leaves {factor:.0%} of the odds"
    return factor, f"{value:g}, now it is {probe.now:g} and {probe.then:g} was assumed: {word}"
