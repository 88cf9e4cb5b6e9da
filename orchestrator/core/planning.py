"""What to try next, what need not be tried, and the sentence that says why.

Rank is expected gain × odds ÷ cost, then dependencies. A finding holds while the facts it depends on hold; a
hypothesis is due when none holds. Preconditions are judged from probed facts, before any launch.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.core.records import Verdict
from orchestrator.core.versions import BadVersion, satisfies
from orchestrator.errors import PlaybookError, Problem, UsageError

ASSUMED_GAIN = 0.01
"""Expected gain of a hypothesis that states none."""

FIRST = 1000.0
"""Per cent from which on a row that is ranked by hand goes before everything that is reckoned."""

OPEN_VERDICTS = frozenset({Verdict.invalid, Verdict.aborted})
"""Ends that say nothing about the hypothesis: it stays due."""

UNDECIDED_VERDICTS = frozenset({Verdict.not_applicable, Verdict.inconclusive})
"""Ends that close a hypothesis for now and do not count against its family."""


# ---------------------------------------------------------------- rank


@dataclass(frozen=True)
class Candidate:
    """A hypothesis to be ranked. `gain` is relative (0.09 is +9 %), `odds` in 0–1, `cost_s` of the whole experiment."""

    id: str
    gain: float | None = None
    odds: float = 0.5
    cost_s: float = 3600.0
    after: tuple[str, ...] = ()
    pin: float | None = None  # a person's word on gain × odds, in per cent: it counts instead of the reckoning


@dataclass(frozen=True)
class Ranked:
    """A place in the order. `score` is percent gained per hour; `waits_for` are undecided hypotheses before it."""

    id: str
    score: float
    reason: str
    waits_for: tuple[str, ...] = ()


def family_odds(wins: int, losses: int) -> float:
    """Odds of a family's next member from what became of the others (Laplace); 0.5 where none was tried."""
    return (wins + 1) / (wins + losses + 2)


def weigh(
    id: str,
    *,
    expected: float | None,
    ceiling: float | None = None,
    record: tuple[int, int] = (0, 0),
    lever_odds: float | None = None,
    probe_factor: float = 1.0,
    cost_s: float = 3600.0,
    after: Sequence[str] = (),
    pin: float | None = None,
) -> Candidate:
    """A candidate from everything that is known of it.

    `expected` and `ceiling` are gains (the latter from the latency budget, which caps the former); `record` counts
    wins and losses of its family; `lever_odds` is what measured effects say of the lever it pulls, and counts as one
    more opinion; `probe_factor`, at most 1, is what a probe left of its odds; `cost_s` is a measured cost.
    """
    gain = expected
    if ceiling is not None:
        gain = ceiling / 2 if expected is None else min(expected, ceiling)
    odds = family_odds(*record)
    if lever_odds is not None:
        odds = (odds + lever_odds) / 2
    return Candidate(id, gain, odds * min(1.0, probe_factor), cost_s, tuple(after), pin)


def rank(candidates: Sequence[Candidate], *, decided: Collection[str] = ()) -> list[Ranked]:
    """The order in which to try them; equal scores keep the order given.

    What others wait for is worth as much as the best of those. Raises `PlaybookError` where they wait in a circle.
    """
    by_id = {candidate.id: candidate for candidate in candidates}
    waits = {c.id: [a for a in c.after if a in by_id and a not in decided] for c in candidates}
    _refuse_circles(waits)
    worth = {c.id: _score(c) for c in candidates}
    for _ in candidates:
        for waiting, befores in waits.items():
            for before in befores:
                worth[before] = max(worth[before], worth[waiting])
    order: list[Ranked] = []
    placed: set[str] = set()
    while len(order) < len(candidates):
        ready = [c for c in candidates if c.id not in placed and placed.issuperset(waits[c.id])]
        best = max(ready, key=lambda c: worth[c.id])
        placed.add(best.id)
        missing = tuple(a for a in best.after if a not in decided)
        order.append(Ranked(best.id, _score(best), _rank_reason(best, worth[best.id], missing), missing))
    return order


def _score(candidate: Candidate) -> float:
    return _reckoned(candidate) if candidate.pin is None else candidate.pin / _hours(candidate)


def _hours(candidate: Candidate) -> float:
    return max(candidate.cost_s, 1.0) / 3600


def _reckoned(candidate: Candidate) -> float:
    gain = ASSUMED_GAIN if candidate.gain is None else candidate.gain
    return gain * 100 * candidate.odds / _hours(candidate)


def _rank_reason(candidate: Candidate, worth: float, waits_for: Sequence[str]) -> str:
    gain = ASSUMED_GAIN if candidate.gain is None else candidate.gain
    stated = "assumed" if candidate.gain is None else "expected"
    parts = [
        f"{gain * 100:+.1f} % {stated} × {candidate.odds:.0%} odds ÷ {candidate.cost_s / 60:.0f} min"
        f" = {_reckoned(candidate):.2f} % an hour"
    ]
    if candidate.pin is not None:
        first = "ranked by hand before all" if candidate.pin >= FIRST else f"ranked by hand as {candidate.pin:+.2f} %"
        parts.insert(0, first)
    if worth > _score(candidate):
        parts.append(f"moved up: others worth {worth:.2f} % an hour wait for it")
    if waits_for:
        parts.append(f"after {', '.join(waits_for)}")
    return "; ".join(parts)


