"""Whether a tree is ours alone to change: who else runs from it, whose it is, and what to do about that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.neighbours import SUGGESTION, Neighbour, advise, as_neighbours
from orchestrator.errors import Refused

if TYPE_CHECKING:
    from orchestrator.controller.session import HostSession


def find_neighbours(session: HostSession) -> list[Neighbour]:
    """Not those that an earlier run of ours has left: they are ended before anything is launched."""
    request = {"python": session.target.python, "source": session.found_source}
    seen = session.connection.call("neighbours", request)["processes"]
    return as_neighbours(seen)


def refuse_neighbours(session: HostSession, *, yes: bool) -> None:
    """Before the first change in place. Raises `Refused` with their names unless a person agreed."""
    if session.target.tree != "in_place":
        return
    near = find_neighbours(session)
    if not near:
        return
    if yes:
        for neighbour in near:
            session.narrator.warn(f"{session.name}: agreed to change the tree of {neighbour}")
        return
    raise Refused(
        f"others run from the tree of {session.name}: a restart of theirs would run our experiment",
        facts={f"pid {n.pid}": f"{n.user}: {n.why}: {n.command}" for n in near},
        hint=f"{SUGGESTION}; or agree with --yes",
    )


def advice_for(session: HostSession) -> list[str]:
    """What `plan` says before a run."""
    source = session.found_source
    test = {"name": "writable", "argv": ["test", "-w", source], "timeout_s": 10.0}
    reply = session.connection.call("run", {"commands": [test]})
    entry = session.connection.call("read", {"paths": [source], "max_bytes": 0})[source]
    reasons = advise(
        session.target.tree,
        find_neighbours(session),
        is_writable=reply["writable"]["rc"] == 0,
        owner_uid=entry.get("uid"),
        our_uid=int(session.hello["uid"]),
    )
    return [f"{reason}. {SUGGESTION}" for reason in reasons]
