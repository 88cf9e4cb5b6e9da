"""A plan in Markdown and the todo: taken in whole or not at all, and given back as people wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.controller.acts import record_act
from orchestrator.controller.records import text_of
from orchestrator.controller.todo import refuse_patch_files, rerank
from orchestrator.core import todo
from orchestrator.core.plantext import Item, Outcome, new_item, read_plan, write_plan
from orchestrator.core.units import AS_WRITTEN, show_percent
from orchestrator.errors import Place, PlaybookError, Problem, UsageError

if TYPE_CHECKING:
    from orchestrator.core.model import Hypothesis
    from orchestrator.core.records import TodoRow
    from orchestrator.ledger import Ledger

BOXES = {"open": " ", "running": "~", "done": "x", "skipped": "-"}
_LISTS = ("after", "context", "revisit_when")
_SHORT = ("why", "expect", "family", "after", "context", "bundle", "marker")


@dataclass
class Imported:
    """What an import did, by ids; `unread` are checkboxes without an id, and items that nothing can be done with."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    taken_up: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def import_plan(ledger: Ledger, campaign: str, path: Path) -> Imported:
    """Raises `PlaybookError` with every problem and its line; nothing was taken in then."""
    text = text_of(path)
    plan, done = read_plan(text), Imported()
    done.unread += [f"line {line}: {shown} (no `id: claim`)" for line, shown in plan.unread]
    known = {row.id: row for row in ledger.todo(campaign)}
    problems = _twice(plan.items, path)
    hypotheses: dict[str, Hypothesis] = {}
    for item in plan.items:
        try:
            made = _hypothesis(item, known.get(item.id), path)
        except PlaybookError as error:
            problems += error.problems
            continue
        if made is None:
            done.unread.append(f"line {item.line}: {item.id} (no changes yet: give `change:` or a yaml block)")
        else:
            hypotheses[item.id] = made
    if problems:
        raise PlaybookError(problems)
    with ledger.batch():
        for item in plan.items:
            if item.id in hypotheses:
                _take_in(ledger, campaign, hypotheses[item.id], known.get(item.id), done)
                _take_box(ledger, campaign, item, done)
        ledger.keep_plan(campaign, text)
        rerank(ledger, campaign)
        record_act(ledger, "todo_import", campaign, {"file": str(path), **vars(done)})
    return done


def _twice(items: Sequence[Item], path: Path) -> list[Problem]:
    first: dict[str, int] = {}
    problems = []
    for item in items:
        if first.setdefault(item.id, item.line) != item.line:
            where = Place(str(path), item.line)
            problems.append(Problem(f"{item.id} is there twice", where, facts={"first": f"line {first[item.id]}"}))
    return problems


def _take_in(ledger: Ledger, campaign: str, made: Hypothesis, row: TodoRow | None, done: Imported) -> None:
    if row is None:
        ledger.add_todo(campaign, made, origin="person", reason="from a plan")
        done.added.append(made.id)
    elif made != row.as_hypothesis():
        ledger.upsert_hypotheses(campaign, [made])
        done.changed.append(made.id)


def _take_box(ledger: Ledger, campaign: str, item: Item, done: Imported) -> None:
    """Boxes that a person set: `[-]` or `[x]` on an open row drops it, `[ ]` on a dropped one takes it up again. A box
    that is behind what was carried out since says nothing."""
    status = ledger.todo_row(campaign, item.id).status
    if item.box in "-xX" and status == "open":
        word = "dropped" if item.box == "-" else "ticked off"
        ledger.set_status(campaign, item.id, "skipped", f"dropped: {word} by hand in the plan")
        done.dropped.append(item.id)
    elif item.box == " " and status == "skipped":
        ledger.set_status(campaign, item.id, "open", "taken up again by hand in the plan")
        done.taken_up.append(item.id)


