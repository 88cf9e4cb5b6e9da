"""Limits that a better metric may not break: which were broken, by how much, and what that makes of a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.core.measures import HIGHER_IS_BETTER, Guard, Guards
from orchestrator.core.records import Conclusion, Verdict

_EXTREMES = frozenset({"memory_mib"})
"""Of several launches the worst counts, not the mean."""


@dataclass(frozen=True)
class Breach:
    """`baseline` None: it was not measured there. `gain`: of the treatment in this metric, negative."""

    name: str
    baseline: float | None
    treatment: float
    bound: float
    gain: float
    sentence: str


def arm_values(launches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Values of several launches of one arm → one of each metric."""
    names = {name for launch in launches for name in launch}
    found = {name: [launch[name] for launch in launches if name in launch] for name in names}
    return {name: max(values) if name in _EXTREMES else fmean(values) for name, values in found.items()}


def breaches(
    guardrails: Guards, baseline: Mapping[str, float], treatment: Mapping[str, float]
) -> tuple[list[Breach], list[str]]:
    """Broken limits, and what could not be held against one. A limit that the baseline breaks as much is no breach of
    the treatment's, and is said."""
    broken: list[Breach] = []
    said: list[str] = []
    for name, guard in guardrails.items():
        before, now = baseline.get(name), treatment.get(name)
        bound = _bound(name, guard, before)
        if now is None or bound is None:
            side = "treatment" if now is None else "baseline"
            said.append(f"guardrail {name}: not measured in the {side}, so nothing says that it holds")
        elif _is_worse(name, now, bound):
            if before is not None and _is_worse(name, before, bound) and not _is_worse(name, now, before):
                said.append(
                    f"guardrail {name}: {now:g} breaks the limit of {bound:g}, as the baseline's {before:g} does"
                )
            else:
                broken.append(_breach(name, guard, before, now, bound))
    return broken, said


def hold(conclusion: Conclusion, broken: Sequence[Breach], said: Sequence[str]) -> Conclusion:
    """The conclusion with what the guardrails say. An improvement that breaks one has `regressed`, in its metric."""
    sentences = (*(breach.sentence for breach in broken), *said)
    evidence = (*conclusion.evidence, *sentences)
    if not broken or conclusion.verdict is not Verdict.improved:
        return conclusion.model_copy(update={"evidence": evidence})
    breach = broken[0]
    summary = f"regressed, since it breaks a guardrail: {breach.sentence}; {conclusion.summary}"
    return Conclusion.model_validate(
        {
            **dict(conclusion),
            "verdict": Verdict.regressed,
            "summary": summary,
            "metric": breach.name,
            "direction": "higher" if breach.name in HIGHER_IS_BETTER else "lower",
            "effect": breach.gain,
            "low": None,
            "high": None,
            "confidence": None,
            "baseline": breach.baseline,
            "treatment": breach.treatment,
            "cause": breach.sentence,
            "evidence": (conclusion.summary, *evidence),
            "closes": True,
        }
    )


def _bound(name: str, guard: Guard, baseline: float | None) -> float | None:
    if guard.limit is not None:
        return guard.limit
    if baseline is None or guard.worse is None:
        return None
    return baseline * (1 - guard.worse) if name in HIGHER_IS_BETTER else baseline * (1 + guard.worse)


def _is_worse(name: str, value: float, bound: float) -> bool:
    return value < bound if name in HIGHER_IS_BETTER else value > bound


def _breach(name: str, guard: Guard, before: float | None, now: float, bound: float) -> Breach:
    reference = before if before else bound
    is_more_better = name in HIGHER_IS_BETTER
    gain = now / reference - 1 if is_more_better and reference else reference / now - 1 if now else -1.0
    word = "at least" if is_more_better else "at most"
    asked = f"{bound:g}" if guard.limit is not None else f"{bound:g} ({guard.worse:.0%} worse than the baseline)"
    was = "" if before is None else f"{before:g} → "
    return Breach(name, before, now, bound, min(gain, -1e-9), f"{name} is {was}{now:g}, {word} {asked} is allowed")
