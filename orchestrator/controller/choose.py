"""Which hypotheses are carried out now, in which order, and whether their patches fit. Nothing is changed here."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.controller.campaign import Trial
from orchestrator.controller.preconditions import judge_words
from orchestrator.controller.treatment import Treatment, build, paths_to_read
from orchestrator.core import planning, todo
from orchestrator.core.links import kinds_between, unmet_links
from orchestrator.core.records import Verdict
from orchestrator.errors import PatchConflict, Problem
from orchestrator.serving.configuration import baseline_configuration

if TYPE_CHECKING:
    from orchestrator.controller.prepare import Prepared
    from orchestrator.controller.session import HostSession
    from orchestrator.core.model import Hypothesis, Playbook
    from orchestrator.core.records import FindingRecord
    from orchestrator.ledger import Ledger

READ_LIMIT = 8 << 20
"""Bytes of one file of a patch; a source file larger than this is refused by the agent."""


def choose_trials(
    prepared: Prepared, session: HostSession, facts: Mapping[str, str], only: Sequence[str]
) -> list[Trial]:
    """Due hypotheses in order, each in its contexts. Raises one `PatchConflict` with every patch that does not fit."""
    ledger, playbook = prepared.ledger, prepared.playbook
    ledger.upsert_hypotheses(playbook.campaign, playbook.hypotheses)
    order = rank_todo(ledger, playbook, only)
    reopen_changed(ledger, playbook.campaign, session.name, facts)
    wanted = due_trials(ledger, playbook, order, session.name, facts, only)
    unmet = unmet_requirements(session, facts, [h for h, _ in wanted])
    treatments = build_all(prepared, session, [(h, c) for h, c in wanted if h.id not in unmet])
    strange = refuse_unknown_words(session, treatments)
    return [Trial(h, c, treatments.get((h.id, c)), unmet.get(h.id) or strange.get((h.id, c))) for h, c in wanted]


def refuse_unknown_words(
    session: HostSession, treatments: dict[tuple[str, str], Treatment]
) -> dict[tuple[str, str], str]:
    """Take out of `treatments` those that would tell the engine what it does not know, and return why; the others get
    the remarks that belong to them."""
    strange: dict[tuple[str, str], str] = {}
    for place, words in zip(list(treatments), judge_words(session, list(treatments.values())), strict=True):
        treatment = treatments[place]
        if words.unmet:
            strange[place] = "; ".join(words.unmet)
            del treatments[place]
        elif words.remarks:
            treatments[place] = replace(treatment, remarks=(*treatment.remarks, *words.remarks))
    return strange


def contexts_of(hypothesis: Hypothesis, playbook: Playbook) -> tuple[str, ...]:
    """Where a hypothesis is judged: where it says, else in the first context."""
    return hypothesis.context or (next(iter(playbook.contexts)),)


def rank_todo(ledger: Ledger, playbook: Playbook, only: Collection[str] = ()) -> list[Hypothesis]:
    """The todo as `todo_order` gives it, each row's rank and reason written down."""
    order, ranked = todo_order(ledger, playbook, only)
    keep_ranks(ledger, playbook.campaign, ranked)
    return order


def keep_ranks(ledger: Ledger, campaign: str, ranked: Sequence[planning.Ranked]) -> None:
    """Written down; a row that is done or dropped keeps the reason why."""
    known = {row.id: row for row in ledger.todo(campaign)}
    with ledger.batch():
        for row in ranked:
            is_open = known[row.id].status == "open"
            ledger.set_rank(campaign, row.id, row.score, row.reason if is_open else known[row.id].reason)


def todo_order(
    ledger: Ledger, playbook: Playbook, only: Collection[str] = ()
) -> tuple[list[Hypothesis], list[planning.Ranked]]:
    """The todo with the playbook's rows as they stand there, best first; without what a person has dropped, unless
    `only` names it."""
    campaign = playbook.campaign
    rows = ledger.todo(campaign)
    hypotheses = {row.id: row.as_hypothesis() for row in rows}
    hypotheses.update({h.id: h for h in playbook.hypotheses})
    dropped = {row.id for row in rows if row.status == "skipped"} - set(only)
    run = ledger.unfinished_run(campaign)
    # Findings of the run that goes on do not count: continued after a crash, it keeps its order.
    known = [f for f in ledger.findings(campaign) if run is None or f.created_at < run.started_at]
    pins = {row.id: row.pin for row in rows if row.pin is not None}
    ranked = rank(list(hypotheses.values()), pins, todo.members(rows, known), ledger.mean_cost_s(campaign))
    ranked = [row for row in ranked if row.id not in dropped]
    return [hypotheses[row.id] for row in ranked], ranked


def rank(
    hypotheses: Sequence[Hypothesis],
    pins: Mapping[str, float] | None = None,
    members: Sequence[planning.Member] = (),
    cost_s: float | None = None,
) -> list[planning.Ranked]:
    """Best first, dependencies before what waits for them, each with the reason for its place. `pins`: a row's gain
    × odds by a person's word, in per cent; `members`: what became of each row, from which the odds of its family
    follow; `cost_s`: what an experiment takes."""
    known = pins or {}
    return planning.rank(
        [
            planning.weigh(
                h.id,
                expected=h.expect,
                record=todo.record_without(members, h.id, h.family),
                cost_s=cost_s or todo.ASSUMED_COST_S,
                after=h.after,
                pin=known.get(h.id),
            )
            for h in hypotheses
        ],
        decided=[m.id for m in members if m.verdict is not None],
    )


