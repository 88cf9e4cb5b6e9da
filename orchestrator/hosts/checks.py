"""What the doctor says about a host it has reached: pure judgements of facts and of recorded outputs."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orchestrator.core.model import Target
from orchestrator.core.neighbours import SUGGESTION, advise, as_neighbours
from orchestrator.hosts.facts import Facts
from orchestrator.hosts.logout import Way, hint_for, logout_commands, plan_escape

_SHM = "/dev/shm"  # noqa: S108 - its size is the question
_SHM_KIB = 1 << 20  # NCCL and torch's loaders: below 1 GiB they fail with several ranks
_OPEN_FILES = 65536
_DISK_KIB = 1 << 20
_SWAPPABLE = frozenset({"ext2/ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "overlayfs"})
_NOT_SWAPPABLE = frozenset({"nfs", "v9fs", "9p", "fuseblk", "fuse", "smb2", "cifs", "msdos"})
_TIMEOUT_S = 10.0


class State(StrEnum):
    """How a step went. `skip`: not tried, since one before it failed."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Step:
    """One thing looked at, with a sentence a person can act on."""

    name: str
    state: State
    sentence: str
    hint: str | None = None


def check_commands(target: Target, user: str) -> list[dict[str, Any]]:
    """Requests for the agent's `run`. They look, and change nothing."""
    commands = {
        "writable": ["test", "-w", target.source or "."],
        "source_type": ["stat", "-f", "-c", "%T", target.source or "."],
        "model": ["test", "-e", target.model or "/"],
    }
    looks = [{"name": name, "argv": argv, "timeout_s": _TIMEOUT_S} for name, argv in commands.items()]
    return [*looks, *logout_commands(user)]


def judge_interpreter(facts: Facts, target: Target, engine_package: str | None) -> Iterator[Step]:
    """The server's python, the engine in it, and its sitecustomize."""
    problem = next((p for p in facts.problems if p.startswith("the server's python")), None)
    if problem:
        yield Step("server python", State.FAIL, problem, "correct `python:` of the target")
        return
    yield Step("server python", State.OK, f"Python {facts.python} in {facts.python_prefix}")
    if engine_package and not facts.engine_origin:
        hint = "is it a namespace package from the working directory, or another environment?"
        yield Step("engine", State.FAIL, f"{target.python} does not find {engine_package}", hint)
    elif engine_package:
        version = facts.packages.get(engine_package) or "of an unknown version"
        yield Step("engine", State.OK, f"{engine_package} {version} at {facts.engine_origin}")
    if facts.sitecustomize and not facts.is_sitecustomize_inside_environment:
        yield Step(
            "sitecustomize",
            State.OK,
            f"{facts.sitecustomize} serves other Pythons too and is never edited: blocks of ours run after it, from a "
            "directory of their own",
        )


def judge_gpus(facts: Facts, target: Target) -> Iterator[Step]:
    """The cards the target names, or any."""
    problem = next((p for p in facts.problems if not p.startswith("the server's python")), None)
    if problem:
        yield Step("gpus", State.WARN, problem, "without it GPU memory is neither recorded nor waited for")
        return
    names = sorted({gpu.name for gpu in facts.gpus})
    present = {gpu.index for gpu in facts.gpus}
    absent = sorted(set(target.gpus or ()) - present)
    if absent:
        yield Step("gpus", State.FAIL, f"there is no GPU {absent[0]}; there are {sorted(present)}", "correct `gpus:`")
    else:
        yield Step("gpus", State.OK, f"{len(facts.gpus)} × {', '.join(names)}, driver {facts.driver}")


def judge_source(facts: Facts, target: Target, outputs: Mapping[str, Mapping[str, Any]], kind: str) -> Iterator[Step]:
    """The tree to be changed: there, writable, on a filesystem that can swap two files. `kind` as in `read`."""
    source = target.source or (facts.engine_origin and posixpath.dirname(facts.engine_origin))
    if source is None:
        yield Step("source", State.FAIL, "the source tree is not known", "name it with `source:` in the target")
        return
    if kind != "dir":
        yield Step("source", State.FAIL, f"{source} is {'not there' if kind == 'absent' else f'a {kind}'}", None)
        return
    if outputs["writable"]["rc"] != 0 and target.tree == "shadow":
        yield Step("source", State.OK, f"{source} is read, and a copy of it is changed")
    elif outputs["writable"]["rc"] != 0:
        hint = f"log in as its owner, or put `sudo: true` into the route; or: {SUGGESTION}"
        yield Step("source", State.FAIL, f"{source} is not writable for the agent", hint)
    else:
        yield Step("source", State.OK, f"{source} is writable")
    yield judge_filesystem(outputs["source_type"]["stdout"].strip())
    if facts.disk and facts.disk.free_kib < _DISK_KIB:
        yield Step("disk", State.WARN, f"{facts.disk.free_kib >> 10} MiB free on {facts.disk.mount}")


