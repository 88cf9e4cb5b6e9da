"""`host …`: look at a host, prove it clean, put it back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from orchestrator.cli import diagnostics, options, output
from orchestrator.errors import Dirty, Findings, UsageError

if TYPE_CHECKING:
    from orchestrator.controller.hosts import HostRequest
    from orchestrator.controller.verification import Verification

Name = Annotated[str, typer.Argument(metavar="HOST", help="A host of the inventory.", show_default=False)]


def add(group: typer.Typer) -> None:
    for command in (doctor, verify, recover, release, reap, forget):
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
    failed = [s for s in steps if str(s.state) == "fail"]
    if as_json:
        output.emit_json({"host": host, "steps": [vars(s) for s in steps], "facts": facts})
        return 1 if failed else 0
    show_steps(steps)
    show_fingerprint(facts)
    if failed:
        raise Findings(f"{failed[0].name}: {failed[0].sentence}", hint=failed[0].hint)
    return 0


def verify(
    host: Name,
    against: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--against", metavar="REFERENCE", help="Compare with record, git:REV or manifest:FILE as well."),
    ] = None,
    save: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--save", metavar="FILE", help="Store the manifest of the tree as it is, for --against."),
    ] = None,
    hosts: options.Hosts = None,
    state: options.State = None,
    as_json: options.Json = False,
) -> int:
    """Prove or refute that nothing of ours is on the host, list all that can carry state, and show what else changed.

    Example: orchestrator host verify gpu1 --against record
    """
    from orchestrator.controller.verification import verify as prove

    done = prove(_request(host, state, hosts), diagnostics.narrator(), against=against, save=save)
    if as_json:
        output.emit_json(done.as_json())
        return 7 if done.is_ours else 1 if done.is_foreign else 0
    show_verification(done)
    if done.is_ours:
        raise Dirty(f"something of ours is still on {host}", hint=f"orchestrator host recover {host}")
    if done.is_foreign:
        raise Findings(f"{host} changed, and not by us")
    return 0


def show_verification(done: Verification) -> None:
    """Every carrier of state with its evidence, then the lines."""
    output.emit_table(("", "state", "", "evidence"), [
        (t.name, t.state, t.sentence, ", ".join(t.evidence[:3]) + (" …" if len(t.evidence) > 3 else ""))
        for t in done.things
    ])  # fmt: skip
    for held in done.held:
        output.emit(f"held: {held['path']}: {held['why']}; found lies at {held['found_at']}")
        for title, name in (("found → ours", "found_to_ours"), ("ours → theirs", "ours_to_theirs")):
            if held[name]:
                output.emit(f"{title}:\n{held[name].rstrip()}")
    for sentence in done.residue:
        output.emit(sentence)
    for diff in done.diffs.values():
        output.emit(diff.rstrip())
    if done.saved is not None:
        output.emit(f"stored: {done.saved} files")
    state = "NOT clean" if done.is_ours else "kept" if done.kept else "clean"
    output.emit(f"{done.host}: {state}")


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


def release(
    host: Name,
    keep_theirs: Annotated[bool, typer.Option("--keep-theirs", help="What lies there now stays.")] = False,
    restore_found: Annotated[bool, typer.Option("--restore-found", help="The files as found come back.")] = False,
    merge: Annotated[bool, typer.Option("--merge", help="Their edits, on top of the files as found.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")] = False,
    hosts: options.Hosts = None,
    state: options.State = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> int:
    """Decide what becomes of files that somebody else changed while ours was in place. What does not stay is kept.

    Example: orchestrator host release gpu1 --merge --dry-run
    """
    from orchestrator.controller.release import Choice
    from orchestrator.controller.release import release as settle

    said: dict[Choice, bool] = {"theirs": keep_theirs, "found": restore_found, "merge": merge}
    chosen = [choice for choice, is_said in said.items() if is_said]
    if len(chosen) != 1:
        raise UsageError(
            "say one of --keep-theirs, --restore-found, --merge", hint="--dry-run shows what each would do"
        )
    done = settle(_request(host, state, hosts, yes=yes), diagnostics.narrator(), chosen[0], dry_run=dry_run)
    if as_json:
        output.emit_json(vars(done))
        return 0
    for file in done.files:
        output.emit(f"{file['path']}: {file['does']}")
    for sentence in done.remarks:
        output.emit(sentence)
    for path in done.kept:
        output.emit(f"kept {path}")
    output.emit(f"{host}: {'nothing was changed' if dry_run else 'clean'}")
    return 0


def reap(
    host: Name,
    policy: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--policy", metavar="ours|engine", help="Instead of the inventory's `reap`."),
    ] = None,
    pids: Annotated[
        list[int], typer.Option("--pid", metavar="PID", help="End this process as well, whoever it belongs to.")
    ] = [],  # noqa: B006 - typer reads it as the default
    hosts: options.Hosts = None,
    state: options.State = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> int:
    """List who holds the GPUs and the port; with --yes, end those that the policy allows and wait for the memory.

    Example: orchestrator host reap gpu1 --policy engine --yes
    """
    from orchestrator.controller.holders import holders

    if policy not in (None, "ours", "engine") or (policy and pids):
        raise UsageError("--policy is ours or engine; --pid stands alone", facts={"policy": str(policy)})
    chosen = tuple(pids) if pids else policy
    seen = holders(_request(host, state, hosts, yes=yes), diagnostics.narrator(), chosen=chosen)
    if as_json:
        output.emit_json(seen.as_json())
        return 0
    output.emit_table(
        ("pid", "user", "age", "GPU MiB", "RSS MiB", "container", "holds", "", "why", "command"),
        [h.row() for h in seen.holders],
    )
    for sentence in (*seen.absent, *seen.sentences()):
        output.emit(sentence)
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
