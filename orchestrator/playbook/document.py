"""A YAML file as plain data, with the place of every key and value.

Built from the event stream of ruamel.yaml, not by its constructor: so every duplicate key is reported, numbers keep the
text they were written as, and nothing in the file can name a Python type. YAML 1.2 core rules decide what a plain
scalar is (`no` is text), with two exceptions: a number with a leading zero stays text, since nobody means 10 by `010`,
and so do infinity and not-a-number, for which JSON has no word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from orchestrator.errors import Place, PlaybookError, Problem
from orchestrator.playbook.source import Text, read_text

KeyPath = tuple[str | int, ...]
"""Keys and indices from the root to a value."""

_MOST_DEPTH = 60
_MOST_VALUES = 50_000  # anchors of anchors grow exponentially

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,299})")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]{1,200}|0x[0-9a-fA-F]{1,200}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")

_COMPLAINTS: tuple[tuple[str, str, str], ...] = (
    ("character '\\t'", "a tab, where YAML wants blanks", "indent with blanks"),
    ("that cannot start any token", "no value may begin with this character", "put the value in quotes"),
    (
        "mapping values are not",
        "a colon where no key can stand",
        "check the indentation; quote a value with `: ` in it",
    ),
    ("unexpected ':'", "a colon where no key can stand", "put the value in quotes"),
    ("expected ',' or ']'", "a list in brackets is not closed", "close it with ]"),
    ("expected ',' or '}'", "a mapping in braces is not closed", "close it with }"),
    ("unexpected end of stream", "a quote is not closed", "close it"),
    ("unexpected document separator", "a quote is not closed", "close it"),
    ("unknown escape character", "an escape that YAML does not know", "double the backslash, or use single quotes"),
    ("escape sequence of", "an escape that is cut short", "double the backslash, or use single quotes"),
    ("could not find expected ':'", "a line without a colon", "write `key: value`"),
    ("expected <block end>", "this does not fit the indentation above it", "entries of one list begin in one column"),
    ("expected '<document start>'", "this does not belong to what is above it", "check the indentation"),
    ("sequence entries are not", "a list item where none can stand", "begin the list in a line of its own"),
    ("mapping keys are not", "a key where none can stand", "check the indentation"),
    ("more indented follow up", "the text after | or > is indented unevenly", "indent its first line the least"),
    ("undefined tag handle", "tags are not used here", "put the value in quotes"),
    ("expected the node content", "a value is missing here", "write one, or put the text in quotes"),
    ("expected alphabetic or numeric", "& and * begin an anchor or an alias", "put the value in quotes"),
    ("chomping or indentation", "after | or > the text begins in the next line", "move it there, indented"),
)
"""What the scanner says → what we say, and what to do."""


@dataclass
class Document:
    """Plain data with places. `data` holds only dict, list, str, int, float, bool and None."""

    text: Text
    data: dict[str, Any] = field(default_factory=dict)
    values: dict[KeyPath, int] = field(default_factory=dict)  # path → index of the first character
    keys: dict[KeyPath, int] = field(default_factory=dict)
    written: dict[KeyPath, str] = field(default_factory=dict)  # scalars that became something other than text

    def place(self, path: KeyPath, *, key: bool = False) -> Place:
        """The place of the value at `path`, or of its key; of the nearest parent where the path ends early."""
        if key and path in self.keys:
            return self.text.place(self.keys[path])
        while path and path not in self.values:
            path = path[:-1]
        return self.text.place(self.values.get(path, 0))

    def at(self, path: KeyPath) -> Any:  # noqa: ANN401 - plain data
        """The data at `path`, or None where there is none."""
        value: Any = self.data
        for part in path:
            is_there = (
                part in value if isinstance(value, dict) else isinstance(value, list) and part in range(len(value))
            )
            value = value[part] if is_there else None
        return value

    def problem(self, what: str, path: KeyPath, *, key: bool = False, hint: str | None = None) -> Problem:
        return Problem(what, self.place(path, key=key), hint)


def read_document(path: Path) -> tuple[Document, list[Problem]]:
    """The file, and what is wrong with it as YAML. Raises `PlaybookError` where there is nothing to go on with."""
    text = read_text(path)
    found = _FORBIDDEN.search(text.content)
    if found:
        what = f"the character U+{ord(found[0]):04X} is not allowed in YAML"
        raise PlaybookError([Problem(what, text.place(found.start()), "write it as an escape in double quotes")])
    try:
        events = list(YAML(typ="rt", pure=True).parse(text.content))
    except MarkedYAMLError as error:
        raise PlaybookError([_syntax_problem(error, text)]) from error
    except (YAMLError, ValueError, OverflowError) as error:  # the last two: an escape beyond Unicode
        raise PlaybookError([Problem(f"not valid YAML: {error}", Place(text.name))]) from error
    return _Builder(text, events).run()


def _syntax_problem(error: MarkedYAMLError, text: Text) -> Problem:
    said = str(error.problem or error.context or error).split("\n")[0]
    known = ((what, hint) for part, what, hint in _COMPLAINTS if part in said)
    what, hint = next(known, (f"not valid YAML: {said}", None))
    mark, begun = error.problem_mark or error.context_mark, error.context_mark
    if "could not find expected" in said:  # noticed in the next line
        mark = begun
    facts = {"begun in line": str(begun.line + 1)} if begun and mark and begun.line != mark.line else {}
    return Problem(what, text.place(mark.index) if mark else Place(text.name), hint, facts)


def scalar(value: str) -> str | int | float | bool | None:
    """A plain scalar by the rules above."""
    if value in _NULL:
        return None
    if value in _BOOL:
        return _BOOL[value]
    if _INT.fullmatch(value):
        return int(value)
    if _OCTAL_OR_HEX.fullmatch(value):
        return int(value, 0)
    if _FLOAT.fullmatch(value) and math.isfinite(float(value)):
        return float(value)
    return value


@dataclass(frozen=True)
class _Node:
    """A scalar (with the text it was written as), a list or a mapping, and the index of its first character."""

    at: int
    text: str = ""
    is_plain: bool = False
    items: Sequence[_Node] | None = None
    pairs: Sequence[tuple[_Node, _Node]] | None = None

    @property
    def is_scalar(self) -> bool:
        return self.items is None and self.pairs is None

    @property
    def is_absent(self) -> bool:
        return self.is_plain and not self.text

    @property
    def is_merge(self) -> bool:
        return self.is_plain and self.text == "<<"


class _Builder:
    """Events → nodes → data. Complaints that leave the rest readable are collected."""

    def __init__(self, text: Text, events: Sequence[Any]) -> None:
        self.text = text
        self.events: Iterator[Any] = iter(events)
        self.document = Document(text)
        self.problems: list[Problem] = []
        self.anchors: dict[str, _Node] = {}
        self.count = 0

    def run(self) -> tuple[Document, list[Problem]]:
        root = self._root()
        if root is None or (root.is_scalar and not root.text):
            raise PlaybookError([Problem(f"{self.text.name} is empty", Place(self.text.name))])
        if root.pairs is None:
            raise self._hopeless("the file must be a mapping: lines of `key: value`", root.at)
        self.document.data = self._value(root, (), as_text=False)
        return self.document, self.problems

    def _complain(self, what: str, at: int, hint: str | None = None) -> None:
        problem = Problem(what, self.text.place(at), hint)
        if problem not in self.problems:  # an anchor is read once for every alias
            self.problems.append(problem)

    def _hopeless(self, what: str, at: int) -> PlaybookError:
        return PlaybookError([*self.problems, Problem(what, self.text.place(at))])

    # events → nodes

    def _root(self) -> _Node | None:
        """The first document; a second one is a problem."""
        root = None
        for event in self.events:
            if not isinstance(event, DocumentStartEvent):
                continue
            if root is not None:
                self._complain("a second document begins here", event.start_mark.index, "one file, one document")
                break
            if event.version or event.tags:
                self._complain("YAML directives are not used here", 0, "remove the lines that begin with %")
            root = self._node(next(self.events), 0)
        return root

    def _node(self, event: Any, depth: int) -> _Node:  # noqa: ANN401 - events are untyped
        at: int = event.start_mark.index
        if depth > _MOST_DEPTH:
            raise self._hopeless("nested too deeply", at)
        if isinstance(event, AliasEvent):
            known = self.anchors.get(event.anchor)
            if known is None:
                raise self._hopeless(f"nothing before this is anchored as &{event.anchor}", at)
            return replace(known, at=at)
        tag = str(event.ctag or "")
        if tag and not tag.endswith(":str"):
            self._complain(f"the tag {tag} is not used here", at, "write the plain value")
        node = self._inner(event, at, depth)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _inner(self, event: Any, at: int, depth: int) -> _Node:  # noqa: ANN401 - events are untyped
        if isinstance(event, MappingStartEvent):
            pairs = []
            while not isinstance(key := next(self.events), MappingEndEvent):
                pairs.append((self._node(key, depth + 1), self._node(next(self.events), depth + 1)))
            return _Node(at, pairs=pairs)
        if isinstance(event, SequenceStartEvent):
            items = []
            while not isinstance(item := next(self.events), SequenceEndEvent):
                items.append(self._node(item, depth + 1))
            return _Node(at, items=items)
        if event.start_mark.index == event.end_mark.index:  # no value at all: not where the next thing begins
            at = self.text.end_before(at)
        return _Node(at, text=event.value, is_plain=not event.style and event.ctag is None)

    # nodes → data

    def _value(self, node: _Node, path: KeyPath, *, as_text: bool) -> Any:  # noqa: ANN401 - plain data
        self.document.values[path] = node.at
        self.count += 1
        if self.count > _MOST_VALUES or len(path) > _MOST_DEPTH:
            raise self._hopeless("this file holds too many values, or its anchors unfold into them", node.at)
        if node.pairs is not None:
            data: dict[str, Any] = {}
            self._fill(data, node.pairs, path)
            return data
        if node.items is not None:
            return [self._value(item, (*path, i), as_text=False) for i, item in enumerate(node.items)]
        return self._scalar(node, path, as_text=as_text)

    def _fill(self, data: dict[str, Any], pairs: Sequence[tuple[_Node, _Node]], path: KeyPath) -> None:
        first: dict[str, int] = {}
        inherited = set(data)
        for key_node, node in pairs:
            key = self._key(key_node)
            if key is None or key_node.is_merge:
                continue
            if key in first:
                line = self.text.place(first[key]).line
                self._complain(f"`{key}` is given twice", key_node.at, f"remove one; the first is in line {line}")
                continue
            first[key] = key_node.at
            if key not in inherited:
                self.document.keys[(*path, key)] = key_node.at
                data[key] = self._value(node, (*path, key), as_text=_is_environment(path))
                if node.is_absent:  # its key is what can be pointed at
                    self.document.values[(*path, key)] = key_node.at
        for key_node, node in pairs:
            if key_node.is_merge:
                self._merge(data, node, path)

    def _merge(self, data: dict[str, Any], node: _Node, path: KeyPath) -> None:
        """`<<: *base`: what is written here wins over what is merged, and earlier over later."""
        for source in node.items if node.items is not None else [node]:
            if source.pairs is None:
                self._complain("`<<` merges mappings only", node.at)
            else:
                self._fill(data, source.pairs, path)

    def _key(self, node: _Node) -> str | None:
        if not node.is_scalar:
            self._complain("a key must be a word, not a list or a mapping", node.at)
            return None
        if not node.text:
            self._complain("the key in front of the colon is missing", node.at)
            return None
        return self._storable(node)

    def _scalar(self, node: _Node, path: KeyPath, *, as_text: bool) -> Any:  # noqa: ANN401 - plain data
        read = scalar(node.text) if node.is_plain else node.text
        if isinstance(read, str):
            return self._storable(node)
        self.document.written[path] = node.text
        is_number = isinstance(read, int | float) and not isinstance(read, bool)
        return node.text if as_text and is_number else read

    def _storable(self, node: _Node) -> str:
        """Escapes can spell what no file name, environment or UTF-8 file holds."""
        if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in node.text):
            self._complain("this text holds a NUL or half of a surrogate pair", node.at)
            return "?"
        return node.text


def _is_environment(path: KeyPath) -> bool:
    """The values of an `env` mapping stay text as written: `1.10` is not 1.1. Flags named env are flags."""
    return bool(path) and path[-1] == "env" and "args" not in path
