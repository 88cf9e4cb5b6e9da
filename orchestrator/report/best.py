"""Which configuration won, by context."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.core.records import FindingRecord, Verdict


@dataclass(frozen=True)
class Best:
    """`finding` None: nothing was better than the baseline."""

    host: str
    context: str
    finding: FindingRecord | None


def best_of(findings: Iterable[FindingRecord]) -> Sequence[Best]:
    """For each host and context the improvement with the best measured value; the last such where they are equal."""
    places: dict[tuple[str, str], FindingRecord | None] = {}
    for finding in findings:
        place = (finding.host, finding.context)
        current = places.setdefault(place, None)
        if finding.verdict is Verdict.improved and (current is None or _value(finding) >= _value(current)):
            places[place] = finding
    return [Best(host, context, finding) for (host, context), finding in sorted(places.items(), key=lambda p: p[0])]


def _value(finding: FindingRecord) -> tuple[float, float]:
    """Larger is better. Values of a treatment compare directly; without one the effect has to do."""
    effect = finding.effect or 0.0
    if finding.treatment is None:
        return (float("-inf"), effect)
    return (finding.treatment if finding.direction == "higher" else -finding.treatment, effect)
