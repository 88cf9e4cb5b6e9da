"""From a reading to a diagnosis.

The earliest root beats the last traceback. A root is preferred to a vaguer one, and both to what victims print.
Within one chain of tracebacks the most telling line is taken. Where nothing is a root, the answer is honest: a
symptom, a standstill, a quiet degradation, a healthy server, or "unknown".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.core.diagnosis.lines import Line
from orchestrator.core.diagnosis.memory import killed_category, oom_category, oom_explanation
from orchestrator.core.diagnosis.model import Certainty, Diagnosis, Evidence, Outcome
from orchestrator.core.diagnosis.reading import Hit, Reading
from orchestrator.core.diagnosis.signature import Role
from orchestrator.core.diagnosis.stillness import idle_since, is_still_moving, slow_peer, standing_line
from orchestrator.core.diagnosis.suspicion import Changes, Touched, named_suspects, quoted_suspects, touched_by
from orchestrator.core.diagnosis.undecided import KILLED, OOM, UNSPECIFIC
from orchestrator.core.diagnosis.unspecific import category_by_frames

_SPECIFIC = 3
"""Weight from which a hit counts as a specific cause."""

_RETOLD = "Worker failed with error"
"""vLLM's engine repeats the worker's message behind these words."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is asked: the reading, and what was changed before this start."""

    reading: Reading
    exit_code: int | None
    changed_paths: Changes
    changed_names: Changes


def judge(case: Case) -> Diagnosis:
    """The verdict."""
    reading = case.reading
    roots = [hit for hit in reading.hits if hit.signature.role is Role.ROOT]
    symptoms = [hit for hit in reading.hits if hit.signature.role is Role.SYMPTOM]
    roots = _without_teardown(reading, roots)
    symptoms = _without_teardown(reading, symptoms)
    patched = _patched(case, roots, symptoms)
    if patched is not None:
        return patched
    roots = _unsurvived(reading, roots)
    symptoms = _unsurvived(reading, symptoms)
    root = _choose_root(reading, roots, symptoms)
    if root is not None:
        return _of_hit(case, root)
    if symptoms:
        return _of_hit(case, _choose_symptom(symptoms))
    return _quiet(case)


def _without_teardown(reading: Reading, hits: Sequence[Hit]) -> list[Hit]:
    """Leave out what was printed after somebody asked a serving server to end."""
    asked = reading.shutdown_number
    if asked is None or not any(n < asked for n in reading.ready_numbers):
        return list(hits)
    return [hit for hit in hits if hit.number < asked or hit.signature.sticky]


def _unsurvived(reading: Reading, hits: Sequence[Hit]) -> list[Hit]:
    """Leave out what the server got over: it came up or answered afterwards and never said that it was lost."""
    last_ready = max(reading.ready_numbers, default=0)
    last_answer = max(reading.answer_numbers, default=0)
    kept = []
    for hit in hits:
        lost_later = any(number >= hit.number for number in reading.lost_numbers)
        survived = max(last_ready, last_answer) > hit.number and not lost_later
        if hit.signature.sticky or not survived:
            kept.append(hit)
    return kept


def _tier(hit: Hit) -> int:
    return min(hit.signature.weight, _SPECIFIC)


def _first(hits: Sequence[Hit]) -> Hit:
    """The earliest hit by the clock where the same kind of clock was printed, else by place in the file."""
    first = min(hits, key=lambda hit: hit.number)
    stamp, clock = first.time
    if not stamp:
        return first
    return min((hit for hit in hits if hit.time[1] == clock), key=lambda hit: (hit.time[0], hit.number))


def _choose_root(reading: Reading, roots: Sequence[Hit], symptoms: Sequence[Hit]) -> Hit | None:
    if not roots:
        return None
    own = [hit for hit in roots if _RETOLD not in hit.line.text]
    roots = own or roots
    best = max(_tier(hit) for hit in roots)
    first = _first([hit for hit in roots if _tier(hit) == best])
    if best == 1 and symptoms:
        # A vague exception that comes after a victim's line is one more consequence.
        symptom = min(symptoms, key=lambda hit: hit.number)
        if symptom.number <= first.number and symptom.signature.weight > 0:
            return None
    if first.block is None:
        same_line = [hit for hit in roots if hit.number == first.number]
        return max(same_line, key=lambda hit: hit.signature.weight)
    together = [hit for hit in roots if hit.block is not None and hit.block.chain == first.block.chain]
    weight = max(hit.signature.weight for hit in together)
    return next(hit for hit in together if hit.signature.weight == weight)


