"""Does the engine know what a treatment would tell it? Judged on the tree as the patches will leave it, before any
launch; nothing is changed here."""

from __future__ import annotations

import base64
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.serving import vocabulary
from orchestrator.serving.pitfalls import pitfalls_of

if TYPE_CHECKING:
    from orchestrator.controller.session import HostSession
    from orchestrator.controller.treatment import Treatment

_READ_LIMIT = 4 << 20
_GREP_S = 60.0
_KINDS = ("*.py", "*.cu", "*.cuh", "*.h", "*.hpp", "*.cpp", "*.cc")
_NCCL = "NCCL_"
_NCCL_LIBRARY = "nvidia/nccl/lib/libnccl.so*"


@dataclass(frozen=True)
class Source:
    """What the host's tree says now: parser and registry files by path, and the names that stand anywhere in it.

    `nccl`: names in the strings of NCCL's library; None where there is no library to look into.
    """

    parsers: Mapping[str, str]
    registry: Mapping[str, str]
    literal: frozenset[str] = frozenset()
    nccl: frozenset[str] | None = None


@dataclass(frozen=True)
class Words:
    """`unmet`: why the treatment is not applicable; `remarks`: what else a reader of its finding should know."""

    unmet: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def judge_words(session: HostSession, treatments: Sequence[Treatment]) -> list[Words]:
    """One judgement a treatment, in order. Asks the host only when a treatment sets a flag or a variable."""
    words = session.engine.vocabulary
    names = sorted({name for treatment in treatments for name in set_names(treatment)})
    flags = {name for treatment in treatments for name in treatment.expectation.flags}
    source = read_source(session, words, names, with_flags=bool(flags))
    known_good = frozenset(f"--{name}" for name in session.target.args)
    return [judge(treatment, words, source, session.layout.source, known_good) for treatment in treatments]


def judge(
    treatment: Treatment, words: vocabulary.Vocabulary, source: Source, tree: str, known_good: frozenset[str]
) -> Words:
    """Pure. `known_good`: flags that the target is served with; a reading of the parser that misses one of them has not
    understood it, and decides nothing."""
    edited = {edit.path: (edit.after or b"").decode("utf-8", "replace") for edit in treatment.files}
    added = [*edited.values(), *(data.decode("utf-8", "replace") for data in treatment.configuration.site.values())]
    known = vocabulary.flags_in(_as_patched(source.parsers, edited, words.parsers, tree).values())
    if known is not None and not _is_understood(known_good, words, known):
        known = None
    registry = _as_patched(source.registry, edited, (words.registry,), tree) if words.registry else {}
    registered = frozenset(n for text in registry.values() for n in vocabulary.names_in(text)) if registry else None
    names = set_names(treatment)
    literal = source.literal | vocabulary.words_in(added, _spellings(names, words))
    unmet = vocabulary.unknown_flags(treatment.expectation.flags, known, is_lenient=words.is_lenient)
    unmet += vocabulary.unknown_names(names, words, registered, literal)
    remarks = pitfalls_of(treatment.configuration)
    if source.nccl is not None:
        strange = [n for n in names if n.startswith(_NCCL) and n not in source.nccl]
        remarks += [f"the installed NCCL's library does not hold the name {name}" for name in strange]
    return Words(tuple(unmet), tuple(remarks))


def _is_understood(known_good: frozenset[str], words: vocabulary.Vocabulary, known: frozenset[str]) -> bool:
    in_use = {flag[2:]: True for flag in known_good}
    missed = vocabulary.unknown_flags(in_use, known, is_lenient=True) if words.is_lenient else known_good - known
    return not missed and known.issuperset(words.spoken)


def set_names(treatment: Treatment) -> list[str]:
    """Variables that it sets, at the launch or through sitecustomize; those it only unsets need no reader."""
    asked = {**treatment.expectation.environ, **treatment.expectation.python_environ}
    return sorted(name for name, value in asked.items() if value is not None)


