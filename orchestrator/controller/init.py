"""`init`: a look at a host that serves, and the playbook that has what it serves as its baseline. Changes nothing."""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.controller.clock import SystemClock
from orchestrator.controller.interrupts import Interrupts
from orchestrator.controller.narration import Costs, Narrator
from orchestrator.controller.neighbours import find_neighbours
from orchestrator.controller.session import HostSession
from orchestrator.core.drafting import ENGINE_WORDS, Draft, Live, read_live, write
from orchestrator.core.model import Host, Route, Target
from orchestrator.core.secrets import is_secret
from orchestrator.errors import OrchestratorError, Refused, UsageError
from orchestrator.serving.environment import BASE_NAMES

if TYPE_CHECKING:
    from orchestrator.hosts.facts import Facts

_SHOWN_VALUE = 200


@dataclass(frozen=True)
class InitRequest:
    """`host`: a name of the inventory, `local`, or a destination of SSH. `pid` and `port` choose among several."""

    host: str
    hosts: Path | None = None
    pid: int | None = None
    port: int | None = None


@dataclass(frozen=True)
class Drafted:
    """`text` of the playbook; `blanks`: what could not be found out, each with the command that would tell."""

    text: str
    server: str
    blanks: tuple[tuple[str, str], ...]


def draft_playbook(request: InitRequest, narrator: Narrator) -> Drafted:
    """Raises `Refused` where no server is found that could be launched again, `UsageError` where there are several."""
    host = host_of(request.host, request.hosts)
    clock = SystemClock()
    with Interrupts(narrator.warn).installed() as interrupts:
        first = _session(request.host, host, Target(), narrator, interrupts, clock)
        try:
            first.connect()
            live = choose(_find(first), request)
            session = _session(request.host, host, _target(live), narrator, interrupts, clock)
            session.adopt_connection(first)
            return _draft(request, host, session, live)
        finally:
            first.hang_up()


def host_of(name: str, hosts: Path | None) -> Host:
    """From the inventory where that has the name; else this machine, or one that SSH reaches."""
    from orchestrator.playbook import load_inventory

    beside = Path("hosts.yaml")
    path = hosts or (beside if beside.is_file() else None)
    known = load_inventory(path).hosts if path is not None else {}
    if name in known:
        return known[name]
    if hosts is not None and name != "local":
        raise UsageError(f"no host is called {name!r} in {hosts}", facts={"known": ", ".join(sorted(known)) or "none"})
    return Host(route=Route() if name == "local" else Route(ssh=name), target="found")


def choose(servers: list[Live], request: InitRequest) -> Live:
    """The one that is meant. Pure."""
    wanted = [
        one
        for one in servers
        if (request.pid is None or one.pid == request.pid) and (request.port is None or one.port == request.port)
    ]
    if len(wanted) == 1:
        return wanted[0]
    facts = {f"pid {one.pid}": one.sentence for one in servers}
    if not servers:
        raise Refused(
            f"no server of {' or '.join(ENGINE_WORDS)} that could be launched again is seen on {request.host}",
            hint="start it, or reach the host as its user, as root, or outside of the container it is in",
        )
    if not wanted:
        raise UsageError("none of the servers there is the one asked for", facts=facts)
    raise UsageError("several servers run there", facts=facts, hint="choose one with --pid or --port")


def _session(
    name: str, host: Host, target: Target, narrator: Narrator, interrupts: Interrupts, clock: SystemClock
) -> HostSession:
    return HostSession(
        name, host, target, token="", lease_s=0.0, narrator=narrator, interrupts=interrupts, clock=clock,
        costs=Costs(clock),
    )  # fmt: skip


def _find(session: HostSession) -> list[Live]:
    account = {name: value for name, value in session.base_env.items() if name in BASE_NAMES}
    servers = session.connection.call("service_find", {"words": list(ENGINE_WORDS)}, timeout_s=60.0)["servers"]
    return [one for seen in servers if (one := read_live(seen, account)) is not None]


def _target(live: Live) -> Target:
    return Target.model_validate(
        {
            "engine": live.engine,
            "python": live.python,
            "model": live.model,
            "gpus": live.gpus,
            "args": dict(live.args),
            "env": dict(live.env),
            "cwd": live.cwd,
            "port": live.port,
        }
    )