def _choose_symptom(symptoms: Sequence[Hit]) -> Hit:
    """The strongest; within the chain of a victim the last line, which is what the victim reported."""
    best = max(hit.signature.weight for hit in symptoms)
    first = next(hit for hit in symptoms if hit.signature.weight == best)
    if first.block is None:
        return first
    chain = [
        hit
        for hit in symptoms
        if hit.signature is first.signature and hit.block is not None and hit.block.chain == first.block.chain
    ]
    return chain[-1]


def _patched(case: Case, roots: Sequence[Hit], symptoms: Sequence[Hit]) -> Diagnosis | None:
    """A traceback through a changed file says so before any signature does, unless a victim printed it."""
    if not case.changed_paths:
        return None
    reading = case.reading
    victims = {hit.block.chain for hit in symptoms if hit.block is not None}
    causes = {hit.block.chain for hit in roots if hit.block is not None and hit.signature.weight > 1}
    touched: list[Touched] = []
    for block in reading.layout.blocks:
        if block.noise or block.level in ("INFO", "WARNING") or not block.exceptions:
            continue
        if block.chain in victims - causes:
            continue
        if (found := touched_by(block, case.changed_paths)) is not None:
            touched.append(found)
    touched = [t for t in touched if not _survived_block(reading, t.block.exceptions[0])]
    if not touched:
        return None
    first = touched[0]
    near = [hit for hit in roots if hit.block is not None and hit.block.chain == first.block.chain]
    line = reading.line(first.block.exceptions[0])
    certainty: Certainty = "certain" if first.distance <= 1 else "likely"
    hit = max(near, key=lambda h: h.signature.weight, default=None)
    if hit is None:
        return _diagnosis(
            case,
            line,
            "failed",
            "patch_error",
            certainty,
            "an error in a file that was changed",
            "correct or revert the change",
            first.changes,
        )
    category = _category(reading, hit)
    if hit.signature.category == UNSPECIFIC or hit.signature.id in ("code.name", "abi.kernel-name", "abi.signature"):
        category, hit_line = "patch_error", line
    else:
        hit_line = hit.line
    others = [s for s in named_suspects(reading, hit, case.changed_names) if s not in first.changes]
    return _diagnosis(
        case,
        hit_line,
        hit.signature.outcome,
        category,
        certainty,
        hit.signature.cause,
        "correct or revert the change: a frame of the error lies in a changed file",
        (*first.changes, *others),
        hit.signature.id,
    )


def _survived_block(reading: Reading, number: int) -> bool:
    later_ready = any(n > number for n in reading.ready_numbers)
    return later_ready and not any(n >= number for n in reading.lost_numbers)


def _category(reading: Reading, hit: Hit) -> str:
    category = hit.signature.category
    if category == OOM:
        return oom_category(reading, hit)
    if category == KILLED:
        return killed_category(reading, hit)
    if category == UNSPECIFIC:
        return category_by_frames(reading.frames(hit.block)) if hit.block else "unknown"
    return category


def _of_hit(case: Case, hit: Hit) -> Diagnosis:
    reading, signature = case.reading, hit.signature
    category, cause, remedy, line = _category(reading, hit), signature.cause, signature.remedy, hit.line
    if signature.category == OOM:
        cause, remedy = oom_explanation(category, line.text)
    if signature.id in ("net.gloo-timeout", "nccl.timeout") and (slow := slow_peer(reading, hit)) is not None:
        category, line = "peer_slow", slow
        cause = "a rank was still at work, far behind the others, when the wait ran out"
    outcome: Outcome = signature.outcome
    suspects = dict.fromkeys(
        (*quoted_suspects(line.text, case.changed_paths), *named_suspects(reading, hit, case.changed_names))
    )
    return _diagnosis(case, line, outcome, category, signature.certainty, cause, remedy, tuple(suspects), signature.id)


