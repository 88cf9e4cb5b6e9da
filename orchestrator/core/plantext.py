"""A plan that people write in Markdown: its items read, and what became of them written beside them.

An item is a checkbox with an id and a claim; what is indented below it belongs to it:

    - [ ] fewer-channels: fewer NCCL channels lower the latency of a small all-reduce
      - expect: 5%
      - after: fusion
      - change: NCCL_MAX_NCHANNELS=2
      Anything else is prose, and stays.

Headings `Family: NAME` name the family of the items below them. A fenced block `yaml` holds whatever else a hypothesis
may say. Lines that end in `MARK` are ours: they are written anew at every export and never read. The box is the only
other thing that an export changes: `[ ]` open, `[~]` running, `[x]` done, `[-]` dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MARK = "<!-- orchestrator -->"
FIELDS = ("why", "expect", "family", "after", "context", "requires", "change", "bundle", "revisit_when", "marker")

_ITEM = re.compile(
    r"([ \t]{0,3}[-*+] \[)([ xX~-])(\] [`*_]{0,2})([A-Za-z0-9][A-Za-z0-9._-]{0,79})([`*_]{0,2}:(?:[ \t]+|$))(.*)"
)
_BOX = re.compile(r"[ \t]{0,3}[-*+] \[[ xX~-]\] ")
_FIELD = re.compile(rf"[ \t]+[-*+][ \t]+({'|'.join(f.replace('_', '[_ ]') for f in FIELDS)}):[ \t]*(.*)", re.IGNORECASE)
_HEADING = re.compile(r"#{1,6}[ \t]+(.*?)[ \t#]*$")
_FAMILY = re.compile(r"family:?[ \t]+(.+)", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*(\w*)")


@dataclass(frozen=True)
class Item:
    """`line` counts from 1, `last` is the item's last line that is not blank and not ours; `box` is as written."""

    id: str
    claim: str
    box: str
    line: int
    last: int
    family: str = ""
    fields: tuple[tuple[str, str, int], ...] = ()  # name, value, line
    yaml: str = ""
    yaml_line: int = 0


@dataclass(frozen=True)
class Outcome:
    """What an export writes of one item: its box, and one line, empty for none."""

    box: str
    line: str = ""


@dataclass(frozen=True)
class PlanText:
    items: tuple[Item, ...] = ()
    unread: tuple[tuple[int, str], ...] = ()  # checkboxes without an id: line, text


@dataclass
class _Reader:
    items: list[Item] = field(default_factory=list)
    unread: list[tuple[int, str]] = field(default_factory=list)
    family: str = ""


def read_plan(text: str) -> PlanText:
    """The items of a plan, in order. Text of any shape is read; what is no item is prose."""
    lines = text.split("\n")
    reader = _Reader()
    at, fence = 0, ""
    while at < len(lines):
        line = lines[at].rstrip("\r")
        opened = _FENCE.match(line)
        if fence:
            fence = "" if opened and opened[1].startswith(fence) and not opened[2] else fence
        elif opened:
            fence = opened[1]
        elif heading := _HEADING.fullmatch(line):
            named = _FAMILY.fullmatch(heading[1])
            reader.family = named[1].strip("`* ") if named else ""
        elif found := _ITEM.fullmatch(line):
            end = _end_of(lines, at)
            reader.items.append(_item(lines, at, end, found, reader.family))
            at = end
            continue
        elif _BOX.match(line):
            reader.unread.append((at + 1, line.strip()))
        at += 1
    return PlanText(tuple(reader.items), tuple(reader.unread))


def _end_of(lines: Sequence[str], start: int) -> int:
    """The index after the item's body: lines that are blank, or indented by two or more."""
    at = start + 1
    while at < len(lines) and (not lines[at].strip() or lines[at].startswith(("  ", "\t"))):
        if _ITEM.fullmatch(lines[at].rstrip("\r")):
            break
        at += 1
    return at


def _item(lines: Sequence[str], start: int, end: int, found: re.Match[str], family: str) -> Item:
    fields: list[tuple[str, str, int]] = []
    yaml: list[str] = []
    yaml_line, fence, is_yaml, last = 0, "", False, start
    for at in range(start + 1, end):
        line = lines[at].rstrip("\r")
        if not line.strip() or line.endswith(MARK):
            yaml += [""] if is_yaml and not line.strip() else []
            continue
        last = at
        opened = _FENCE.match(line)
        if fence:
            if opened and opened[1].startswith(fence) and not opened[2]:
                fence, is_yaml = "", False
            elif is_yaml:
                yaml.append(line)
        elif opened:
            fence, is_yaml = opened[1], opened[2].lower() in ("yaml", "yml") and not yaml_line
            yaml_line = at + 1 if is_yaml else yaml_line
        elif stated := _FIELD.fullmatch(line):
            fields.append((stated[1].lower().replace(" ", "_"), stated[2].strip(), at + 1))
    return Item(
        found[4], found[6].strip(), found[2], start + 1, last + 1, family, tuple(fields), "\n".join(yaml), yaml_line
    )


def write_plan(text: str, outcomes: Mapping[str, Outcome]) -> str:
    """The plan with boxes and outcomes as given, by id; items without one keep their box and lose our line. Everything
    else is as it was, byte for byte."""
    lines = text.split("\n")
    for item in reversed(read_plan(text).items):
        outcome = outcomes.get(item.id)
        start, end = item.line - 1, _end_of(lines, item.line - 1)
        ours = [at for at in range(start + 1, end) if lines[at].rstrip("\r").endswith(MARK)]
        for at in reversed(ours):
            del lines[at]
        if outcome is None:
            continue
        found = _ITEM.fullmatch(lines[start].rstrip("\r"))
        if found is not None and outcome.box != found[2].lower():
            head = len(found[1])
            lines[start] = lines[start][:head] + outcome.box + lines[start][head + 1 :]
        if outcome.line:
            last = item.last - 1 - sum(at < item.last for at in ours)
            ending = "\r" if lines[start].endswith("\r") else ""
            lines.insert(last + 1, f"  - {outcome.line} {MARK}{ending}")
    return "\n".join(lines)


def without_ours(text: str) -> str:
    """The plan without what exports wrote into it, boxes aside."""
    return write_plan(text, {})


def new_item(id: str, claim: str, fields: Sequence[tuple[str, str]], yaml: str = "") -> str:
    """An item as a person would write it, to be put at the end of a plan."""
    body = [f"- [ ] {id}: {' '.join(claim.split())}"]
    body += [f"  - {name}: {' '.join(value.split())}" for name, value in fields if value]
    if yaml:
        body += ["  ```yaml", *(f"  {line}" if line else "" for line in yaml.rstrip("\n").split("\n")), "  ```"]
    return "\n".join(body) + "\n"