def judge_sharing(
    target: Target,
    outputs: Mapping[str, Mapping[str, Any]],
    owner_uid: int | None,
    our_uid: int,
    seen: list[Mapping[str, Any]],
) -> Iterator[Step]:
    """Whether the tree is ours alone to change. `seen`: the agent's `neighbours`."""
    near = as_neighbours(seen)
    writable = outputs["writable"]["rc"] == 0
    reasons = advise(target.tree, near, is_writable=writable, owner_uid=owner_uid, our_uid=our_uid)
    for reason in reasons if writable else reasons[1:]:  # that it is not writable is said above
        yield Step("sharing", State.WARN, reason, SUGGESTION)
    if not reasons:
        yield Step("sharing", State.OK, "nobody else runs from the tree" if not near else "others are not disturbed")


def judge_filesystem(kind: str) -> Step:
    """By its name only: the agent tries it with two files of its own before the first change."""
    if kind in _NOT_SWAPPABLE or kind.startswith("fuse"):
        hint = "a slower way is tried there; put the tree on a local filesystem for the safest revert"
        return Step("filesystem", State.WARN, f"{kind} cannot swap two files in one step", hint)
    if kind in _SWAPPABLE:
        return Step("filesystem", State.OK, f"{kind} swaps two files in one step")
    return Step(
        "filesystem", State.WARN, f"{kind or 'an unknown filesystem'}: whether it can swap two files shows later"
    )


def judge_model(target: Target, outputs: Mapping[str, Mapping[str, Any]]) -> Iterator[Step]:
    """A path must exist; a name is looked up elsewhere."""
    if target.model is None:
        return
    if not target.model.startswith("/"):
        yield Step("model", State.OK, f"{target.model} is a name, to be found or fetched by the server")
    elif outputs["model"]["rc"] == 0:
        yield Step("model", State.OK, f"{target.model} is there")
    else:
        yield Step("model", State.FAIL, f"{target.model} is not there", "correct `model:` of the target")


def judge_port(target: Target, processes: list[Mapping[str, Any]]) -> Step:
    """By who listens, never by binding it: a port in TIME_WAIT is free."""
    for process in processes:
        if target.port in process["listens"]:
            command = " ".join(process["cmdline"])[:120]
            hint = "orchestrator host reap shows whether it may be ended"
            return Step("port", State.WARN, f"{target.port} is taken by pid {process['pid']}: {command}", hint)
    return Step("port", State.OK, f"nobody listens on {target.port}")


def judge_limits(facts: Facts) -> Iterator[Step]:
    """Limits that servers with several ranks run into."""
    files = facts.limits.open_files if facts.limits else None
    if files is not None and files < _OPEN_FILES:
        hint = "raise it in /etc/security/limits.conf or the service"
        yield Step("open files", State.WARN, f"{files} at the most; many connections need {_OPEN_FILES}", hint)
    elif facts.limits:
        yield Step("open files", State.OK, f"{files or 'unlimited'}")
    if facts.shm is None:
        yield Step(_SHM, State.WARN, "there is none", "NCCL and data loaders need it")
    elif facts.shm.free_kib < _SHM_KIB:
        hint = "start the container with --shm-size, or remove stale segments of dead servers"
        yield Step(_SHM, State.WARN, f"{facts.shm.free_kib >> 10} MiB free of {facts.shm.total_kib >> 10}", hint)
    else:
        yield Step(_SHM, State.OK, f"{facts.shm.free_kib >> 10} MiB free")


def judge_logind(outputs: Mapping[str, Mapping[str, Any]], user: str, uid: int) -> Step:
    """Whether a server outlives our login: systemd-logind may end everything a user left behind."""
    escape = plan_escape(outputs, user, uid)
    if escape.way is Way.NONE:
        return Step("logout", State.FAIL, escape.why, hint_for(user))
    return Step("logout", State.OK, escape.why)
