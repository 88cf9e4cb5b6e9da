"""Two arms beside each other: may they be compared, and does the treatment keep the guardrails?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.core.contamination import UNEQUAL_TOKENS, Doubt, doubts_of_pair
from orchestrator.core.guardrails import arm_values, breaches, hold
from orchestrator.serving.evidence import evidence_of
from orchestrator.serving.settings import patched_names, treated_names

if TYPE_CHECKING:
    from orchestrator.controller.arm import ArmResult
    from orchestrator.controller.treatment import Treatment
    from orchestrator.core.measures import Guards, Measure, Workload
    from orchestrator.core.records import Conclusion

_LATENCY = ("ttft", "itl", "e2e")


def doubts_between(
    baseline: ArmResult,
    result: ArmResult,
    treatment: Treatment,
    *,
    workload: Workload,
    measure: Measure,
    guardrails: Guards,
) -> list[Doubt]:
    """What makes two measured launches unfit to be compared, and caveats. `baseline`: the last launch of its arm."""
    rate = guardrails.get("error_rate")
    allowed = rate.limit or 0.0 if rate is not None else 0.0
    a, b = (
        evidence_of(name, one.samples, one.record, workload, one.resolved, allowed_error_rate=allowed)
        for name, one in (("baseline", baseline), ("treatment", result))
    )
    treated = treated_names(a.resolved, b.resolved, treatment.expectation.flags, measure.may_differ)
    apart = [n for n in a.resolved.keys() & b.resolved.keys() if a.resolved[n] != b.resolved[n] and n not in treated]
    treated += patched_names(apart, ((edit.path, edit.before, edit.after) for edit in treatment.files))
    found = doubts_of_pair(a, b, treated=treated, is_latency=measure.metric.startswith(_LATENCY))
    return [*found, *_unequal_totals(baseline, result)]


def why_incomparable(doubts: Sequence[Doubt]) -> str | None:
    """One sentence of all that blocks, or None."""
    return "; ".join(doubt.sentence for doubt in doubts if doubt.blocks) or None


def hold_guardrails(
    conclusion: Conclusion,
    guardrails: Guards,
    baseline: Sequence[ArmResult],
    treatment: Sequence[ArmResult],
) -> Conclusion:
    """The conclusion with what the guardrails and the caveats of its launches say."""
    arms = [arm_values([r.record.values for r in arm if r.record is not None]) for arm in (baseline, treatment)]
    broken, said = breaches(guardrails, *arms)
    caveats = dict.fromkeys(caveat for result in treatment for caveat in result.caveats)
    return hold(conclusion, broken, [*said, *caveats])


def _unequal_totals(baseline: ArmResult, result: ArmResult) -> list[Doubt]:
    """Of clients that list no requests: tokens of a request by their totals."""
    if baseline.samples or result.samples:
        return []
    found = []
    for what in ("prompt", "output"):
        a, b = (_tokens_a_request(one, what) for one in (baseline, result))
        if a is not None and b is not None and max(a, b) > 0 and abs(a - b) / max(a, b) > UNEQUAL_TOKENS:
            said = f"unequal work: {a:g} {what} tokens a request in baseline, {b:g} in treatment"
            found.append(Doubt("unequal_work", said))
    return found


def _tokens_a_request(result: ArmResult, what: str) -> float | None:
    record = result.record
    if record is None or not record.requests:
        return None
    total = record.prompt_tokens if what == "prompt" else record.output_tokens
    return None if total is None else total / record.requests