def _refuse_circles(waits: Mapping[str, Sequence[str]]) -> None:
    left = {waiting: set(befores) for waiting, befores in waits.items()}
    while free := [name for name, befores in left.items() if not befores & left.keys()]:
        for name in free:
            del left[name]
    if left:
        names = ", ".join(left)
        raise PlaybookError([Problem(f"these hypotheses wait for one another in a circle: {names}")])


# ---------------------------------------------------------------- what is due


@dataclass(frozen=True)
class Past:
    """A finding on a hypothesis, for one host and context."""

    finding: int
    verdict: Verdict
    depends_on: Mapping[str, str] = field(default_factory=dict)
    reopened: str | None = None  # why it was reopened, once it was


@dataclass(frozen=True)
class Due:
    id: str
    is_due: bool
    why: str


def changed_facts(depends_on: Mapping[str, str], now: Mapping[str, str | None]) -> list[str]:
    """Sentences, one per fact that is no longer what it was. None now: it is gone. A fact not probed is not changed."""
    return [
        f"{fact} was {was}, is {'absent' if now[fact] is None else now[fact]}"
        for fact, was in depends_on.items()
        if fact in now and now[fact] != was
    ]


CONTEXT_FACT = "context "
"""Begins the name of a fact that counts in one context only."""


def within(context: str, facts: Mapping[str, str]) -> dict[str, str]:
    """The facts without those of other contexts: what was found in one does not hang on another."""
    own = CONTEXT_FACT + context
    return {name: value for name, value in facts.items() if not name.startswith(CONTEXT_FACT) or name == own}


def due(
    hypotheses: Sequence[str],
    findings: Mapping[str, Sequence[Past]],
    now: Mapping[str, str | None],
    *,
    only: Collection[str] = (),
    again: bool = False,
) -> list[Due]:
    """For each hypothesis, in order: is it due under the facts as they are now, and why or why not.

    `only` leaves the others out; `again` makes those due that have a finding that holds. An unknown name in `only`
    is a `UsageError`.
    """
    refuse_unknown(only, hypotheses)
    chosen = [name for name in hypotheses if not only or name in only]
    return [_judge_due(name, findings.get(name, ()), now, again=again) for name in chosen]


