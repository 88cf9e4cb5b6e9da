"""Before a launch: who holds our GPUs and our port, what of it may be ended, and a refusal that names the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.core.reaping import Decision, Identity, Kind, Ours, Policy, Process, decide
from orchestrator.errors import Dirty, Refused

if TYPE_CHECKING:
    from orchestrator.controller.session import HostSession

TERM_S = 5.0
KILL_S = 10.0


def look(session: HostSession) -> tuple[list[Process], list[Decision]]:
    """Everybody on our GPUs and port, with a decision and a sentence for each."""
    request = {"devices": list(session.host.gpu_devices), "port": session.target.port, "run_ids": []}
    seen = session.connection.call("processes", request)
    processes = [Process.from_agent(p) for p in seen["processes"]]
    return processes, decide(processes, _ours(session, seen), _policy(session))


def clear_host(session: HostSession) -> None:
    """End what may be ended. Raises `Refused` when somebody else holds the port or a GPU of ours."""
    processes, decisions = look(session)
    gone = end_allowed(session, decisions)
    left = [p for p in processes if p.pid not in gone]
    in_the_way = _in_the_way(session, left, decisions)
    if in_the_way:
        raise Refused(
            f"{session.name} is in use by others",
            facts={f"pid {p.pid}": why for p, why in in_the_way},
            hint="end them yourself, or agree with `reap: engine` or `reap: [PID, …]` in the inventory",
        )


def end_allowed(session: HostSession, decisions: Sequence[Decision]) -> set[int]:
    """End what the decisions allow, and return which. Raises `Dirty` for what does not go."""
    doomed = [d for d in decisions if d.end]
    if doomed:
        session.narrator.note(f"{session.name}: ending {len(doomed)} process(es): {doomed[0].why}")
        _end(session, doomed)
    return {d.pid for d in doomed}


def _end(session: HostSession, doomed: Sequence[Decision]) -> None:
    boot_id = session.hello["boot_id"]
    identities = [{"pid": d.pid, "start_ticks": d.start_ticks, "boot_id": boot_id} for d in doomed]
    request = {"identities": identities, "term_s": TERM_S, "kill_s": KILL_S}
    reply = session.call("end_processes", request, timeout_s=TERM_S + KILL_S + 30.0)
    if reply["survivors"]:
        facts = {f"pid {s['pid']}": str(s["why"]) for s in reply["survivors"]}
        raise Dirty(f"processes on {session.name} do not end", facts=facts)


def _in_the_way(
    session: HostSession, left: Sequence[Process], decisions: Sequence[Decision]
) -> list[tuple[Process, str]]:
    why = {d.pid: d for d in decisions}
    found = []
    for process in left:
        decision = why[process.pid]
        if decision.kind in (Kind.ANCESTOR, Kind.DEFUNCT):
            continue
        holds = session.target.port in process.listens or bool(_our_devices(session, process))
        if holds:
            found.append((process, f"{' '.join(process.cmdline)[:120]} — {decision.why}"))
    return found


def _our_devices(session: HostSession, process: Process) -> list[str]:
    """Devices of the target's own GPUs; a control device such as nvidiactl belongs to no card."""
    mine = session.target.gpus
    held = [d for d in process.devices if d.rstrip("0123456789") != d]
    if mine is None:
        return held
    return [d for d in held if int(d[len(d.rstrip("0123456789")) :]) in mine]


def _ours(session: HostSession, seen: Mapping[str, Any]) -> Ours:
    hello = session.hello
    identities = {Identity(i["pid"], i["start_ticks"]) for i in seen.get("journal_identities", [])}
    return Ours(
        run_ids=frozenset(seen.get("journal_run_ids", [])),
        identities=frozenset(identities),
        agent_pid=hello["pid"],
        agent_uid=hello["uid"],
    )


def _policy(session: HostSession) -> Policy:
    reap = session.host.reap
    python = session.target.python
    if isinstance(reap, tuple):
        return Policy(listed=tuple(Identity(pid) for pid in reap), port=session.target.port)
    return Policy(reap=reap, interpreters=frozenset({python}), port=session.target.port)
