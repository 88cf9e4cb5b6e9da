"""The main job: a playbook's hypotheses on one host, from connecting to the last proof."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.controller.acts import by_whom
from orchestrator.controller.clock import SystemClock
from orchestrator.controller.interrupts import Interrupts
from orchestrator.controller.narration import Costs, Narrator, Silent
from orchestrator.controller.prepare import Prepared, prepare, prepare_session
from orchestrator.controller.spending import OutOfBudget
from orchestrator.controller.turn import sole_turn
from orchestrator.core.planning import refuse_unknown
from orchestrator.core.records import CONTINUES
from orchestrator.errors import Dirty, Interrupted, OrchestratorError, Refused

if TYPE_CHECKING:
    from orchestrator.controller.campaign import CampaignRun
    from orchestrator.controller.course import Course
    from orchestrator.controller.goals import GoalReport
    from orchestrator.controller.keeping import Kept
    from orchestrator.controller.launcher import Launcher
    from orchestrator.controller.opening import Opened
    from orchestrator.controller.session import HostSession
    from orchestrator.core.records import FindingRecord, RunRecord, RunState
    from orchestrator.ledger import Ledger


@dataclass(frozen=True)
class RunRequest:
    """What was asked for on the command line."""

    playbook: Path
    state: Path
    hosts: Path | None = None
    host: str | None = None
    only: tuple[str, ...] = ()
    resume: bool = False
    yes: bool = False
    baseline_only: bool = False
    keep_best: bool = False
    until: str | None = None
    finish_only: bool = False
    baseline_launches: int = 1


@dataclass
class RunSummary:
    """What a run came to. `host_state`: `clean` was proved; `kept`: proved to be on what a campaign has left there;
    `untouched`: nothing was changed. `ended`: why the run ended before the campaign did. `families`: those announced as
    closed; `search`: strategy → its best gain after each of its trials."""

    campaign: str
    host: str
    run_id: int
    ledger: str
    findings: list[FindingRecord] = field(default_factory=list)
    baselines: dict[str, float] = field(default_factory=dict)
    best: dict[str, FindingRecord] = field(default_factory=dict)
    host_state: str = "untouched"
    kept: Kept | None = None
    proof: Mapping[str, Any] | None = None
    foreign: list[str] = field(default_factory=list)
    ours_s: dict[str, float] = field(default_factory=dict)
    server_s: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    launches: int = 0
    ended: str | None = None
    goal: GoalReport | None = None
    families: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    search: dict[str, list[float | None]] = field(default_factory=dict)
    spent: Mapping[str, float] = field(default_factory=dict)


def run(request: RunRequest, narrator: Narrator | None = None) -> RunSummary:
    """Carry a playbook out. Raises an `OrchestratorError` when it did not come to its end; the host is proved
    clean then too, or the error is `Dirty`."""
    narrator = narrator or Silent()
    warm = threading.Thread(target=_import_ledger, daemon=True)
    warm.start()  # half a second of imports, beside reading the playbook and connecting
    clock = SystemClock()
    started = clock.monotonic()
    with Interrupts(narrator.warn).installed() as interrupts:
        prepared = prepare(request.playbook, request.state, request.hosts, request.host, clock=clock)
        costs = Costs(clock)
        session = prepare_session(prepared, narrator, interrupts, clock, costs)
        try:
            with sole_turn(request.state, prepared.host_name, clock):
                return _run(request, prepared, session, started)
        finally:
            prepared.ledger.close()


def _import_ledger() -> None:
    import orchestrator.ledger.store  # noqa: F401


def _run(request: RunRequest, prepared: Prepared, session: HostSession, started: float) -> RunSummary:
    from orchestrator.controller.desk import Desk
    from orchestrator.controller.opening import open_host

    ledger = prepared.ledger
    refuse_quarantined(ledger, session.name)
    known = [h.id for h in prepared.playbook.hypotheses] + [r.id for r in ledger.todo(prepared.playbook.campaign)]
    refuse_unknown(request.only, list(dict.fromkeys(known)))
    run_row = start_or_resume(request, prepared)
    summary = RunSummary(prepared.playbook.campaign, session.name, run_row.id, str(request.state / "ledger.db"))
    state: RunState = "failed"
    desk = Desk(session, ledger, run_row, request.state, prepared.masker)
    try:
        try:
            desk.open()
            opened = open_host(session, prepared, run_row, resume=request.resume, yes=request.yes)
            state = "interrupted"
            _carry_out(request, prepared, session, opened, run_row, summary)
            state = "done"
        finally:
            _give_back(session, summary, prepared)
    except Dirty as error:
        state = "dirty"
        _record_last(partial(ledger.quarantine, session.name, error.what), session, dirty=True)
        raise
    except Interrupted:
        state = "interrupted"
        raise
    except OutOfBudget as end:
        summary.ended = end.reason
    except OrchestratorError as error:
        state = "failed" if state == "interrupted" else state
        told = {"kind": error.kind, "what": error.what, "facts": error.facts, "hint": error.hint}
        note = partial(ledger.note, "run_failed", prepared.masker.data(told), host=session.name, run_id=run_row.id)
        _record_last(note, session, dirty=True)  # a ledger that cannot be written may not hide why the run failed
        raise
    finally:
        _record_last(partial(_end_rows, ledger, run_row, state), session, dirty=state == "dirty")
        host_state = "dirty" if state == "dirty" else summary.host_state
        _record_last(partial(desk.close, host_state), session, dirty=state == "dirty")
        _account(summary, session, started)
    return summary


def _end_rows(ledger: Ledger, run_row: RunRecord, state: RunState) -> None:
    ledger.abort_open(run_row.id, "the run ended")
    ledger.end_run(run_row.id, state)
    ledger.prune()


def _record_last(write: Callable[[], object], session: HostSession, *, dirty: bool) -> None:
    """That the ledger cannot be written may not hide that the host is dirty: it is only told then."""
    try:
        write()
    except OrchestratorError as error:
        if not dirty:
            raise
        session.narrator.warn(f"not recorded: {error.what}")


def _carry_out(
    request: RunRequest,
    prepared: Prepared,
    session: HostSession,
    opened: Opened,
    run_row: RunRecord,
    summary: RunSummary,
) -> None:
    from orchestrator.controller.book import Book, name_prefix
    from orchestrator.controller.history import History
    from orchestrator.controller.keeping import refuse_shadow
    from orchestrator.controller.launcher import Launcher
    from orchestrator.controller.spending import Spender, gpus_of, until

    if wants_best(request, prepared):
        refuse_shadow(session)
    until_s = None if request.until is None else until(request.until, session.clock.now())
    history = History(request.state, clock=session.clock)
    book = Book(
        prepared.ledger,
        history,
        run_id=summary.run_id,
        host=session.name,
        tree=session.layout.source,
        name_prefix=name_prefix(prepared.token),
    )
    spender = Spender(prepared.ledger, run_row, prepared.playbook.budget, until_s, gpus_of(session))
    launcher = Launcher(
        session,
        book,
        prepared.playbook,
        fingerprint_id=opened.fingerprint.id,
        spender=spender,
        mask=prepared.masker.data,
    )
    try:
        _take_course(request, prepared, launcher, opened, run_row, summary)
    finally:
        summary.spent = spender.as_json()
        for trouble in book.close():
            session.narrator.warn(f"the local history could not be written: {trouble}")


def _take_course(
    request: RunRequest,
    prepared: Prepared,
    launcher: Launcher,
    opened: Opened,
    run_row: RunRecord,
    summary: RunSummary,
) -> None:
    from orchestrator.controller.agenda import Agenda
    from orchestrator.controller.campaign import CampaignRun
    from orchestrator.controller.course import Course
    from orchestrator.controller.keeping import keep_best
    from orchestrator.controller.opening import make_ready
    from orchestrator.controller.resume import recall, run_chain

    session, ledger = launcher.session, prepared.ledger
    runs = run_chain(ledger, run_row, prepared.loaded.digest)
    agenda = Agenda(prepared, session, opened.facts, request.only, run_id=run_row.id, runs=runs, yes=request.yes)
    campaign = CampaignRun(launcher, facts=opened.facts)
    course = Course(prepared, campaign, agenda, is_part=bool(request.only))
    try:
        if request.resume:
            past = recall(ledger, run_row, opened.fingerprint.id, prepared.loaded.digest)
            campaign.go_on(past, opened.adoptable)
            if opened.adoptable is not None:  # the files are as found again, and can be planned against
                make_ready(session)
        won: FindingRecord | None = None
        if request.baseline_only:
            campaign.measure_baselines(request.baseline_launches)
        elif request.finish_only:
            won = course.finish()
        else:
            won = course.run(wants_best=wants_best(request, prepared))
        if won is not None and wants_best(request, prepared):  # nothing is kept that was not measured in full
            summary.kept = keep_best(session, launcher.book, prepared, {won.context: won})
    finally:
        _tell(summary, campaign, course)


def wants_best(request: RunRequest, prepared: Prepared) -> bool:
    return request.keep_best or prepared.playbook.at_end == "best"


def _tell(summary: RunSummary, campaign: CampaignRun, course: Course) -> None:
    """What is known by now, however the run ends."""
    summary.findings = campaign.findings
    for context in campaign.launcher.playbook.contexts:
        if (value := campaign.launcher.baseline_value(context)) is not None:
            summary.baselines[context] = value
    summary.best = best_of(campaign.findings)
    try:
        summary.goal = course.goal()
    except OrchestratorError as error:  # what ended the run counts, not that this could not be read
        campaign.launcher.session.narrator.warn(f"the goal could not be judged: {error.what}")
    summary.families, summary.notes, summary.search = course.families, course.notes, course.columns
    summary.returned = course.returned


def _give_back(session: HostSession, summary: RunSummary, prepared: Prepared) -> None:
    """The last proof, and the lease. A host that cannot be proved clean is `Dirty`, whatever happened before."""
    from orchestrator.controller.service import give_service_back
    from orchestrator.controller.threeway import not_clean

    with session.interrupts.retreating(f"the last proof on {session.name}"):
        if not session.is_open:
            session.hang_up()
            return
        if not session.has_snapshot:  # nothing was changed yet
            give_service_back(session)
            session.close()
            return
        proof = session.call_back("verify", {}, timeout_s=600.0)
        summary.proof = proof
        summary.foreign = [f"{d['what']} {d['path']}" for d in proof["differences"] if not d["ours"]]
        if not proof["clean"]:
            error = not_clean(session, prepared.ledger, proof)
            session.hang_up()
            raise error
        give_service_back(session)
        summary.host_state = "kept" if proof["kept"] else "clean"
        session.close()


def _account(summary: RunSummary, session: HostSession, started: float) -> None:
    summary.ours_s = dict(session.costs.ours)
    summary.server_s = dict(session.costs.server)
    summary.seconds = session.clock.monotonic() - started
    summary.launches = session.costs.launches


def best_of(findings: Iterable[FindingRecord]) -> dict[str, FindingRecord]:
    """The winner of each context that has one."""
    from orchestrator.report.best import best_of as best

    return {b.context: b.finding for b in best(findings) if b.finding is not None}


def refuse_quarantined(ledger: Ledger, host: str) -> None:
    record = ledger.host(host)
    if record is not None and record.state == "quarantined":
        raise Dirty(
            f"{host} is quarantined: {record.reason}",
            facts={"since": record.since},
            hint=f"orchestrator host recover {host}",
        )


def start_or_resume(request: RunRequest, prepared: Prepared) -> RunRecord:
    """A new run; an unfinished one of a process that is gone is closed first, or with `resume` gone on with. One that
    ended before its campaign did is gone on with by a new one, which names it."""
    ledger, playbook = prepared.ledger, prepared.playbook
    unfinished = ledger.unfinished_run(playbook.campaign, prepared.host_name)
    ended = [r for r in ledger.runs(playbook.campaign) if r.host == prepared.host_name and r.ended_at is not None][-1:]
    continues = ended[0].id if request.resume and ended and ended[0].state != "done" else None
    if unfinished is None and request.resume and continues is None:
        raise Refused(
            f"there is no unfinished run of {playbook.campaign} on {prepared.host_name}",
            hint="orchestrator run carries out what has no finding yet; --resume is for a run that was cut off",
        )
    if unfinished is not None and request.resume:
        return unfinished
    if unfinished is not None:
        ledger.abort_open(unfinished.id, "its controller ended without a word")
        ledger.end_run(unfinished.id, "failed")
    options = {
        "only": list(request.only), "resume": request.resume, "baseline_only": request.baseline_only, **by_whom()
    }  # fmt: skip
    return ledger.start_run(
        playbook.campaign,
        prepared.loaded.digest,
        prepared.host_name,
        prepared.playbook_text,
        description=playbook.description,
        measure=playbook.measure.model_dump(mode="json"),
        options=options if continues is None else {**options, CONTINUES: continues},
    )