def _diagnosis(
    case: Case,
    line: Line | None,
    outcome: Outcome,
    category: str,
    certainty: Certainty,
    cause: str,
    remedy: str,
    suspects: Sequence[str] = (),
    signature: str | None = None,
) -> Diagnosis:
    reading = case.reading
    return Diagnosis(
        outcome=outcome,
        category=category,
        cause_line=line.raw.strip() if line is not None else None,
        cause_lineno=line.number if line is not None else None,
        rank=reading.layout.rank.get(line.number) if line is not None else None,
        certainty=certainty,
        cause=cause,
        remedy=remedy,
        suspects=tuple(suspects),
        last_phase=reading.last_phase,
        signature=signature,
        evidence=_evidence(reading),
    )


def _evidence(reading: Reading) -> tuple[Evidence, ...]:
    """The first line of each signature that matched, and the first by which the engine said it was lost."""
    seen: set[str] = set()
    found: list[Evidence] = []
    for hit in reading.hits:
        if hit.signature.role is Role.NOISE or hit.signature.id in seen:
            continue
        seen.add(hit.signature.id)
        found.append(Evidence(hit.number, hit.line.raw.strip(), f"{hit.signature.role.value}: {hit.signature.cause}"))
    return tuple(found[:20])


def _quiet(case: Case) -> Diagnosis:
    """No cause and no victim: wrong, slow, healthy, standing, or not to be told."""
    reading, code = case.reading, case.exit_code
    ready = bool(reading.ready_numbers)
    clean_end = reading.shutdown_number is not None and ready
    last_ready = max(reading.ready_numbers, default=0)
    lost = [n for n in reading.lost_numbers if n > last_ready and not clean_end]
    if lost:
        return _diagnosis(
            case,
            reading.line(lost[0]),
            "failed",
            "worker_died_silently",
            "possible",
            "the server says that it is lost, and nothing in this log says why",
            "the other ranks' logs, the kernel log, the operator",
        )
    if code not in (None, 0) and not clean_end:
        return _ended(case, code)
    for quiet in ("wrong_output", "degraded"):
        warned = [
            hit
            for hit in reading.hits
            if hit.signature.role is Role.WARN and hit.signature.outcome == quiet and hit.signature.weight > 0
        ]
        if warned:
            hit = max(warned, key=lambda h: h.signature.weight)
            return _diagnosis(
                case,
                hit.line,
                hit.signature.outcome,
                quiet,
                "likely",
                hit.signature.cause,
                hit.signature.remedy,
                named_suspects(reading, hit, case.changed_names),
                hit.signature.id,
            )
    if ready:
        return _healthy_or_idle(case)
    return _unready(case)


def _ended(case: Case, code: int | None) -> Diagnosis:
    if code in (-9, 137):
        return _diagnosis(
            case,
            None,
            "failed",
            "worker_died_silently",
            "possible",
            "the server was killed from outside; its log has no cause",
            "ask the kernel log, the operator, the cluster",
        )
    return _diagnosis(
        case,
        None,
        "failed",
        "unknown",
        "possible",
        f"the server ended with status {code}; its log has no cause",
        "read the end of the log",
    )


def _healthy_or_idle(case: Case) -> Diagnosis:
    idle = idle_since(case.reading)
    if idle is not None:
        return _diagnosis(
            case,
            idle,
            "hung",
            "hang",
            "likely",
            "requests run and produce nothing since this line",
            "stacks of every rank (py-spy dump)",
        )
    return _diagnosis(
        case, None, "healthy", "healthy", "likely", "the server came up and nothing says it is lost", "none"
    )


def _unready(case: Case) -> Diagnosis:
    reading = case.reading
    if reading.shutdown_number is not None:
        return _diagnosis(
            case, None, "healthy", "healthy", "possible", "it was asked to end before it was ready", "none"
        )
    if is_still_moving(reading):
        return _diagnosis(
            case, None, "healthy", "healthy", "possible", "no error; the log ends in work that gets on", "wait"
        )
    if not reading.timeline:
        return _diagnosis(
            case,
            None,
            "unknown",
            "unknown",
            "possible",
            "the log names no phase of a start and no error",
            "is this the server's log?",
        )
    line = standing_line(reading)
    return _diagnosis(
        case,
        line,
        "hung",
        "hang",
        "possible",
        f"no error; the start stands in phase {reading.last_phase}",
        "stacks of every rank (py-spy dump); sample CPU, I/O and GPU counters twice before ending it",
    )
