"""A verdict on one treatment: launches of both arms in turn, looked at whenever there are equally many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.controller.comparing import doubts_between, hold_guardrails, why_incomparable
from orchestrator.controller.conclude import conclude_failure, conclude_measured
from orchestrator.controller.launcher import values_of
from orchestrator.core.launches import interleaved, is_look, next_arm
from orchestrator.core.records import LaunchOutcome
from orchestrator.core.stats import judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.controller.arm import ArmResult
    from orchestrator.controller.launcher import Changes, Launcher
    from orchestrator.controller.treatment import Treatment
    from orchestrator.core.model import Hypothesis
    from orchestrator.core.records import ArmKind, Conclusion, ExperimentRecord
    from orchestrator.core.stats import Judgement, LaunchValue

IN_FULL = "measured in full: more than one launch of each arm"
FEWEST_IN_FULL = 2


def judge_treatment(
    launcher: Launcher,
    experiment: ExperimentRecord,
    hypothesis: Hypothesis,
    treatment: Treatment,
    changes: Changes,
    facts: Mapping[str, str],
    *,
    recorded: list[ArmResult],
    in_full: bool = False,
) -> Conclusion:
    """Launch A B B A … until the statistics have seen enough. `recorded`: launches of the treatment that an earlier
    process carried out for this; they are not done again. `in_full`: one launch of an arm is never enough."""
    context = experiment.context
    results: list[ArmResult] = []
    while True:
        paired = pair(launcher, context, results)
        kind: ArmKind = next_arm(len(paired), len(results))
        if kind == "baseline":
            launcher.measure_baseline(context, experiment)
        else:
            result = _next_treatment(launcher, experiment, treatment, changes, recorded)
            failed = _failure(launcher, experiment, hypothesis, treatment, result, facts)
            if failed is not None:
                return failed
            results.append(result)
        paired = pair(launcher, context, results)
        if not is_look(len(paired), len(results)):
            continue
        judgement = look(launcher, context, paired, results, in_full=in_full)
        if not judgement.needs_more:
            counts = len(paired), len(results)
            conclusion = conclude_measured(hypothesis, judgement, launcher.playbook.measure, counts, results[-1], facts)
            evidence = (*conclusion.evidence, *([IN_FULL] if in_full else []))
            conclusion = conclusion.model_copy(update={"evidence": evidence})
            known = launcher.baselines[context].current
            return hold_guardrails(conclusion, launcher.playbook.guardrails, known, results)
        launcher.session.narrator.note(f"#{experiment.id} {hypothesis.id} ({context}): interim: {judgement.reason}")


def pair(launcher: Launcher, context: str, results: list[ArmResult]) -> list[LaunchValue]:
    """The baseline launches that stand beside these of the treatment."""
    values = launcher.baselines[context].values()
    return interleaved(values, values_of(results)) if results else values[-1:]


def look(
    launcher: Launcher, context: str, paired: list[LaunchValue], results: list[ArmResult], *, in_full: bool
) -> Judgement:
    measure = launcher.playbook.measure
    return judge(
        paired,
        values_of(results),
        direction=measure.direction,
        min_effect=measure.min_effect,
        max_launches=max(FEWEST_IN_FULL, measure.launches) if in_full else measure.launches,
        stored=launcher.stored_noise(context),
        prior_between_cv=launcher.prior_cv(context, results),
        screening=measure.screening and not in_full,
    )


def _next_treatment(
    launcher: Launcher,
    experiment: ExperimentRecord,
    treatment: Treatment,
    changes: Changes,
    recorded: list[ArmResult],
) -> ArmResult:
    if recorded:
        return recorded.pop(0)
    return launcher.run_arm(experiment, "treatment", experiment.context, treatment, changes)


def _failure(
    launcher: Launcher,
    experiment: ExperimentRecord,
    hypothesis: Hypothesis,
    treatment: Treatment,
    result: ArmResult,
    facts: Mapping[str, str],
) -> Conclusion | None:
    """What a launch that was not measured, or did other work than the baseline, comes to."""
    if not result.is_measured:
        launcher.fail()
        treated = [name for names in treatment.changed_names.values() for name in names]
        return conclude_failure(hypothesis, result, facts, launcher.since_last_good(experiment, result, treated))
    incomparable = compare(launcher, experiment.context, treatment, result)
    if incomparable is not None:
        result.outcome, result.reason = LaunchOutcome.invalid, incomparable
        return conclude_failure(hypothesis, result, facts)
    return None


def compare(launcher: Launcher, context: str, treatment: Treatment, result: ArmResult) -> str | None:
    """Why the launch cannot be compared with the baseline, or None. Caveats are kept with the launch."""
    known = launcher.baselines[context].current
    if not known:
        return None
    playbook = launcher.playbook
    doubts = doubts_between(
        known[-1],
        result,
        treatment,
        workload=launcher.workload(context),
        measure=playbook.measure,
        guardrails=playbook.guardrails,
    )
    result.caveats += [doubt.sentence for doubt in doubts if not doubt.blocks]
    return why_incomparable(doubts)
