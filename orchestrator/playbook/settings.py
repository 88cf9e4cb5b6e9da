"""Flags, variables and limits that are well formed and still make no sense."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.core.model import ArgsChange, Change, Context, EnvChange, FileChange, FlagValue, Hypothesis, Target
from orchestrator.core.patching.paths import UnsafePath, safe_path
from orchestrator.core.units import parse_duration
from orchestrator.core.versions import BadVersion, satisfies
from orchestrator.errors import Problem
from orchestrator.playbook.document import Document, KeyPath
from orchestrator.playbook.targets import check_flags, check_targets

_ONE_HOST = "one controller tunes one host: the journal, the lease and the proof cover one machine"
_SPANS = {"nnodes": 1, "node-rank": 0}
"""Flags that make a server span machines, and the most they may be."""

_POSITIVE = ("lease", "limit", "stall", "connect_timeout", "keepalive")
_CAPABILITY = re.compile(r"([0-9]+(\.[0-9]+)?|(sm|compute)_?[0-9]{2,3})[af]?", re.IGNORECASE)


def check_settings(document: Document) -> Iterator[Problem]:
    """Complaints about the flags, paths and limits of a playbook or an inventory, broken ones included."""
    for path, value in _walk(document.data, ()):
        if isinstance(value, dict) and path[-1:] == ("args",):
            yield from _flags(document, path, value)
            yield from check_flags(document, path, value)
        if isinstance(value, list) and path[-1:] == ("launch",):
            yield from _launch(document, path, value)
        if path[-1:] and path[-1] in _POSITIVE and _is_zero(value):
            yield document.problem(f"`{path[-1]}` must be more than nothing", path)
    yield from check_targets(document)
    yield from _direction(document)
    yield from _requirements(document)
    yield from _paths(document)


def check_effect(
    document: Document, path: KeyPath, hypothesis: Hypothesis, target: Target, contexts: Mapping[str, Context]
) -> Iterator[Problem]:
    """A complaint about a hypothesis that leaves flags and variables as they are wherever it is judged."""
    judged_in = [contexts[name] for name in hypothesis.context or contexts if name in contexts]
    if judged_in and all(_changes_nothing(hypothesis, target, context) for context in judged_in):
        what = f"`{hypothesis.id}` changes nothing: its flags and variables are those of the baseline"
        yield document.problem(what, (*path, "changes"), hint="give other values, or remove the hypothesis")


def check_contradictions(document: Document, path: KeyPath, hypothesis: Hypothesis) -> Iterator[Problem]:
    """Complaints about two changes of one hypothesis that set the same flag, variable or file."""
    seen: set[tuple[type, str]] = set()
    for i, change in enumerate(hypothesis.changes):
        for name, place in _set_by(change, (*path, "changes", i)):
            if (type(change), name) in seen:
                is_key = not isinstance(change, FileChange)
                yield document.problem(f"`{name}` is set twice in `{hypothesis.id}`", place, key=is_key)
            seen.add((type(change), name))


def _set_by(change: Change, path: KeyPath) -> list[tuple[str, KeyPath]]:
    if isinstance(change, EnvChange):
        return [(name, (*path, "env", name)) for name in change.env]
    if isinstance(change, ArgsChange):
        return [(name, (*path, "args", name)) for name in change.args]
    if isinstance(change, FileChange):
        return [(change.file.path, (*path, "file", "path"))]
    return []


def _walk(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:  # noqa: ANN401 - plain data
    """Every value under a key of ours: what hosts, targets, contexts, flags and variables are called is free."""
    is_named = path[-2:-1] in (("hosts",), ("targets",), ("contexts",))
    if not is_named:
        yield path, value
        if path and path[-1] in ("args", "env"):
            return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _walk(item, (*path, key))


def _flags(document: Document, path: KeyPath, flags: Mapping[str, Any]) -> Iterator[Problem]:
    for name, value in flags.items():
        where = (*path, name)
        bare = name.lstrip("-")
        if bare != name:
            yield document.problem(
                f"a flag is written without its dashes: `{name}`", where, key=True, hint=f"`{bare}:`"
            )
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", bare):
            hint = "one flag is one key, and its value follows the colon"
            yield document.problem(f"`{name}` is not the name of a flag", where, key=True, hint=hint)
        if _spans_machines(bare, value):
            yield _span_problem(document, where, bare, value)


def _spans_machines(flag: str, value: object) -> bool:
    most = _SPANS.get(flag.replace("_", "-"))
    return most is not None and str(value).isdecimal() and int(str(value)) > most


def _span_problem(document: Document, path: KeyPath, flag: str, value: object) -> Problem:
    return document.problem(f"`{flag}: {value}` spans machines: {_ONE_HOST}", path, hint="tune each machine by itself")


def _launch(document: Document, path: KeyPath, words: list[Any]) -> Iterator[Problem]:
    """The same flags in the command of a `command` engine: `--nnodes 2`, `--nnodes=2`."""
    for i, word in enumerate(words):
        flag, equals, value = str(word).partition("=")
        value = value if equals else words[i + 1] if i + 1 < len(words) else ""
        if flag.startswith("--") and _spans_machines(flag[2:], value):
            yield _span_problem(document, (*path, i), flag[2:], value)


def _is_zero(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return parse_duration(value) == 0
    except ValueError:  # reported by validation
        return False


def _direction(document: Document) -> Iterator[Problem]:
    """The default direction suits throughput; a time that shall rise is a slip."""
    measure = document.data.get("measure")
    is_time = isinstance(measure, dict) and str(measure.get("metric")).endswith("_ms")
    if isinstance(measure, dict) and is_time and measure.get("direction", "higher") == "higher":
        path = ("measure", "direction" if "direction" in measure else "metric")
        yield document.problem(f"`{measure['metric']}` is a time: less is better", path, hint="direction: lower")


def _requirements(document: Document) -> Iterator[Problem]:
    """What no host can meet, since it cannot be read, would come out as not applicable everywhere."""
    for path, value in _walk(document.data, ()):
        if not isinstance(value, str):
            continue
        if path[-3:-1] == ("requires", "packages"):
            try:
                for part in value.split(","):
                    satisfies("0", part)  # one at a time: the first that is unmet would hide the others
            except BadVersion as error:
                yield document.problem(str(error), path, hint="such as '>=0.5.22,<0.6', or '*' for present")
        elif path[-3:-1] == ("requires", "gpu_arch") and not _CAPABILITY.fullmatch(value):
            yield document.problem(f"{value!r} is not a compute capability", path, hint="such as '12.0'")


def _paths(document: Document) -> Iterator[Problem]:
    """Paths below the source tree must stay there; only a `file` change may be absolute."""
    for path, value in _walk(document.data, ()):
        if not isinstance(value, str):
            continue
        if "edits" in path and path[-1] == "file":
            yield from _unsafe(document, path, value)
        elif path[-2:] == ("file", "path"):
            yield from _unsafe(document, path, value.lstrip("/"))
        elif path[-3:-1] == ("requires", "files"):
            yield from _unsafe(document, path, value.rstrip("/"))
        elif path[-1] == "replace" and "edits" in path and document.at((*path[:-1], "find")) == value:
            yield document.problem("this edit changes nothing: `replace` is `find`", path)


def _unsafe(document: Document, path: KeyPath, value: str) -> Iterator[Problem]:
    try:
        safe_path(value)
    except UnsafePath as error:
        yield document.problem(str(error), path, hint="paths begin at the directory that holds the source tree")


def _changes_nothing(hypothesis: Hypothesis, target: Target, context: Context) -> bool:
    flags, variables = {**target.args, **context.args}, {**target.env, **context.env}
    for change in hypothesis.changes:
        if isinstance(change, ArgsChange):
            if any(_flag(value) != _flag(flags.get(name)) for name, value in change.args.items()):
                return False
        elif isinstance(change, EnvChange):
            if any(value != variables.get(name) for name, value in change.env.items()):
                return False
        else:
            return False
    return True


def _flag(value: FlagValue) -> FlagValue:
    """`false` and `null` both mean that the flag is absent, and 8 is passed as '8'."""
    if value is None or value is False:
        return None
    return str(value) if isinstance(value, int | float) and value is not True else value
