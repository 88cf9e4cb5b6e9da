"""What serves when we come: stopped for the time of a run, and back at its end, or the host is dirty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.core.services import Absent, Decision, Refusal, containers, systemd
from orchestrator.errors import Dirty, Refused, Unreachable

if TYPE_CHECKING:
    from orchestrator.controller.session import HostSession
    from orchestrator.core.model import Service
    from orchestrator.ledger import Ledger

_STOP_S = 180.0
_SLACK_S = 60.0
_ASK_S = 90.0


def hold_service(session: HostSession, ledger: Ledger, run_id: int | None = None) -> None:
    """Stop what the target names as its service. Where nobody serves, nothing is done and nothing will be started.
    Raises `Refused` when it is not to be stopped from here; it serves on then."""
    service = session.target.service
    if service is None:
        return
    request = stop_request(session)
    if request is None:
        return
    session.narrator.phase(session.name, "service", service.sentence)
    start = session.clock.monotonic()
    intent = ledger.intend("service_stop", {"service": service.sentence}, host=session.name, run_id=run_id)
    with session.costs.timed("service"):
        reply = session.call("service_stop", request, timeout_s=session.target.stop_grace + _STOP_S)
    session.holds_service = reply["state"] == "stopped"
    ledger.settle(intent, str(reply["state"]), {"pid": reply["pid"], "already": reply["already"]})
    said = "stopped" if session.holds_service else "nobody serves; nothing will be started"
    session.narrator.phase_done(session.name, "service", session.clock.monotonic() - start, said)


def stop_request(session: HostSession) -> dict[str, Any] | None:
    """What the agent's `service_stop` takes; None where nothing runs that could be stopped. Raises `Refused`."""
    target, service = session.target, session.target.service
    assert service is not None
    request: dict[str, Any] = {"port": target.port, "grace_s": target.stop_grace}
    if service.process is not None:
        return {**request, "kind": "process", "start": list(service.process.start or ())}
    decision = _ask_manager(session, service)
    if isinstance(decision, Refusal):
        raise Refused(f"{session.name}: {decision.why}", hint=decision.hint)
    if isinstance(decision, Absent):
        session.narrator.note(f"{session.name}: {decision.why}; nothing is stopped, and nothing will be started")
        return None
    for remark in decision.remarks:
        session.narrator.warn(f"{session.name}: {remark}")
    commands = {"stop": decision.stop, "start": decision.start, "check": decision.check, "expect": decision.expect}
    return {**request, "kind": "systemd" if service.systemd is not None else "container", "commands": commands}


def _ask_manager(session: HostSession, service: Service) -> Decision:
    if service.systemd is not None:
        commands = systemd.look_commands(service.systemd, user=service.user)
        replies = session.connection.call("run", {"commands": commands}, timeout_s=_ASK_S)
        uid = int(session.hello["uid"])
        return systemd.decide(replies.get("show"), service.systemd, user=service.user, uid=uid)
    name = str(service.docker)
    replies = session.connection.call("run", {"commands": containers.look_commands(name)}, timeout_s=_ASK_S)
    return containers.decide(replies, name, grace_s=session.target.stop_grace)


def give_service_back(session: HostSession) -> dict[str, Any] | None:
    """Start what was stopped and wait until it answers as it did before; None where nothing was stopped. Raises `Dirty`
    with what is known when it does not."""
    if not session.holds_service:
        return None
    session.holds_service = False  # from here on whoever recovers the host gives it back as well
    start = session.clock.monotonic()
    session.narrator.phase(session.name, "service", "giving it back")
    try:
        session.call("service_start", {}, timeout_s=_STOP_S)
    except Unreachable as lost:
        session.narrator.warn(f"{session.name}: {lost.what}; connecting again to give the service back")
        session.reconnect(lost)
        session.recover()
    waited = await_service(session)
    session.narrator.phase_done(session.name, "service", session.clock.monotonic() - start, "ok")
    return waited


def await_service(session: HostSession) -> dict[str, Any]:
    """Until what served before answers again: same command line, environment, directory and user, under a supervisor
    like the one it had. Raises `Dirty` after the target's `ready.limit`."""
    limit_s = session.target.ready.limit
    health = str(session.engine.ready_spec(session.target, "")["health"])
    request = {"limit_s": limit_s, "health": health}
    try:
        waited = session.connection.call("service_await", request, timeout_s=limit_s + _SLACK_S)
    except Unreachable as lost:
        session.reconnect(lost)
        waited = session.connection.call("service_await", request, timeout_s=limit_s + _SLACK_S)
    if waited["state"] != "same":
        raise not_back(session, waited)
    return dict(waited)


def not_back(session: HostSession, waited: Mapping[str, Any]) -> Dirty:
    return Dirty(
        f"what served before on port {session.target.port} of {session.name} is not back: {waited['why']}",
        facts={"state": str(waited["state"]), "pid": str(waited["pid"] or "none")},
        hint=f"orchestrator host recover {session.name}; its output is in the state directory's service.log, "
        "where it did not go to a file before",
    )
