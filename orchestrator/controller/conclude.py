"""Results → conclusions: the verdict, its effect, its cause, and the facts it depends on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.controller.changesets import fact_of
from orchestrator.core import planning
from orchestrator.core.records import Conclusion, LaunchOutcome, Verdict

if TYPE_CHECKING:
    from orchestrator.controller.arm import ArmResult
    from orchestrator.core.model import Hypothesis, Measure
    from orchestrator.core.stats import Judgement

_VERDICTS: Mapping[LaunchOutcome, Verdict] = {
    LaunchOutcome.exited: Verdict.crashed,
    LaunchOutcome.generation_failed: Verdict.crashed,
    LaunchOutcome.hung: Verdict.hung,
    LaunchOutcome.timeout: Verdict.hung,
    LaunchOutcome.wrong_output: Verdict.wrong_output,
    LaunchOutcome.not_effective: Verdict.not_effective,
    LaunchOutcome.invalid: Verdict.invalid,
    LaunchOutcome.stranger: Verdict.invalid,
    LaunchOutcome.wrong_server: Verdict.invalid,
    LaunchOutcome.auth_required: Verdict.invalid,
}
_CLOSING = frozenset(
    {
        Verdict.regressed,
        Verdict.no_effect,
        Verdict.crashed,
        Verdict.hung,
        Verdict.wrong_output,
        Verdict.not_effective,
        Verdict.not_applicable,
    }
)
_ALWAYS = ("engine", "model", "gpu_arch")


def depends_on(hypothesis: Hypothesis, facts: Mapping[str, str], verdict: Verdict | None = None) -> dict[str, str]:
    """The facts whose change would reopen a finding: those the hypothesis names, what it requires, the basics, what it
    changes, and what it was tried under: a failure does not hang on how speed is measured, an effect does, and what
    could not be decided hangs on how much evidence was asked for."""
    names = [*_ALWAYS, *hypothesis.revisit_when, *hypothesis.requires.packages]
    tried_under = [fact_of(hypothesis.id), "target", *(n for n in facts if n.startswith(planning.CONTEXT_FACT))]
    if verdict is not None and verdict.is_measured:
        tried_under += ["workload", "measure"]
    if verdict is Verdict.inconclusive:
        tried_under.append("effort")
    names += [name for name in tried_under if name in facts]
    return {name: facts.get(name, "absent") for name in dict.fromkeys(names)}


def conclude_not_applicable(hypothesis: Hypothesis, evidence: str, facts: Mapping[str, str]) -> Conclusion:
    return Conclusion(
        verdict=Verdict.not_applicable,
        summary=f"not applicable: {evidence}",
        cause=evidence,
        evidence=(evidence,),
        closes=True,
        depends_on=depends_on(hypothesis, facts),
    )


def conclude_failure(
    hypothesis: Hypothesis, result: ArmResult, facts: Mapping[str, str], since: Sequence[str] = ()
) -> Conclusion:
    """A launch that was not measured. Its cause is the line of the log that shows it, where there is one. `since`: what
    is not as it was at the last good launch."""
    verdict = _VERDICTS.get(LaunchOutcome(result.outcome), Verdict.aborted)
    diagnosis = result.diagnosis
    evidence = [result.reason] if result.reason else []
    if diagnosis is not None and diagnosis.remedy:
        evidence.append(f"remedy: {diagnosis.remedy}")
    if diagnosis is not None and diagnosis.suspects:
        evidence.append(f"implicates {', '.join(diagnosis.suspects)}")
    if result.exit_code is not None or result.signal is not None:
        ended = f"signal {result.signal}" if result.signal else f"exit code {result.exit_code}"
        evidence.append(f"the server ended with {ended}")
    evidence += since
    return Conclusion(
        verdict=verdict,
        summary=f"{verdict.value.replace('_', ' ')}: {result.reason or 'no cause seen'}",
        cause=result.reason or None,
        evidence=tuple(evidence),
        closes=verdict in _CLOSING,
        depends_on=depends_on(hypothesis, facts),
    )


def conclude_measured(
    hypothesis: Hypothesis,
    judgement: Judgement,
    measure: Measure,
    launches: tuple[int, int],
    result: ArmResult,
    facts: Mapping[str, str],
) -> Conclusion:
    """`launches`: of the baseline and of the treatment."""
    evidence = [judgement.reason]
    if judgement.screened:
        evidence.append("screened: one launch of an arm stands behind it")
    if result.gate is not None:
        evidence.append(result.gate.sentence)
    return Conclusion(
        verdict=judgement.verdict,
        summary=_summary(judgement, measure),
        metric=measure.metric,
        direction=measure.direction,
        effect=judgement.gain,
        low=judgement.gain_low,
        high=judgement.gain_high,
        confidence=judgement.confidence,
        baseline=judgement.baseline,
        treatment=judgement.treatment,
        baseline_launches=launches[0],
        treatment_launches=launches[1],
        evidence=tuple(evidence),
        closes=judgement.verdict in _CLOSING,
        depends_on=depends_on(hypothesis, facts, judgement.verdict),
    )


def _summary(judgement: Judgement, measure: Measure) -> str:
    word = judgement.verdict.value.replace("_", " ")
    if judgement.gain is None or judgement.baseline is None or judgement.treatment is None:
        return f"{word}: {judgement.reason}"
    interval = ""
    if judgement.gain_low is not None and judgement.gain_high is not None:
        interval = f" [{judgement.gain_low:+.1%}, {judgement.gain_high:+.1%}]"
    values = f"{judgement.baseline:.2f} → {judgement.treatment:.2f} {measure.metric}"
    return f"{word} {judgement.gain:+.1%}{interval}, {values}" + (", screened" if judgement.screened else "")
