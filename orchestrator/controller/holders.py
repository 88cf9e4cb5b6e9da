"""`host reap`: who holds a host's GPUs and port, what would become of each and why; and the ending of what may end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.controller import reap
from orchestrator.controller.session import refuse_read_only
from orchestrator.core.reaping import Decision, Kind, Process, absent
from orchestrator.errors import Dirty

if TYPE_CHECKING:
    from orchestrator.controller.hosts import HostRequest
    from orchestrator.controller.narration import Narrator
    from orchestrator.controller.session import HostSession
    from orchestrator.hosts.gputool import ComputeApp


@dataclass(frozen=True)
class Holder:
    """Somebody on our GPUs or port, and what would become of it. `gpu_mib` None where the driver does not tell."""

    pid: int
    user: str
    age_s: float
    command: str
    container: str | None
    holds: tuple[str, ...]
    gpu_mib: int | None
    rss_mib: int | None
    would_end: bool
    why: str

    def row(self) -> tuple[object, ...]:
        """For a table: unknown is a dash."""
        fate = "end" if self.would_end else "leave"
        numbers = ("–" if self.gpu_mib is None else self.gpu_mib, "–" if self.rss_mib is None else self.rss_mib)
        place = self.container or "–"
        who = (self.pid, self.user, f"{self.age_s:.0f} s", *numbers, place)
        return (*who, ", ".join(self.holds), fate, self.why, self.command)


@dataclass
class Reaped:
    """`above_idle_mib`: card → MiB above the recorded idle level, after the wait where something was ended."""

    host: str
    holders: list[Holder]
    absent: list[str] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    above_idle_mib: dict[int, int] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> list[str]:
        said = [f"ended {', '.join(map(str, self.ended))}"] if self.ended else []
        said += [f"GPU {index}: {mib} MiB above its idle level" for index, mib in self.above_idle_mib.items()]
        said += [f"removed {path}" for path in self.removed]
        return said + [f"left alone, not proved ours: {path}" for path in self.kept]


def holders(request: HostRequest, narrator: Narrator, *, chosen: str | tuple[int, ...] | None) -> Reaped:
    """Shows; with `request.yes` also ends what the policy allows, removes what dead processes of ours left, and waits
    until the memory is back. `chosen`: a policy instead of the inventory's. Raises `Dirty` with who still holds memory.
    """
    from orchestrator.controller.hosts import open_host_tree

    with open_host_tree(request, narrator) as (_, session, _reply):
        reaped = examine(session, chosen)
        if request.yes:
            refuse_read_only(session.name, session.host)
            carry_out(session, reaped, chosen)
        return reaped


def examine(session: HostSession, chosen: str | tuple[int, ...] | None) -> Reaped:
    """Who is there, and what the policy says of each. Changes nothing."""
    policy = reap.policy_of(session, chosen)
    seen = reap.look(session, policy)
    apps = compute_apps(session)
    memory: dict[int, int] = {}
    for app in apps:
        memory[app.pid] = memory.get(app.pid, 0) + (app.memory_mib or 0)
    listed = [
        _holder(process, decision, memory.get(process.pid) if process.devices else None)
        for process, decision in zip(seen.processes, seen.decisions, strict=True)
        if _matters(process, decision)
    ]
    holding = {p.pid for p in seen.processes if p.devices}
    strange = [app for app in apps if app.pid not in holding]
    listed += elsewhere(strange, _titles(session, [app.pid for app in strange]), seen.unreadable)
    reaped = Reaped(session.name, listed, absent=absent(seen.processes, policy.listed))
    if _gpus(session):
        reaped.above_idle_mib = session.idle.above(reap.used_memory(session), session.target.gpus)
    return reaped


def carry_out(session: HostSession, reaped: Reaped, chosen: str | tuple[int, ...] | None) -> None:
    """End, sweep, wait. What is ended is looked at anew: minutes may lie between a list and an agreement."""
    decisions = reap.look(session, reap.policy_of(session, chosen)).decisions
    reaped.ended = sorted(reap.end_allowed(session, decisions))
    swept = session.call("sweep", {})
    reaped.removed, reaped.kept = list(swept["removed"]), list(swept["kept"])
    if reaped.ended and _gpus(session):
        reap.await_idle_memory(session, Dirty)
        reaped.above_idle_mib = {}


def compute_apps(session: HostSession) -> list[ComputeApp]:
    """As the driver names them; empty where there is no GPU to ask about."""
    from orchestrator.hosts.gputool import compute_apps_command, parse_compute_apps

    if not _gpus(session):
        return []
    command = compute_apps_command(session.host.gpu_tool)
    return parse_compute_apps(session.connection.call("run", {"commands": [command]}, timeout_s=60.0))


def elsewhere(
    apps: Sequence[ComputeApp], titles: Mapping[int, str | None], unreadable: frozenset[int] = frozenset()
) -> list[Holder]:
    """Pids that the driver names and that are not seen to hold a GPU device here. Pure.

    The driver knows no pid namespaces: such a number belongs to another container, and here to nobody or to a process
    that has nothing to do with it. It is shown and never signalled.
    """
    shown = []
    for app in apps:
        title: str | None = titles.get(app.pid)
        place: str | None = "another pid namespace"
        if app.pid in unreadable:
            why, place = "the driver names it, and its open files cannot be read by us: unknown, not free", None
        else:
            here = f"here that number is `{title[:80]}`, without a GPU" if title else "no process here has that number"
            why = f"named by the driver as {app.name}; {here}: it is of {place}, and never signalled"
        holds, command = (app.gpu_uuid,), title if place is None and title else app.name
        shown.append(Holder(app.pid, "?", 0.0, command, place, holds, app.memory_mib, None, False, why))
    return shown


def _matters(process: Process, decision: Decision) -> bool:
    """Ancestors are asked for to follow descent; only those with a part in it are shown."""
    is_by_the_way = decision.kind in (Kind.FOREIGN, Kind.ANCESTOR, Kind.UNKNOWN)
    return bool(process.devices or process.listens) or decision.end or not is_by_the_way


def _holder(process: Process, decision: Decision, gpu_mib: int | None) -> Holder:
    return Holder(
        pid=process.pid,
        user=process.user,
        age_s=process.age_s,
        command=" ".join(process.cmdline),
        container=process.container,
        holds=(*process.devices, *(f"port {port}" for port in process.listens)),
        gpu_mib=gpu_mib,
        rss_mib=process.rss_kib // 1024,
        would_end=decision.end,
        why=decision.why,
    )


def _gpus(session: HostSession) -> bool:
    return bool(session.facts.gpus)


def _titles(session: HostSession, strange: Sequence[int]) -> dict[int, str | None]:
    """Command lines of pids, None where there is no such process."""
    if not strange:
        return {}
    import base64

    paths = {pid: f"/proc/{pid}/cmdline" for pid in strange}
    reply = session.connection.call("read", {"paths": list(paths.values()), "max_bytes": 4096})
    words = {pid: base64.b64decode(reply[path].get("content_b64") or "") for pid, path in paths.items()}
    return {pid: raw.replace(b"\0", b" ").decode("utf-8", "replace").strip() or None for pid, raw in words.items()}
