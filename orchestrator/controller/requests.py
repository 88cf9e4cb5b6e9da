"""Asking for something through the ledger, and carrying it out where no run lives that could."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.controller.acts import who
from orchestrator.controller.clock import SystemClock
from orchestrator.core.requests import BY_NAME, Action, RequestRecord
from orchestrator.errors import Busy, OrchestratorError, Refused, UsageError
from orchestrator.ledger.live import is_alive

if TYPE_CHECKING:
    from orchestrator.controller.hosts import HostRequest
    from orchestrator.controller.narration import Narrator
    from orchestrator.core.planning import Ranked
    from orchestrator.ledger import Ledger

ANSWER_WITHIN_S = 600.0
LOOK_EVERY_S = 0.1


@dataclass(frozen=True)
class Wish:
    """What is asked of whom."""

    action: str
    host: str
    state: Path
    hosts: Path | None = None
    hypothesis: str | None = None


def ask(wish: Wish, narrator: Narrator, *, within_s: float = ANSWER_WITHIN_S) -> RequestRecord:
    """Write the request down and see it carried out: by the run that lives on that host, else by this process.

    `UsageError`: no such action or host, or what needs a run has none. `Refused`: the host is marked `write: false`, or
    the answer was no. `Busy`: no answer in time; the request stays."""
    from orchestrator.ledger import open_ledger

    action = _action(wish)
    clock = SystemClock()
    with open_ledger(wish.state, clock=clock, create=False) as ledger:
        _refuse_read_only(ledger, action, wish)
        run_id = living_run(ledger, wish.host)
        if run_id is None and action.needs_run:
            raise Refused(f"no run lives on {wish.host}", hint=f"orchestrator host verify {wish.host} tells its state")
        said = {"hypothesis": wish.hypothesis} if wish.hypothesis else {}
        asked = ledger.ask(action.name, wish.host, asked_by=who(), run_id=run_id, arguments=said)
        if run_id is None:
            answered = _carry_out(ledger, asked, wish, narrator)
        else:
            answered = _await_answer(ledger, asked, clock, within_s)
    if answered.state in ("refused", "failed"):
        raise Refused(f"{action.title}: {answered.answer}", facts={"request": f"#{answered.id}"})
    return answered


def _action(wish: Wish) -> Action:
    action = BY_NAME.get(wish.action)
    if action is None:
        raise UsageError(f"nothing called {wish.action!r} can be asked for", facts={"known": ", ".join(BY_NAME)})
    if action.name == "next" and not wish.hypothesis:
        raise UsageError("which hypothesis is to be next?", hint="--hypothesis ID; orchestrator todo list names them")
    return action


def _refuse_read_only(ledger: Ledger, action: Action, wish: Wish) -> None:
    inventory = ledger.last_inventory()
    known = {host.name for host in ledger.hosts()} | set(inventory.hosts if inventory else ())
    if wish.host not in known:
        raise UsageError(f"no host is called {wish.host!r}", facts={"known": ", ".join(sorted(known)) or "none"})
    if action.changes_host and inventory is not None and wish.host in inventory.hosts:
        from orchestrator.controller.session import refuse_read_only

        refuse_read_only(wish.host, inventory.hosts[wish.host])


def living_run(ledger: Ledger, host: str) -> int | None:
    """The run that a process of this machine carries out on the host just now."""
    run = ledger.unfinished_run(host=host)
    return run.id if run is not None and is_alive(ledger.state_dir, run.id) else None


def _await_answer(ledger: Ledger, asked: RequestRecord, clock: SystemClock, within_s: float) -> RequestRecord:
    deadline = clock.monotonic() + within_s
    while (now := ledger.request(asked.id)).ended_at is None:
        if asked.run_id is not None and not is_alive(ledger.state_dir, asked.run_id):
            now = ledger.request(asked.id)
            if now.ended_at is None:
                return ledger.answer_request(asked.id, "failed", "the run ended without a word")
            break
        if clock.monotonic() > deadline:
            raise Busy(f"request #{asked.id} has no answer yet", facts={"waited": f"{within_s:g} s"})
        time.sleep(LOOK_EVERY_S)
    return now


# ---------------------------------------------------------------- where no run lives


def _carry_out(ledger: Ledger, asked: RequestRecord, wish: Wish, narrator: Narrator) -> RequestRecord:
    taken = ledger.take_request(wish.host, pid=os.getpid(), only=asked.id)
    if taken is None:
        raise Busy(f"request #{asked.id} was taken by somebody else")
    try:
        answer, result = _act(ledger, taken, wish, narrator)
    except OrchestratorError as error:
        ledger.answer_request(taken.id, "failed", error.what, dict(error.facts))
        raise
    return ledger.answer_request(taken.id, "done", answer, result)


def _act(ledger: Ledger, taken: RequestRecord, wish: Wish, narrator: Narrator) -> tuple[str, Mapping[str, Any]]:
    from orchestrator.controller.hosts import HostRequest

    request = HostRequest(wish.host, wish.state, wish.hosts, yes=taken.action in ("reap", "release"))
    if taken.action == "revert":
        return _recover(request, narrator)
    if taken.action in ("look", "reap"):
        return _look(request, narrator)
    if taken.action == "release":
        return _release(request, narrator)
    campaign = _campaign_on(ledger, wish.host)
    if taken.action == "next":
        return put_first(ledger, campaign, wish.hypothesis or ""), {}
    return rank_again(ledger, campaign), {}


def _recover(request: HostRequest, narrator: Narrator) -> tuple[str, Mapping[str, Any]]:
    from orchestrator.controller.hosts import recover

    done = recover(request, narrator)
    did = "; ".join(done.did) or "nothing was left to put back"
    return f"{did}; {request.host} is {done.state}", {"state": done.state, "did": list(done.did)}


def _look(request: HostRequest, narrator: Narrator) -> tuple[str, Mapping[str, Any]]:
    from orchestrator.controller.holders import holders

    seen = holders(request, narrator, chosen=None)
    said = "; ".join(seen.sentences()) or f"{len(seen.holders)} process(es) hold its GPUs or port"
    return said, seen.as_json()


def _release(request: HostRequest, narrator: Narrator) -> tuple[str, Mapping[str, Any]]:
    from orchestrator.controller.release import release

    done = release(request, narrator, "found")
    return "; ".join(done.remarks) or f"{request.host} is clean", {"kept": [str(path) for path in done.kept]}


def _campaign_on(ledger: Ledger, host: str) -> str:
    runs = [run for run in ledger.runs() if run.host == host]
    if not runs:
        raise UsageError(f"no campaign has run on {host} yet", hint="orchestrator run PLAYBOOK begins one")
    return runs[-1].campaign


# ---------------------------------------------------------------- the todo


def put_first(ledger: Ledger, campaign: str, hypothesis: str) -> str:
    """Pin the row above every other one, so that it is carried out before them."""
    from orchestrator.controller.todo import first_of_all

    row = ledger.todo_row(campaign, hypothesis)
    ledger.pin(campaign, row.id, first_of_all(ledger, campaign), None)
    rank_again(ledger, campaign)
    return f"{row.id} is first of what is left of {campaign}"


def rank_again(ledger: Ledger, campaign: str) -> str:
    """Rank what is left anew, from what the ledger says of it by now."""
    ranked = _ranked(ledger, campaign)
    is_open = {row.id for row in ledger.todo(campaign) if row.status == "open"}
    with ledger.batch():
        for place in ranked:
            if place.id in is_open:
                ledger.set_rank(campaign, place.id, place.score, place.reason)
    return f"{len(is_open)} open rows of {campaign} are ranked again"


def _pins(ledger: Ledger, campaign: str) -> dict[str, float]:
    return {row.id: row.pin for row in ledger.todo(campaign) if row.pin is not None}


def _ranked(ledger: Ledger, campaign: str) -> list[Ranked]:
    from orchestrator.controller.choose import rank

    rows = [row for row in ledger.todo(campaign) if row.status != "skipped"]
    pins = _pins(ledger, campaign)
    return rank([row.as_hypothesis() for row in sorted(rows, key=lambda row: row.number)], pins)
