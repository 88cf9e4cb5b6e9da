"""What a target says of the host that no host can take as it is meant: relative paths, GPUs named twice, no command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.errors import Problem
from orchestrator.playbook.document import Document, KeyPath

_ABSOLUTE = ("source", "cwd")


def check_targets(document: Document) -> Iterator[Problem]:
    """Complaints about the targets of a playbook or an inventory, those written inside a host included."""
    for path, target in _targets(document.data):
        yield from _paths(document, path, target)
        yield from _gpus(document, path, target)
        if target.get("launch") == []:
            hint = "name the program and its words, such as [/usr/bin/server, --port, '{port}']"
            yield document.problem("`launch` is empty", (*path, "launch"), hint=hint)


def check_flags(document: Document, path: KeyPath, flags: Mapping[str, Any]) -> Iterator[Problem]:
    """Complaints about flags that the engine would be given twice."""
    seen: dict[str, str] = {}
    for name in flags:
        folded = name.lstrip("-").replace("_", "-")
        if folded in seen:
            yield document.problem(f"`{name}` and `{seen[folded]}` are one flag", (*path, name), key=True)
        seen.setdefault(folded, name)
        if folded == "port":
            hint = "write `port:` beside `args:` in the target"
            yield document.problem(
                "the port belongs to the target, not to its flags", (*path, name), key=True, hint=hint
            )


def _targets(data: Any) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:  # noqa: ANN401 - plain data
    if not isinstance(data, dict):
        return
    for group, inner in (("targets", ()), ("hosts", ("target",))):
        members = data.get(group)
        for name, member in members.items() if isinstance(members, dict) else ():
            target = member.get("target") if inner and isinstance(member, dict) else member
            if isinstance(target, dict):
                yield (group, name, *inner), target


def _paths(document: Document, path: KeyPath, target: Mapping[str, Any]) -> Iterator[Problem]:
    for key in _ABSOLUTE:
        if isinstance(target.get(key), str):
            yield from _absolute(document, (*path, key), target[key])
    guarded = target.get("guarded")
    for index, one in enumerate(guarded if isinstance(guarded, list) else ()):
        if isinstance(one, str):
            yield from _absolute(document, (*path, "guarded", index), one)
    python = target.get("python")
    if isinstance(python, str) and "/" in python:
        yield from _absolute(document, (*path, "python"), python)
    health = target.get("health")
    if isinstance(health, str) and not health.startswith("/"):
        yield document.problem(f"{health!r} is not the path of a URL", (*path, "health"), hint=f"/{health}")


def _absolute(document: Document, path: KeyPath, value: str) -> Iterator[Problem]:
    if not value.startswith("/"):
        yield document.problem(f"{value!r} is not absolute: nothing on the host says what it begins at", path)
    elif not value.strip("/"):
        yield document.problem("this is the whole file system", path, hint="name the directory that matters")


def _gpus(document: Document, path: KeyPath, target: Mapping[str, Any]) -> Iterator[Problem]:
    gpus = target.get("gpus")
    seen: set[int] = set()
    for index, gpu in enumerate(gpus if isinstance(gpus, list) else ()):
        if not isinstance(gpu, int) or isinstance(gpu, bool):
            continue
        if gpu < 0:
            yield document.problem(f"there is no GPU {gpu}", (*path, "gpus", index), hint="indices begin at 0")
        elif gpu in seen:
            yield document.problem(f"GPU {gpu} is named twice", (*path, "gpus", index))
        seen.add(gpu)