def refuse_unknown(names: Collection[str], hypotheses: Sequence[str]) -> None:
    """`UsageError` with the nearest name, or all of them, where one of `names` is none of the hypotheses."""
    for name in names:
        if name not in hypotheses:
            near = difflib.get_close_matches(name, hypotheses, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"hypotheses: {', '.join(hypotheses)}"
            raise UsageError(f"no hypothesis {name!r}", hint=hint)


def _judge_due(name: str, past: Sequence[Past], now: Mapping[str, str | None], *, again: bool) -> Due:
    reopened: list[str] = []
    said = [finding for finding in past if finding.verdict not in OPEN_VERDICTS]
    for finding in reversed(said):
        changed = [finding.reopened] if finding.reopened is not None else changed_facts(finding.depends_on, now)
        is_bare = finding.verdict is Verdict.not_applicable and not finding.depends_on
        if changed:
            reopened.append(f"#{finding.finding} {finding.verdict}: {', '.join(changed)}")
        elif not is_bare:
            why = f"finding #{finding.finding} holds: {finding.verdict}"
            return Due(name, again, f"asked for again, though {why}" if again else why)
    if reopened:
        return Due(name, True, f"reopened: {reopened[0]}")
    return Due(name, True, f"last end was {past[-1].verdict}" if past else "never tried")


# ---------------------------------------------------------------- families


@dataclass(frozen=True)
class Member:
    """A hypothesis in its family; `verdict` None while none holds. `why` explains a member that was not tried.

    `depends_on`: the facts of its finding, from which what the members of a closed family have in common is told.
    """

    id: str
    family: str
    verdict: Verdict | None = None
    why: str = ""
    depends_on: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClosedFamily:
    family: str
    sentence: str


def closed_families(members: Iterable[Member], order: Sequence[str] = ()) -> list[ClosedFamily]:
    """Families without an open member and without a win, each with its announcement.

    `order` is the ranking, best first; the announcement names the family that comes next in it.
    """
    everyone = list(members)
    families: dict[str, list[Member]] = {}
    for member in everyone:
        if member.family:
            families.setdefault(member.family, []).append(member)
    closed = {name: group for name, group in families.items() if all(_is_closed(m) for m in group)}
    family_of = {m.id: m.family for m in everyone if m.verdict is None or m.verdict in OPEN_VERDICTS}
    following = next((family_of[name] for name in order if family_of.get(name)), None)
    return [ClosedFamily(name, _announcement(name, group, following)) for name, group in closed.items()]


def _is_closed(member: Member) -> bool:
    return member.verdict is not None and member.verdict not in OPEN_VERDICTS | {Verdict.improved}


def _announcement(family: str, group: Sequence[Member], following: str | None) -> str:
    failed = [m for m in group if m.verdict not in UNDECIDED_VERDICTS]
    others = [m for m in group if m.verdict in UNDECIDED_VERDICTS]
    exceptions = ", ".join(f"{m.id}: {m.why.removeprefix(f'{m.id}: ') or m.verdict}" for m in others)
    tried = ", ".join(f"{m.id} {m.verdict}" for m in failed)
    if not failed:
        sentence = f"family {family}: no member could be decided ({exceptions})"
    elif others:
        sentence = f"family {family} is closed except {exceptions} (tried: {tried})"
    else:
        sentence = f"family {family} is closed (tried: {tried})"
    common = _in_common(failed)
    if common:
        sentence += f"; all of them depend on {common}"
    return f"{sentence}; next family: {following}" if following else sentence


def family_record(members: Iterable[Member], family: str) -> tuple[int, int]:
    """(wins, losses) of a family; what could not be decided counts as neither."""
    verdicts = [m.verdict for m in members if m.family == family]
    wins = sum(v is Verdict.improved for v in verdicts)
    skipped = UNDECIDED_VERDICTS | OPEN_VERDICTS | {Verdict.improved, None}
    return wins, sum(v not in skipped for v in verdicts)


def _in_common(failed: Sequence[Member]) -> str:
    """The facts that every failed member depends on, with the value they all saw."""
    if len(failed) < 2:
        return ""
    first, *others = (m.depends_on for m in failed)
    shared = [(name, value) for name, value in first.items() if all(o.get(name) == value for o in others)]
    told = [(name, value) for name, value in shared if value != "absent" and not value.startswith(("{", "["))]
    return ", ".join(f"{name} {value}" for name, value in told)


# ---------------------------------------------------------------- preconditions


@dataclass(frozen=True)
class HostFacts:
    """What was probed. `versions` holds packages as installed, and `python`, `cuda`, `driver` and the like."""

    versions: Mapping[str, str]
    gpu_arch: tuple[str, ...] = ()  # one per GPU of the target
    files: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Met:
    is_met: bool
    evidence: str


def evaluate(
    facts: HostFacts,
    *,
    packages: Mapping[str, str] | None = None,
    gpu_arch: Sequence[str] = (),
    files: Sequence[str] = (),
) -> list[Met]:
    """Judge preconditions, each with its evidence. What is unknown or unreadable is unmet, and says so."""
    installed = {_package(name): version for name, version in facts.versions.items()}
    judged = [_judge_package(name, wanted, installed) for name, wanted in (packages or {}).items()]
    if gpu_arch:
        judged.append(_judge_arch(gpu_arch, facts.gpu_arch))
    for path in files:
        words = {True: "is there", False: "is not there", None: "was not probed"}
        there = facts.files.get(path)
        judged.append(Met(there is True, f"{path} {words[there]}"))
    return judged


def _judge_package(name: str, wanted: str, installed: Mapping[str, str]) -> Met:
    version = installed.get(_package(name))
    if version is None:
        return Met(False, f"{name}: not installed")
    if wanted.strip() in ("", "*"):
        return Met(True, f"{name} {version} is installed")
    try:
        is_met = satisfies(version, wanted)
    except BadVersion as error:
        return Met(False, f"{name} {version} cannot be compared with {wanted}: {error}")
    return Met(is_met, f"{name} {version} {'satisfies' if is_met else 'does not satisfy'} {wanted}")


def _judge_arch(wanted: Sequence[str], found: Sequence[str]) -> Met:
    if not found:
        return Met(False, "no GPU was found")
    allowed = {_arch(name) for name in wanted}
    others = sorted({_arch(name) for name in found} - allowed)
    have = ", ".join(sorted({_arch(name) for name in found}))
    needs = ", ".join(sorted(allowed))
    return Met(not others, f"the GPUs are {have}, {'among' if not others else 'and must be one of'} {needs}")


def _package(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _arch(name: str) -> str:
    """`12.0`, `12`, `sm_120`, `sm_90a` → `12.0`, `12.0`, `12.0`, `9.0`."""
    digits = re.sub(r"^(sm|compute)_?|[af]$", "", name.strip().lower())
    if name.lower().startswith(("sm", "compute")) and digits.isdigit() and len(digits) > 1:
        return f"{digits[:-1]}.{digits[-1]}"
    return digits if "." in digits else f"{digits}.0"


# ---------------------------------------------------------------- bundles


@dataclass(frozen=True)
class Alone:
    """A member of a failed bundle that returns to the todo."""

    member: str
    reason: str


def members_alone(
    bundle: str, members: Sequence[str], *, suspects: Sequence[str] = (), measured: Collection[str] = ()
) -> list[Alone]:
    """Members of a failed bundle that were never measured alone, those that the diagnosis names last.

    A bundle's failure says nothing about its innocent members, so they go first.
    """
    left = [m for m in members if m not in measured]
    innocent = [m for m in left if m not in suspects]
    return [Alone(m, f"only ran in {bundle}, which failed; never measured alone") for m in innocent] + [
        Alone(m, f"suspected of the failure of {bundle}; never measured alone") for m in left if m in suspects
    ]
