"""Before a launch: who holds our GPUs and our port, what of it may be ended, and a refusal that names the rest."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.reaping import Decision, Identity, Kind, Ours, Policy, Process, decide
from orchestrator.errors import Dirty, Refused, Unreachable

if TYPE_CHECKING:
    from orchestrator.controller.session import HostSession

TERM_S = 5.0
KILL_S = 10.0
MEMORY_DEADLINE_S = 60.0
PROVED_S = 5.0
"""A proof that the memory is idle holds this long: the end of one arm serves the beginning of the next."""
AHEAD_S = 1.0
"""What was seen at the end of one launch serves the beginning of the next for so long."""
TIME_WAIT_S = 75.0
"""The kernel keeps a closed connection's port for 60 s."""
_ANYWHERE = frozenset({"0.0.0.0", "::", "127.0.0.1", "::1", "::ffff:127.0.0.1"})  # noqa: S104 - compared, not bound


@dataclass(frozen=True)
class Look:
    """Everybody on our GPUs and port, with a decision for each; `port` as the agent found it."""

    processes: list[Process]
    decisions: list[Decision]
    port: Mapping[str, Any] = field(default_factory=dict)
    unreadable: frozenset[int] = frozenset()


def look(session: HostSession, policy: Policy | None = None) -> Look:
    """`policy`: instead of the inventory's. Whatever is ours by the journal is there too, wherever it is."""
    policy = policy or policy_of(session)
    return _judge(session, policy, session.connection.call("processes", _question(session, policy)))


def _question(session: HostSession, policy: Policy) -> dict[str, Any]:
    named = [one.pid for one in policy.listed]
    return {"devices": list(session.host.gpu_devices), "port": session.target.port, "run_ids": [], "pids": named}


def look_ahead(session: HostSession) -> None:
    """What the next launch wants to know first, asked while this end is being written down."""
    with contextlib.suppress(Unreachable):  # whoever asks next meets the same loss, and reports it
        answer = session.connection.submit("processes", _question(session, policy_of(session)))
        session.ahead = session.clock.monotonic(), answer


def _first_look(session: HostSession) -> Look:
    """The look that was taken ahead, where it is fresh and found nothing to act on."""
    asked_at, answer = session.ahead or (float("-inf"), None)
    session.ahead = None
    if answer is None or session.clock.monotonic() - asked_at > AHEAD_S:
        return look(session)
    wait([answer], AHEAD_S)
    if not answer.done() or answer.exception() is not None:
        return look(session)
    ahead = _judge(session, policy_of(session), answer.result())
    to_act_on = any(d.end for d in ahead.decisions) or _in_the_way(session, ahead.processes, ahead.decisions)
    return look(session) if to_act_on else ahead


def _judge(session: HostSession, policy: Policy, seen: Mapping[str, Any]) -> Look:
    processes = [Process.from_agent(p) for p in seen["processes"]]
    decisions = decide(processes, _ours(session, seen), policy)
    return Look(processes, decisions, seen.get("port") or {}, frozenset(seen.get("unreadable", ())))


def clear_host(session: HostSession) -> None:
    """End what may be ended, wait for port and memory. Raises `Refused` when somebody else holds the port or a GPU of
    ours."""
    seen = _first_look(session)
    gone = end_allowed(session, seen.decisions)
    left = [p for p in seen.processes if p.pid not in gone]
    in_the_way = _in_the_way(session, left, seen.decisions)
    if in_the_way:
        raise Refused(
            f"{session.name} is in use by others",
            facts={f"pid {p.pid}": why for p, why in in_the_way},
            hint="end them yourself, or agree with `reap: engine` or `reap: [PID, …]` in the inventory",
        )
    await_port(session, look(session).port if gone else seen.port)
    await_idle_memory(session, Refused)


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


# ---------------------------------------------------------------- the port


def await_port(session: HostSession, port: Mapping[str, Any]) -> None:
    """Until the engine could bind its port. Raises `Refused` for a listener whose process we cannot see."""
    deadline = session.clock.monotonic() + TIME_WAIT_S
    pause = threading.Event()
    is_told = False
    while (problem := port_problem(port, reuses_address=session.engine.reuses_address)) is not None:
        if not problem.may_pass or session.clock.monotonic() > deadline:
            raise Refused(f"port {session.target.port} of {session.name} is not free: {problem.sentence}")
        if not is_told:
            session.narrator.note(f"{session.name}: {problem.sentence}; waiting for it, at most {TIME_WAIT_S:.0f} s")
            is_told = True
        session.interrupts.check()
        pause.wait(0.5)
        port = look(session).port


