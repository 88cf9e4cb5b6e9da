"""Questions and repairs about one host: doctor, verify, recover, reap, forget."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.controller.clock import SystemClock
from orchestrator.controller.interrupts import Interrupts
from orchestrator.controller.narration import Costs, Narrator
from orchestrator.controller.opening import USUAL_PACKAGES, recover_remains
from orchestrator.controller.prepare import Place, prepare_host, prepare_session
from orchestrator.controller.service import await_service
from orchestrator.controller.session import refuse_read_only
from orchestrator.controller.threeway import not_clean
from orchestrator.controller.turn import sole_turn
from orchestrator.errors import Dirty, Refused
from orchestrator.serving.configuration import Configuration
from orchestrator.serving.environment import server_environment

if TYPE_CHECKING:
    from orchestrator.controller.session import HostSession
    from orchestrator.hosts.doctor import Step as Step
    from orchestrator.hosts.facts import Facts
    from orchestrator.ledger import Ledger


@dataclass(frozen=True)
class HostRequest:
    host: str
    state: Path
    hosts: Path | None = None
    yes: bool = False


@dataclass
class Recovery:
    host: str
    state: str
    did: list[str] = field(default_factory=list)
    proof: Mapping[str, Any] | None = None


def examine(request: HostRequest, narrator: Narrator) -> tuple[list[Step], dict[str, Any]]:
    """The route step by step, and the fingerprint when its end was reached."""
    from orchestrator.hosts.doctor import examine as walk

    with host_place(request, narrator) as (place, session):
        steps, facts = walk(
            place.host,
            place.target,
            name=place.host_name,
            engine_package=session.engine.package,
            packages=list(USUAL_PACKAGES),
            environment=lambda account: server_environment(place.target, Configuration(env=place.target.env), account),
        )
        if facts is None:
            return steps, {}
        return steps, {**facts.as_json(), "source_digest": _source_digest(session, facts)}


def _source_digest(session: HostSession, facts: Facts) -> str | None:
    """SHA-256 over the manifest of the source tree as it is now; None where the tree is not known."""
    source = session.target.source or (posixpath.dirname(facts.engine_origin) if facts.engine_origin else None)
    if source is None:
        return None
    session.connect()
    return str(session.connection.call("manifest", {"paths": [source]}, timeout_s=600.0)["digest"])


def recover(request: HostRequest, narrator: Narrator) -> Recovery:
    """Put back whatever an earlier run left, prove it, and lift the quarantine. Raises `Dirty` when it is held."""
    with open_host_tree(request, narrator) as (place, session, reply):
        refuse_read_only(place.host_name, place.host)
        did = recover_remains(session, reply, place.ledger)
        proof = session.recover()["verify"] or _first_proof(session)
        if not proof["clean"]:
            raise not_clean(session, place.ledger, proof)
        if reply["service"] is not None or (reply["outcome"] and proof["service"]):
            await_service(session)
        _end_dead_runs(place.ledger, place.host_name)
        place.ledger.release(place.host_name, "recovered and proved clean")
        return Recovery(place.host_name, "clean", did, proof)


def _first_proof(session: HostSession) -> dict[str, Any]:
    """No run has come as far as taking the manifest, which comes before any change: what is there now is as found."""
    session.call("snapshot", {}, timeout_s=600.0)
    return session.call_back("verify", {}, timeout_s=600.0)


def _end_dead_runs(ledger: Ledger, host: str) -> None:
    """Runs that a kill left open. None of them lives: we hold the host."""
    while (run := ledger.unfinished_run(host=host)) is not None:
        ledger.abort_open(run.id, "its controller ended without a word")
        ledger.end_run(run.id, "failed")


def forget(request: HostRequest, narrator: Narrator) -> list[str]:
    """Remove what we keep on the host: state directory of the tree, agent cache. `Refused` while anything is open."""
    with host_place(request, narrator) as (place, session), sole_turn(request.state, place.host_name, session.clock):
        refuse_read_only(place.host_name, place.host)
        session.connect()
        session.probe([])
        asked = session.tree_request()
        asked["tree"] = asked.pop("root")
        reply = session.connection.call("forget", asked)
        return [str(path) for path in reply.get("removed", [])]


@contextmanager
def host_place(request: HostRequest, narrator: Narrator) -> Iterator[tuple[Place, HostSession]]:
    clock = SystemClock()
    with Interrupts(narrator.warn).installed() as interrupts:
        place = prepare_host(request.host, request.state, request.hosts, clock=clock)
        session = prepare_session(place, narrator, interrupts, clock, Costs(clock))
        try:
            yield place, session
        finally:
            session.hang_up()
            place.ledger.close()


@contextmanager
def open_host_tree(request: HostRequest, narrator: Narrator) -> Iterator[tuple[Place, HostSession, dict[str, Any]]]:
    """The tree is held for as long as this lasts, and given back where nothing is open on it."""
    with host_place(request, narrator) as (place, session), sole_turn(request.state, place.host_name, session.clock):
        session.connect()
        session.probe([])
        reply = session.open_tree()
        try:
            yield place, session, reply
        finally:
            _give_back(session)


def _give_back(session: HostSession) -> None:
    try:
        session.close()
    except (Dirty, Refused) as error:
        session.narrator.warn(f"{session.name}: the lease stays until it ends: {error.what}")
