"""Which flags and variables an engine knows, read from its own source without importing it.

A flag that the parser does not know ends a start after seconds of imports; a variable that nobody reads is the
commonest experiment without an effect. Both can be seen before any launch, on the tree as the patch will leave it.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.core.model import FlagValue

_FIELD_MARKS = frozenset({"A", "Annotated"})
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


@dataclass(frozen=True)
class Vocabulary:
    """Where an engine keeps its words. Paths and patterns begin at the source tree; an empty one is unknown to us.

    `prefixes`: variables that begin so are the engine's own, and nobody else reads them.
    """

    parsers: tuple[str, ...] = ()
    registry: str = ""
    prefixes: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()


SGLANG = Vocabulary(
    parsers=("srt/server_args.py", "srt/arg_groups/fields/*.py"),
    registry="srt/environ.py",
    prefixes=("SGLANG_", "SGL_"),
    renames=(("SGL_", "SGLANG_"),),
)
VLLM = Vocabulary(registry="envs.py", prefixes=("VLLM_",))
NOTHING = Vocabulary()


def flags_in(sources: Iterable[str]) -> frozenset[str] | None:
    """Every flag that these files register, with their dashes. None where one of them is no Python, or none is found:
    then nothing can be said.

    Known are `add_argument("--x", …)`, and annotated fields `x: A[type, "help"]` or `x: A[type, Arg(…)]`. A call whose
    flag is computed makes the whole parser unreadable.
    """
    found: set[str] = set()
    for source in sources:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return None
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                if not all(_text(argument) for argument in node.args):
                    return None
                found |= _of_call(node)
            elif isinstance(node, ast.ClassDef):
                found |= {flag for item in node.body if isinstance(item, ast.AnnAssign) for flag in _of_field(item)}
    return frozenset(found) or None


def _of_call(node: ast.Call) -> set[str]:
    flags = {text for argument in node.args if (text := _text(argument)) and text.startswith("--")}
    return flags | _negations(flags, node.keywords)


def _of_field(item: ast.AnnAssign) -> set[str]:
    mark = item.annotation
    if not isinstance(item.target, ast.Name) or not isinstance(mark, ast.Subscript):
        return set()
    if not isinstance(mark.value, ast.Name) or mark.value.id not in _FIELD_MARKS:
        return set()
    if not isinstance(mark.slice, ast.Tuple):
        return set()
    name = "--" + item.target.id.replace("_", "-")
    for meta in mark.slice.elts[1:]:
        if isinstance(meta, ast.Call) and isinstance(meta.func, ast.Name) and meta.func.id == "Arg":
            return _of_arg(name, meta.keywords)
        if isinstance(meta, ast.JoinedStr | ast.BinOp) or _text(meta) is not None:
            return {name}
    return set()


def _of_arg(name: str, keywords: Sequence[ast.keyword]) -> set[str]:
    given = {k.arg: k.value for k in keywords if k.arg}
    if isinstance(no_cli := given.get("no_cli"), ast.Constant) and no_cli.value:
        return set()
    flags = {_text(given.get("cli_name")) or name}
    aliases = given.get("aliases")
    if isinstance(aliases, ast.List | ast.Tuple):
        flags |= {text for alias in aliases.elts if (text := _text(alias))}
    return flags | _negations(flags, keywords)


def _negations(flags: set[str], keywords: Sequence[ast.keyword]) -> set[str]:
    action = next((k.value for k in keywords if k.arg == "action"), None)
    is_optional = isinstance(action, ast.Attribute | ast.Name) and ast.unparse(action).endswith("BooleanOptionalAction")
    return {f"--no-{flag[2:]}" for flag in flags} if is_optional else set()


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def unknown_flags(flags: Mapping[str, FlagValue], known: frozenset[str] | None) -> list[str]:
    """A sentence for each flag that the parser would refuse, with what was perhaps meant. Flags that are only taken
    away need not be known, and a unique beginning of a flag is accepted, as the parser itself does."""
    if known is None:
        return []
    said = []
    for name, value in flags.items():
        flag = f"--{name}"
        if value is None or value is False or flag in known:
            continue
        longer = sorted(k for k in known if k.startswith(flag))
        if len(longer) == 1:
            continue
        if longer:
            said.append(f"{flag} is ambiguous: {', '.join(longer[:4])}")
        else:
            said.append(f"the engine's parser knows no flag {flag}{_perhaps(flag, known)}")
    return said


def unknown_names(
    names: Iterable[str], vocabulary: Vocabulary, registered: frozenset[str] | None, literal: frozenset[str]
) -> list[str]:
    """A sentence for each variable of the engine's own that nobody reads.

    `registered`: names in the engine's registry, None where there is none, and nothing is said then; `literal`: those
    of `names` that stand anywhere in the source or in what the treatment adds to it.
    """
    if registered is None:
        return []
    said = []
    for name in names:
        if not name.startswith(vocabulary.prefixes):
            continue
        meant = [name, *(new + name[len(old) :] for old, new in vocabulary.renames if name.startswith(old))]
        if not any(one in registered or one in literal for one in meant):
            said.append(f"nothing in the engine's source reads {name}{_perhaps(name, registered)}")
    return said


def names_in(source: str) -> frozenset[str]:
    """Variables that a registry declares: names of class fields and of string keys, in capitals."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return frozenset()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.match(node.value):
            found.add(node.value)
    return frozenset(name for name in found if name.isupper())


def words_in(texts: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """Those of the names that stand as whole words in one of the texts."""
    wanted = sorted(set(names))
    if not wanted:
        return frozenset()
    pattern = re.compile(r"(?<![A-Za-z0-9_])(?:" + "|".join(map(re.escape, wanted)) + r")(?![A-Za-z0-9_])")
    return frozenset(found for text in texts for found in pattern.findall(text))


def _perhaps(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.75)
    return f"; perhaps {', '.join(near)}" if near else ""