def reopen_changed(ledger: Ledger, campaign: str, host: str, facts: Mapping[str, str]) -> list[FindingRecord]:
    """Dead ends of this host that depend on a fact which is another one now are opened, each with the reason."""
    with ledger.batch():
        reopened = []
        for finding in ledger.findings(campaign, host=host):
            changed = planning.changed_facts(finding.depends_on, dict(facts)) if finding.is_dead_end else []
            if changed:
                reopened.append(ledger.reopen(finding.id, "; ".join(changed)))
                if finding.hypothesis_id is not None:
                    why = f"reopened: finding {finding.id} was {finding.verdict}, and {'; '.join(changed)}"
                    ledger.reopen_row(campaign, finding.hypothesis_id, why)
        return reopened


def due_trials(
    ledger: Ledger,
    playbook: Playbook,
    order: Sequence[Hypothesis],
    host: str,
    facts: Mapping[str, str],
    only: Sequence[str],
) -> list[tuple[Hypothesis, str]]:
    """(hypothesis, context) pairs without a finding that holds under the present facts; all of `only` when given."""
    chosen: list[tuple[Hypothesis, str]] = []
    known: dict[str, str | None] = dict(facts)
    for context in playbook.contexts:
        past: dict[str, list[planning.Past]] = {}
        for finding in ledger.findings(playbook.campaign, host=host, context=context):
            if finding.hypothesis_id is not None:
                verdict, because = Verdict(finding.verdict), finding.reopened_because
                row = planning.Past(finding.id, verdict, finding.depends_on, because)
                past.setdefault(finding.hypothesis_id, []).append(row)
        judged = planning.due([h.id for h in order], past, known, only=only, again=bool(only))
        is_due = {d.id for d in judged if d.is_due}
        chosen += [(h, context) for h in order if h.id in is_due and context in contexts_of(h, playbook)]
    position = {h.id: i for i, h in enumerate(order)}
    return sorted(chosen, key=lambda pair: position[pair[0].id])


def unmet_requirements(
    session: HostSession, facts: Mapping[str, str], hypotheses: Sequence[Hypothesis]
) -> dict[str, str]:
    """Hypothesis → why it does not apply to this host. Nothing is launched for those."""
    paths = sorted({path for h in hypotheses for path in h.requires.files})
    present = _present(session, paths)
    arches = facts.get("gpu_arch", "none")
    known = planning.HostFacts(
        versions={name: value for name, value in facts.items() if value != "absent"},
        gpu_arch=() if arches == "none" else tuple(arches.split(",")),
        files=present,
    )
    unmet: dict[str, str] = {}
    for hypothesis in hypotheses:
        requires = hypothesis.requires
        judged = planning.evaluate(known, packages=requires.packages, gpu_arch=requires.gpu_arch, files=requires.files)
        failed = [met.evidence for met in judged if not met.is_met]
        links = unmet_links(requires.gpu_links, kinds_between(session.facts.links, session.target.gpus))
        failed += [links] if links is not None else []
        if failed:
            unmet[hypothesis.id] = "; ".join(failed)
    return unmet


def build_all(
    prepared: Prepared, session: HostSession, wanted: Sequence[tuple[Hypothesis, str]]
) -> dict[tuple[str, str], Treatment]:
    """Every treatment, planned in memory against the bytes on the host as they are now."""
    texts, layout = prepared.loaded.texts, session.layout
    paths = sorted({p for h, _ in wanted for p in paths_to_read(h.changes, texts, layout)})
    found = read_files(session, paths)
    treatments: dict[tuple[str, str], Treatment] = {}
    problems: list[Problem] = []
    for hypothesis, context in wanted:
        baseline = baseline_configuration(session.target, prepared.playbook.contexts[context])
        needed = {p: found[p] for p in paths_to_read(hypothesis.changes, texts, layout)}
        try:
            treatments[hypothesis.id, context] = build(
                hypothesis.changes,
                texts,
                layout,
                baseline,
                needed,
                marker=hypothesis.marker,
                caches=prepared.playbook.caches,
            )
        except PatchConflict as conflict:
            facts = {"hypothesis": hypothesis.id, "host": session.name}
            problems += [Problem(p.what, p.where, p.hint, {**facts, **p.facts}) for p in conflict.problems]
    if problems:
        first = problems[0]
        raise PatchConflict(
            first.what,
            where=first.where,
            facts=first.facts,
            hint=first.hint or f"see the difference: orchestrator plan {prepared.loaded.path} --diff",
            problems=problems,
        )
    return treatments


def read_files(session: HostSession, paths: Sequence[str]) -> dict[str, bytes | None]:
    """Contents on the host; None where there is no file. A link or a folder in a file's place is a conflict."""
    if not paths:
        return {}
    reply = session.connection.call("read", {"paths": list(paths), "max_bytes": READ_LIMIT}, timeout_s=120.0)
    contents: dict[str, bytes | None] = {}
    for path in paths:
        entry = reply[path]
        if entry["kind"] == "absent":
            contents[path] = None
        elif entry["kind"] == "file" and "content_b64" in entry:
            contents[path] = base64.b64decode(entry["content_b64"])
        else:
            what = entry["kind"] if entry["kind"] != "file" else f"file of {entry.get('size')} bytes"
            raise PatchConflict(f"{path} is a {what}, not a file that can be patched", facts={"host": session.name})
    return contents


def _present(session: HostSession, paths: Sequence[str]) -> dict[str, bool]:
    if not paths:
        return {}
    base = session.layout.base
    absolute = {path: path if path.startswith("/") else f"{base}/{path}" for path in paths}
    reply = session.connection.call("read", {"paths": list(absolute.values()), "max_bytes": 0})
    return {path: reply[where]["kind"] != "absent" for path, where in absolute.items()}
