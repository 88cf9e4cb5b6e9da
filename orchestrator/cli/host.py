"""`host …`: look at a host, prove it clean, put it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import diagnostics, options, output
from orchestrator.errors import Dirty, Findings

if TYPE_CHECKING:
    from orchestrator.controller.hosts import HostRequest

Name = Annotated[str, typer.Argument(metavar="HOST", help="A host of the inventory.", show_default=False)]


def add(group: typer.Typer) -> None:
    for command in (doctor, verify, recover, reap, forget):
        group.command(command.__name__)(command)


def _request(host: str, state: options.State, hosts: options.Hosts, *, yes: bool = False) -> HostRequest:
    from orchestrator.controller.hosts import HostRequest

    config = options.settings(state, hosts)
    return HostRequest(host, config.state.value, config.hosts.value, yes)


def doctor(host: Name, hosts: options.Hosts = None, state: options.State = None, as_json: options.Json = False) -> int:
    """Check the whole route step by step, and print the host's fingerprint. Changes nothing.

    Example: orchestrator host doctor gpu1 --hosts hosts.yaml
    """
    from orchestrator.cli.fingerprint import show_fingerprint, show_steps
    from orchestrator.controller.hosts import examine

    steps, facts = examine(_request(host, state, hosts), diagnostics.narrator())
    if as_json:
        output.emit_json({"host": host, "steps": [vars(s) for s in steps], "facts": facts})
    else:
        show_steps(steps)
        show_fingerprint(facts)
    failed = [s for s in steps if str(s.state) == "fail"]
    if failed:
        raise Findings(f"{failed[0].name}: {failed[0].sentence}", hint=failed[0].hint)
    return 0


def verify(host: Name, hosts: options.Hosts = None, state: options.State = None, as_json: options.Json = False) -> int:
    """Prove or refute that nothing of ours is on the host, and show what else changed since it was last found.

    Example: orchestrator host verify gpu1
    """
    from orchestrator.controller.hosts import verify as prove

    proof = prove(_request(host, state, hosts), diagnostics.narrator())
    if as_json:
        output.emit_json(proof)
    else:
        for difference in proof["differences"]:
            whose = "ours" if difference["ours"] else "not ours"
            output.emit(f"{difference['what']} ({whose}): {difference['path']}")
        output.emit(f"{host}: {'clean' if proof['clean'] and not proof['pending'] else 'NOT clean'}")
    if proof["pending"] or not proof["clean"]:
        raise Dirty(f"a change of ours is still on {host}", hint=f"orchestrator host recover {host}")
    if proof["differences"]:
        raise Findings(f"{len(proof['differences'])} path(s) changed on {host}, none of them by us")
    return 0


def recover(
    host: Name,
    hosts: options.Hosts = None,
    state: options.State = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> int:
    """Put back whatever a run that was cut off left on the host, and prove it.

    Example: orchestrator host recover gpu1
    """
    from orchestrator.controller.hosts import recover as put_back

    recovery = put_back(_request(host, state, hosts, yes=yes), diagnostics.narrator())
    if as_json:
        output.emit_json(vars(recovery))
    else:
        for sentence in recovery.did or ["nothing was left to put back"]:
            output.emit(sentence)
        output.emit(f"{host}: {recovery.state}")
    return 0


def reap(
    host: Name,
    hosts: options.Hosts = None,
    state: options.State = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> int:
    """List who holds the GPUs and the port; with --yes, end those that the host's policy allows.

    Example: orchestrator host reap gpu1
    """
    from orchestrator.controller.hosts import holders

    listed = holders(_request(host, state, hosts, yes=yes), diagnostics.narrator(), end=yes)
    if as_json:
        output.emit_json({"host": host, "ended": yes, "holders": [vars(h) for h in listed]})
        return 0
    rows = [
        (h.pid, h.user, f"{h.age_s:.0f} s", ", ".join(h.holds), "end" if h.would_end else "leave", h.why, h.command)
        for h in listed
    ]
    output.emit_table(("pid", "user", "age", "holds", "", "why", "command"), rows)
    return 0


def forget(
    host: Name,
    hosts: options.Hosts = None,
    state: options.State = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> int:
    """Remove what we keep on the host: the state directory beside the tree, and the agent's cache.

    Example: orchestrator host forget gpu1
    """
    from orchestrator.controller.hosts import forget as remove

    removed = remove(_request(host, state, hosts, yes=yes), diagnostics.narrator())
    if as_json:
        output.emit_json({"host": host, "removed": removed})
    else:
        for path in removed:
            output.emit(f"removed {path}")
        output.emit(f"{host}: nothing of ours is kept there any more")
    return 0
