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
_MADE_OF_FIELD = ("f'--{key.replace('_', '-')}'", "f'--{name.replace('_', '-')}'", "f'--{field.replace('_', '-')}'")
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


@dataclass(frozen=True)
class Vocabulary:
    """Where an engine keeps its words. Paths and patterns begin at the source tree; an empty one is unknown to us.

    `prefixes`: variables that begin so are the engine's own, and nobody else reads them. `spoken`: flags that every
    launch of ours has: a reading that misses one has not understood the parser. `is_lenient`: the parser takes `_` for
    `-`, `--x.y` for a key inside `--x`, and `--no-x` for any x.
    """

    parsers: tuple[str, ...] = ()
    registry: str = ""
    prefixes: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    spoken: tuple[str, ...] = ()
    is_lenient: bool = False


SGLANG = Vocabulary(
    parsers=("srt/server_args.py", "srt/arg_groups/fields/*.py"),
    registry="srt/environ.py",
    prefixes=("SGLANG_", "SGL_"),
    renames=(("SGL_", "SGLANG_"),),
)
VLLM = Vocabulary(
    parsers=("engine/arg_utils.py", "entrypoints/openai/cli_args.py"),
    registry="envs.py",
    prefixes=("VLLM_",),
    spoken=("--model", "--port", "--served-model-name"),
    is_lenient=True,
)
NOTHING = Vocabulary()


def flags_in(sources: Iterable[str]) -> frozenset[str] | None:
    """Every flag that these files register, with their dashes. None where one of them is no Python, or none is found:
    then nothing can be said.

    Known are `add_argument("--x", …)`, and annotated fields `x: A[type, "help"]` or `x: A[type, Arg(…)]`. A call with
    `f"--{key.replace('_', '-')}"` stands for the annotated fields of all classes of its file: too many accuse nobody.
    Any other call whose flag is computed makes the whole parser unreadable.
    """
    found: set[str] = set()
    for source in sources:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return None
        fields = [
            i for n in ast.walk(tree) if isinstance(n, ast.ClassDef) for i in n.body if isinstance(i, ast.AnnAssign)
        ]
        found |= {flag for item in fields for flag in _of_field(item)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                if any(_is_made_of_field(argument) for argument in node.args):
                    found |= {_flag_of(i.target.id) for i in fields if isinstance(i.target, ast.Name)}
                elif not all(_text(argument) for argument in node.args):
                    return None
                found |= _of_call(node)
    return frozenset(found) or None


def _is_made_of_field(node: ast.expr) -> bool:
    """`f"--{key.replace('_', '-')}"`: each key is the name of a field."""
    return ast.unparse(node).replace('"', "'") in _MADE_OF_FIELD


def _flag_of(field: str) -> str:
    return "--" + field.replace("_", "-")


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
    name = _flag_of(item.target.id)
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


def unknown_flags(
    flags: Mapping[str, FlagValue], known: frozenset[str] | None, *, is_lenient: bool = False
) -> list[str]:
    """A sentence for each flag that the parser would refuse, with what was perhaps meant. Flags that are only taken
    away need not be known, and a unique beginning of a flag is accepted, as the parser itself does."""
    if known is None:
        return []
    said = []
    for name, value in flags.items():
        flag = _as_registered(name, known) if is_lenient else f"--{name}"
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


def _as_registered(name: str, known: frozenset[str]) -> str:
    flag = _flag_of(name).partition(".")[0]
    positive = f"--{flag.removeprefix('--no-')}"
    return positive if flag.startswith("--no-") and positive in known else flag


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