def read_source(
    session: HostSession, words: vocabulary.Vocabulary, names: Sequence[str], *, with_flags: bool
) -> Source:
    """What is needed to judge these names and, with `with_flags`, flags."""
    tree, own = session.layout.source, [name for name in names if name.startswith(words.prefixes or ("\0",))]
    patterns = [f"{tree}/{pattern}" for pattern in words.parsers] if with_flags else []
    patterns += [f"{tree}/{words.registry}"] if own and words.registry else []
    if any(name.startswith(_NCCL) for name in names):
        patterns += [f"{site}/{_NCCL_LIBRARY}" for site in session.facts.site_packages]
    if not patterns:
        return Source({}, {})
    matches = session.connection.call("glob", {"patterns": patterns})
    libraries = [path for pattern in patterns if pattern.endswith(_NCCL_LIBRARY) for path in matches[pattern]]
    texts = _read(session, sorted({p for found in matches.values() for p in found} - set(libraries)))
    registry = {path: text for path, text in texts.items() if path == f"{tree}/{words.registry}"}
    found = _grep(session, tree, _spellings(own, words), libraries, [n for n in names if n.startswith(_NCCL)])
    return Source(
        parsers={path: text for path, text in texts.items() if path not in registry},
        registry=registry,
        literal=found["literal"],
        nccl=found["nccl"] if libraries else None,
    )


def _spellings(names: Iterable[str], words: vocabulary.Vocabulary) -> list[str]:
    """The names, and those that the engine itself rewrites them to."""
    renamed = [new + name[len(old) :] for name in names for old, new in words.renames if name.startswith(old)]
    return sorted({*names, *renamed})


def _as_patched(
    found: Mapping[str, str], edited: Mapping[str, str], patterns: Sequence[str], tree: str
) -> dict[str, str]:
    """The files as they will be; a file that a patch creates counts where a pattern matches it."""
    whole = [f"{tree}/{pattern}" for pattern in patterns]
    new = {path: text for path, text in edited.items() if any(fnmatch.fnmatch(path, one) for one in whole)}
    return {path: text for path, text in {**found, **new}.items() if text}


def _read(session: HostSession, paths: Sequence[str]) -> dict[str, str]:
    if not paths:
        return {}
    reply = session.connection.call("read", {"paths": list(paths), "max_bytes": _READ_LIMIT}, timeout_s=60.0)
    contents = {path: entry.get("content_b64") for path, entry in reply.items()}
    return {path: base64.b64decode(data).decode("utf-8", "replace") for path, data in contents.items() if data}


def _grep(
    session: HostSession, tree: str, own: Sequence[str], libraries: Sequence[str], nccl: Sequence[str]
) -> dict[str, frozenset[str]]:
    """Whole words in the tree's sources, and in the strings of NCCL's library."""
    commands = []
    if own:
        included = [f"--include={kind}" for kind in _KINDS]
        commands.append({"name": "literal", "argv": ["grep", "-rhowF", *included, *_patterns(own), tree]})
    if libraries and nccl:
        commands.append({"name": "nccl", "argv": ["grep", "-haowF", *_patterns(nccl), *libraries]})
    found = {"literal": frozenset[str](), "nccl": frozenset[str]()}
    if commands:
        more = {"env": {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}, "timeout_s": _GREP_S}
        request = {"commands": [{**command, **more} for command in commands]}
        reply = session.connection.call("run", request, timeout_s=_GREP_S + 30.0)
        found.update({name: frozenset(answer["stdout"].split()) for name, answer in reply.items()})
        if "literal" in reply and reply["literal"]["rc"] not in (0, 1):
            found["literal"] = frozenset(own)  # a tree that could not be searched accuses nobody
    return found


def _patterns(names: Sequence[str]) -> list[str]:
    return [word for name in names for word in ("-e", name)]