def _draft(request: InitRequest, host: Host, session: HostSession, live: Live) -> Drafted:
    blanks: list[tuple[str, str]] = []
    facts = session.probe([live.engine, "torch"])
    source = posixpath.dirname(facts.engine_origin) if facts.engine_origin else None
    if source is None:
        find = f"{live.python} -c 'import {live.engine}; print({live.engine}.__file__)'"
        blanks.append(("source: the root of the engine's tree", find))
    if live.model is None:
        blanks.append(("model: it is not on the command line", f"tr '\\0' '\\n' < /proc/{live.pid}/cmdline"))
    if live.service is None:
        why = live.seen["unclear"]["why"]
        blanks.append((f"service: {why}", f"cat /proc/{live.pid}/cgroup"))
    notes = [*_notes(session, facts, live, source), *_model_note(session, live)]
    draft = Draft(
        name=request.host,
        host=_host_keys(host),
        live=live,
        source=source,
        notes=notes,
        blanks=blanks,
        resolved=_resolved(session, live),
    )
    return Drafted(write(draft), live.sentence, tuple(blanks))


def _host_keys(host: Host) -> dict[str, Any]:
    keys = host.model_dump(mode="json", exclude={"target"}, exclude_defaults=True)
    keys.setdefault("route", "local")
    return keys


def _notes(session: HostSession, facts: Facts, live: Live, source: str | None) -> list[str]:
    """What a person should know before the first run, a sentence each."""
    packages = ", ".join(f"{name} {version}" for name, version in facts.packages.items() if version)
    notes = [f"interpreter: Python {facts.python or '?'}; {packages or 'no packages told'}"]
    cards = ", ".join(sorted({gpu.name for gpu in facts.gpus})) or "none seen"
    kinds = ", ".join(sorted({cell for row in facts.links for cell in row} - {"X", ""})) or "none told"
    notes.append(f"GPUs: {len(facts.gpus)} ({cards}); links: {kinds}; NUMA nodes: {facts.numa_nodes or '?'}")
    if source is None:
        return notes
    test = {"name": "writable", "argv": ["test", "-w", source], "timeout_s": 10.0}
    is_writable = session.connection.call("run", {"commands": [test]})["writable"]["rc"] == 0
    uid = session.connection.call("read", {"paths": [source], "max_bytes": 0})[source].get("uid")
    whose = "ours" if uid == session.hello["uid"] else f"of user {uid}"
    session.found_source = source
    theirs = {live.pid, *(one["pid"] for one in live.seen["above"])}
    others = [n for n in find_neighbours(session) if n.pid not in theirs and n.command not in live.sentence]
    notes.append(f"source tree: {source}, {whose}, {'writable' if is_writable else 'not writable: use `tree: shadow`'}")
    notes += [f"who else runs from it: pid {n.pid} of {n.user}: {n.command[:80]}" for n in others[:5]]
    return notes


def _model_note(session: HostSession, live: Live) -> list[str]:
    if live.model is None:
        return []
    path = live.model if live.model.startswith("/") else posixpath.join(live.cwd or "/", live.model)
    if session.connection.call("read", {"paths": [path], "max_bytes": 0})[path]["kind"] != "absent":
        return [f"weights: {path}"]
    cache = live.env.get("HF_HOME") or f"{session.hello.get('home')}/.cache/huggingface"
    folder = f"{cache}/hub/models--{live.model.replace('/', '--')}"
    found = session.connection.call("glob", {"patterns": [folder]})[folder]
    return [f"weights: {found[0]}" if found else f"weights: not seen; this would tell: ls {shlex.quote(cache)}/hub"]


def _resolved(session: HostSession, live: Live) -> dict[str, Any]:
    """Flags as the server resolved them, beyond its command line; without secrets and without what is unset."""
    path = session.engine.info_path()
    if path is None:
        return {}
    url = f"http://127.0.0.1:{live.port}{path}"
    try:
        reply = session.connection.call("http", {"method": "GET", "url": url, "timeout_s": 20.0})
        told: Mapping[str, Any] = session.engine.resolved(json.loads(reply["body"])) if reply["status"] == 200 else {}
    except (OrchestratorError, ValueError):  # it demands a key, or answers otherwise: then nothing is told of it
        return {}
    given = {name.replace("-", "_") for name in (*live.args, *live.secret_args, "model-path", "port")}
    return {
        name.replace("_", "-"): value
        for name, value in told.items()
        if name not in given and value not in (None, False, "", []) and not is_secret(name)
        and len(json.dumps(value)) < _SHOWN_VALUE
    }  # fmt: skip