def _hypothesis(item: Item, row: TodoRow | None, path: Path) -> Hypothesis | None:
    """What the item says, over what is known of its row; None while there are no changes."""
    from pydantic import ValidationError

    from orchestrator.core.model import Hypothesis

    known = dict(row.hypothesis) if row is not None else {}
    said = {"id": item.id, **({"claim": item.claim} if item.claim else {})}
    family = {"family": item.family} if item.family else {}
    values = {**known, **said, **family, **_fields(item, path), **_block(item, path)}
    if not values.get("changes"):
        return None
    try:
        made = Hypothesis.model_validate(values, context=AS_WRITTEN)
        _refuse_new_files(made, row)
    except ValidationError as error:
        raise PlaybookError([_misfit(item, path, details) for details in error.errors()]) from error
    except UsageError as error:
        raise PlaybookError([Problem(error.what, Place(str(path), item.line), error.hint)]) from error
    return made


def _refuse_new_files(made: Hypothesis, row: TodoRow | None) -> None:
    if row is None or row.as_hypothesis().changes != made.changes:
        refuse_patch_files(made)


def _misfit(item: Item, path: Path, details: Any) -> Problem:  # noqa: ANN401 - one of pydantic's
    where = ".".join(str(part) for part in details["loc"])
    keys = [line.split(":")[0].strip() for line in item.yaml.split("\n")]
    lines = {key: item.yaml_line + n for n, key in reversed(list(enumerate(keys, start=1)))}
    lines |= {name: line for name, _, line in item.fields}
    line = lines.get(str(details["loc"][0]) if details["loc"] else "", item.yaml_line or item.line)
    words = details["msg"].removeprefix("Value error, ")
    return Problem(f"{item.id}: {where}: {words}" if where else f"{item.id}: {words}", Place(str(path), line))


