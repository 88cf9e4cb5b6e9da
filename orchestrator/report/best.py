"""Which configuration won, by context: one rule for runs, reports and what is kept on a host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.core.records import FindingRecord, Verdict

SCREENED = "screened"
"""How the evidence of a finding begins that rests on one launch of an arm."""


@dataclass(frozen=True)
class Best:
    """`finding` None: nothing was better than the baseline."""

    host: str
    context: str
    finding: FindingRecord | None


def best_of(findings: Iterable[FindingRecord]) -> Sequence[Best]:
    """For each host and context the improvement with the best measured value; the last such where they are equal.

    Of several findings on one hypothesis the last one counts: a screened win that was measured in full since is what
    that came to.
    """
    everything = list(findings)
    places: dict[tuple[str, str], FindingRecord | None] = {(f.host, f.context): None for f in everything}
    for finding in latest(everything):
        place = (finding.host, finding.context)
        current = places[place]
        if finding.verdict is Verdict.improved and (current is None or _value(finding) >= _value(current)):
            places[place] = finding
    return [Best(host, context, finding) for (host, context), finding in sorted(places.items(), key=lambda p: p[0])]


def latest(findings: Iterable[FindingRecord]) -> list[FindingRecord]:
    """The last finding on each hypothesis in each host and context, in the order of those. One that says nothing of
    the hypothesis (`invalid`, `aborted`) does not replace one that does."""
    last: dict[tuple[str, str, str | None], FindingRecord] = {}
    for finding in findings:
        key = (finding.host, finding.context, finding.hypothesis_id)
        if finding.verdict in (Verdict.invalid, Verdict.aborted) and key in last:
            continue
        last.pop(key, None)
        last[key] = finding
    return list(last.values())


def is_screened(finding: FindingRecord) -> bool:
    """Whether it rests on one launch of an arm."""
    return any(line.startswith(SCREENED) for line in finding.evidence)


def _value(finding: FindingRecord) -> tuple[float, float]:
    """Larger is better. Values of a treatment compare directly; without one the effect has to do."""
    effect = finding.effect or 0.0
    if finding.treatment is None:
        return (float("-inf"), effect)
    return (finding.treatment if finding.direction == "higher" else -finding.treatment, effect)