@dataclass(frozen=True)
class PortProblem:
    """`may_pass`: time alone ends it, and there is no process to look for."""

    sentence: str
    may_pass: bool


def port_problem(port: Mapping[str, Any], *, reuses_address: bool) -> PortProblem | None:
    """Why a server could not bind this port, from what the agent saw. Pure.

    Only a listener holds a port against a server that sets SO_REUSEADDR; without it a connection that was closed within
    the last minute is enough (TIME_WAIT), and nobody owns that.
    """
    unseen = [one for one in port.get("listeners", ()) if not one["pids"] and one["address"] in _ANYWHERE]
    if unseen:
        what = "a listener whose process cannot be seen from here, of another user or another container"
        return PortProblem(f"{what}, on {unseen[0]['address']}", may_pass=False)
    refusal = port.get("refused_reuse" if reuses_address else "refused_plain")
    if refusal is None or any(one["pids"] for one in port.get("listeners", ())):
        return None  # free, or held by somebody who is named elsewhere
    states = dict(port.get("states", {}))
    if refusal == "EADDRINUSE" and states.get("TIME_WAIT"):
        return PortProblem(f"nobody listens, and {states['TIME_WAIT']} closed connection(s) are in TIME_WAIT", True)
    if refusal == "EADDRINUSE" and states:
        held = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return PortProblem(f"nobody listens, and connections still use it: {held}", True)
    return PortProblem(f"it cannot be bound: {refusal}", may_pass=False)


# ---------------------------------------------------------------- memory


def await_idle_memory(session: HostSession, error: type[Refused] | type[Dirty]) -> None:
    """Until every GPU of the target is back at its recorded idle level. Raises `error` with who still holds it."""
    if not session.facts.gpus or session.clock.monotonic() - session.idle_proved_at < PROVED_S:
        return
    deadline = session.clock.monotonic() + MEMORY_DEADLINE_S
    pause = threading.Event()
    while above := session.idle.above(used_memory(session), session.target.gpus):
        if session.clock.monotonic() > deadline:
            raise error(
                f"GPU memory of {session.name} does not come back to its idle level",
                facts={**_levels(session, above), **_who_holds(session)},
                hint=f"orchestrator host reap {session.name}",
            )
        pause.wait(0.3)
    session.idle_proved_at = session.clock.monotonic()


def begin_idle_wait(session: HostSession) -> Future[None]:
    """`await_idle_memory` beside the files' way back: asking the driver takes longer than that does."""
    idle: Future[None] = Future()

    def await_it() -> None:
        try:
            await_idle_memory(session, Dirty)
        except BaseException as error:
            idle.set_exception(error)
        else:
            idle.set_result(None)

    threading.Thread(target=await_it, name="idle memory", daemon=True).start()
    return idle


def used_memory(session: HostSession) -> dict[int, int]:
    """MiB in use, card by card."""
    from orchestrator.hosts.gputool import memory_command, parse_memory

    reply = session.connection.call("run", {"commands": [memory_command(session.host.gpu_tool)]}, timeout_s=60.0)
    used = parse_memory(reply)
    session.idle.observe(used)
    return used


def _levels(session: HostSession, above: Mapping[int, int]) -> dict[str, str]:
    return {f"GPU {i}": f"{mib} MiB above its idle level of {session.idle.level(i)} MiB" for i, mib in above.items()}


def _who_holds(session: HostSession) -> dict[str, str]:
    holders = [p for p in look(session).processes if _our_devices(session, p)]
    return {f"pid {p.pid}": f"of {p.user}: {' '.join(p.cmdline)[:120]}" for p in holders} or {
        "holders": "nobody that can be seen from here"
    }


# ---------------------------------------------------------------- who is in the way


def _in_the_way(
    session: HostSession, left: Sequence[Process], decisions: Sequence[Decision]
) -> list[tuple[Process, str]]:
    why = {d.pid: d for d in decisions}
    found = []
    for process in left:
        decision = why[process.pid]
        if decision.kind in (Kind.ANCESTOR, Kind.AGENT, Kind.DEFUNCT, Kind.MONITOR):
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


def policy_of(session: HostSession, reap: str | tuple[int, ...] | None = None) -> Policy:
    """What may be ended: as `reap` says, else as the inventory does."""
    reap = session.host.reap if reap is None else reap
    if isinstance(reap, tuple):
        return Policy(listed=tuple(Identity(pid) for pid in reap), port=session.target.port)
    kind: Any = reap
    return Policy(reap=kind, interpreters=interpreters_of(session), port=session.target.port)


def interpreters_of(session: HostSession) -> frozenset[str]:
    """The target's interpreter, as it is called and as it may appear in /proc/PID/exe."""
    return frozenset({session.target.python})