def _fields(item: Item, path: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    changes: list[dict[str, Any]] = []
    for name, text, line in item.fields:
        if name == "change":
            changes.append(_change(text, Place(str(path), line)))
        elif name == "requires":
            values["requires"] = _requires(text)
        elif name in _LISTS:
            values[name] = _words(text)
        else:
            values[name] = text
    return values | ({"changes": changes} if changes else {})


def hypothesis_from_words(
    hypothesis_id: str,
    said: Mapping[str, Any],
    *,
    env: Sequence[str] = (),
    flags: Sequence[str] = (),
    requires: Sequence[str] = (),
) -> Hypothesis:
    """One from a command line: `NAME=VALUE` for variables (`NAME` unsets) and flags (`NAME` is bare). Raises
    `UsageError`."""
    from pydantic import ValidationError

    from orchestrator.core.model import Hypothesis

    variables, words = (dict(_pair(text) for text in texts) for texts in (env, flags))
    changes: list[dict[str, Any]] = [{"env": variables}] if variables else []
    if words:
        changes.append({"args": {name.lstrip("-"): True if v is None else v for name, v in words.items()}})
    values = {"id": hypothesis_id, "changes": changes, **{key: value for key, value in said.items() if value}}
    if requires:
        values["requires"] = _requires(", ".join(requires))
    if not changes:
        raise UsageError(f"{hypothesis_id} changes nothing", hint="--env NAME=VALUE or --flag NAME=VALUE")
    try:
        return Hypothesis.model_validate(values, context=AS_WRITTEN)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{where}: {first['msg'].removeprefix('Value error, ')}".removeprefix(": ")) from error


def _pair(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    return name, value if equals else None


def _words(text: str) -> list[str]:
    return [word.strip(" `") for word in text.split(",") if word.strip(" `")]


def _change(text: str, where: Place) -> dict[str, Any]:
    """`NAME=VALUE …`, `unset NAME`, `--flag value`."""
    plain = text.strip("` ")
    if plain.startswith("--"):
        words = plain.split()
        flag = words[0].removeprefix("--")
        return {"args": {flag: True if len(words) == 1 else words[1] if len(words) == 2 else words[1:]}}
    if gone := re.fullmatch(r"unset ([A-Za-z_]\w*)", plain):
        return {"env": {gone[1]: None}}
    pairs = [re.fullmatch(r"([A-Za-z_]\w*)=(.*)", word) for word in plain.split()]
    if not pairs or None in pairs:
        hint = "NAME=VALUE, unset NAME, or --flag value; anything else in a yaml block"
        raise PlaybookError([Problem(f"{text!r} is no change", where, hint)])
    return {"env": {pair[1]: pair[2] for pair in pairs if pair is not None}}


def _requires(text: str) -> dict[str, Any]:
    """`sglang >=0.5.8, gpu_arch 12.0, file srt/x.py`."""
    packages: dict[str, str] = {}
    arches, files = [], []
    for part in _words(text):
        name, _, condition = part.partition(" ")
        if name == "gpu_arch":
            arches.append(condition.strip())
        elif name == "file":
            files.append(condition.strip())
        elif found := re.fullmatch(r"([A-Za-z0-9._-]+?)\s*([<>=!~].*)?", part):
            packages[found[1]] = (found[2] or "*").replace(" ", "")
        else:
            packages[part] = "*"
    return {k: v for k, v in (("packages", packages), ("gpu_arch", arches), ("files", files)) if v}


def _block(item: Item, path: Path) -> dict[str, Any]:
    """The item's fenced block, as YAML."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if not item.yaml.strip():
        return {}
    try:
        value = YAML(typ="safe", pure=True).load(item.yaml.expandtabs(2))
    except YAMLError as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        line = item.yaml_line + 1 + (mark.line if mark is not None else 0)
        what = getattr(error, "problem", None) or "this is no YAML"
        raise PlaybookError([Problem(f"{item.id}: {what}", Place(str(path), line))]) from error
    if not isinstance(value, Mapping):
        where = Place(str(path), item.yaml_line)
        raise PlaybookError([Problem(f"{item.id}: the block must be keys of a hypothesis", where, "such as changes:")])
    return {str(key): part for key, part in value.items()}


# ---------------------------------------------------------------- export


def export_plan(ledger: Ledger, campaign: str, base: str | None = None) -> str:
    """The plan with what became of its items: `base` where it is given (the file as it is now), else the plan that was
    imported last, else a new one. Rows that it lacks are put at its end, as items of its own from then on."""
    text = base if base is not None else ledger.plan(campaign)
    rows, findings = ledger.todo(campaign), ledger.findings(campaign)
    if text is None:
        text = f"# Plan of {campaign}\n"
    written = {item.id for item in read_plan(text).items}
    missing = [row for row in rows if row.id not in written]
    if missing:
        text = text.rstrip("\n") + "\n\n" + _added(missing, has_heading="## Added\n" in text)
    outcomes = {s.row.id: Outcome(BOXES[s.row.status], _line(s)) for s in todo.standings(rows, findings)}
    text = write_plan(text, outcomes)
    ledger.keep_plan(campaign, text)
    return text


def _line(standing: todo.Standing) -> str:
    """What became of a row, on one line that Markdown reads as text."""
    if not standing.findings and standing.row.status == "open":
        return ""
    plain = " ".join(standing.sentence.split())
    return re.sub(r"([\\`*_\[\]<>])", r"\\\1", plain)


def _added(rows: Sequence[TodoRow], *, has_heading: bool) -> str:
    items = []
    for row in rows:
        told = {**row.hypothesis, "expect": show_percent(row.expect) if row.expect is not None else ""}
        fields = [(name, ", ".join(v) if isinstance(v := told.get(name) or "", list) else v) for name in _SHORT]
        rest = {k: v for k, v in row.hypothesis.items() if k not in (*_SHORT, "id", "claim")}
        items.append(new_item(row.id, str(row.hypothesis.get("claim", "")), fields, _yaml(rest)))
    return ("" if has_heading else "## Added\n\n") + "".join(items)


def _yaml(values: Mapping[str, Any]) -> str:
    import io

    from ruamel.yaml import YAML

    out = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = 4096
    yaml.dump(dict(values), out)
    return out.getvalue()
