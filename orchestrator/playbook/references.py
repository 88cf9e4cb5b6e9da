"""Names that point at one another: hypotheses, contexts, hosts, targets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from orchestrator.core.goal import parse_condition
from orchestrator.errors import Problem
from orchestrator.playbook.document import Document, KeyPath
from orchestrator.playbook.schema import suggest

DEFAULT_CONTEXTS = ("plain",)


def check_references(document: Document) -> Iterator[Problem]:
    """Complaints about names inside of one playbook; works on what is readable of a broken one."""
    rows = [(path, row) for path, row in _hypotheses(document.data) if isinstance(row.get("id"), str)]
    yield from _duplicates(document, rows)
    unknown = list(_unknown_predecessors(document, rows))
    yield from unknown
    if not unknown:
        yield from _cycle(document, rows)
    yield from _unknown_contexts(document)


def check_targets(document: Document, targets: Collection[str]) -> Iterator[Problem]:
    """Complaints about hosts that name a target nobody describes."""
    hosts = document.data.get("hosts")
    for name in hosts if isinstance(hosts, dict) else ():
        path = ("hosts", name, "target")
        target = document.at(path)
        if isinstance(target, str) and target not in targets:
            yield document.problem(f"there is no target `{target}`", path, hint=suggest(target, targets, "targets"))


def _hypotheses(data: Mapping[str, Any]) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    rows = data.get("hypotheses")
    for i, row in enumerate(rows if isinstance(rows, list) else []):
        if isinstance(row, dict):
            yield ("hypotheses", i), row


def names_at(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """The names in a value that is one name or a list of them, each with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        yield from (((*path, i), item) for i, item in enumerate(value) if isinstance(item, str))


_Rows = list[tuple[KeyPath, dict[str, Any]]]


def _duplicates(document: Document, rows: _Rows) -> Iterator[Problem]:
    first: dict[str, KeyPath] = {}
    for path, row in rows:
        name = row["id"]
        if name in first:
            line = document.place((*first[name], "id")).line
            hint = f"the first is in line {line}; give this one another id"
            yield document.problem(f"two hypotheses are called `{name}`", (*path, "id"), hint=hint)
        first.setdefault(name, path)


def _unknown_predecessors(document: Document, rows: _Rows) -> Iterator[Problem]:
    ids = [row["id"] for _, row in rows]
    for path, row in rows:
        for where, name in names_at(row.get("after"), (*path, "after")):
            if name == row["id"]:
                yield document.problem(f"`{name}` waits for itself", where)
            elif name not in ids:
                hint = suggest(name, [i for i in ids if i != row["id"]], "hypotheses")
                yield document.problem(f"there is no hypothesis `{name}`", where, hint=hint)


def _cycle(document: Document, rows: _Rows) -> Iterator[Problem]:
    graph = {row["id"]: [name for _, name in names_at(row.get("after"), ())] for _, row in rows}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        members: list[str] = error.args[1][1:]
        path, row = next((p, r) for p, r in rows if r["id"] in members)
        begin = members.index(row["id"])
        ring = [*members[begin:], *members[:begin], row["id"]]
        what = f"these hypotheses wait for one another: {' ← '.join(ring)}"
        yield document.problem(what, (*path, "after"), hint="remove one `after`")


def _unknown_contexts(document: Document) -> Iterator[Problem]:
    written = document.data.get("contexts")
    contexts = list(written) if isinstance(written, dict) else list(DEFAULT_CONTEXTS)
    for where, name in _named_contexts(document):
        if name not in contexts:
            hint = suggest(name, contexts, "contexts")
            yield document.problem(f"there is no context `{name}`", where, hint=hint)


def _named_contexts(document: Document) -> Iterator[tuple[KeyPath, str]]:
    """Every place that names a context, with the name."""
    for path, row in _hypotheses(document.data):
        yield from names_at(row.get("context"), (*path, "context"))
        parts = row.get("parts")
        for part, body in parts.items() if isinstance(parts, dict) else ():
            if isinstance(body, dict):
                yield from names_at(body.get("context"), (*path, "parts", part, "context"))
    for key in ("search", "bottleneck"):
        body = document.data.get(key)
        if isinstance(body, dict):
            yield from names_at(body.get("context"), (key, "context"))
    goal = document.data.get("goal")
    for where, text in names_at(goal.get("conditions") if isinstance(goal, dict) else None, ("goal", "conditions")):
        try:
            condition = parse_condition(text)
        except ValueError:  # reported by validation
            continue
        yield from ((where, key[0]) for key in (condition.left, condition.right) if key is not None)
