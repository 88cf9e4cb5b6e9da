"""A hypothesis' changes → what is done to the host and to the launch, and what must then be true.

Pure but for `texts`, the patch files a playbook names, which were read with it. Paths of patches begin at the
directory that holds the source tree (`base`); everything that leaves here is absolute on the host.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.core import patching
from orchestrator.core.model import (
    ArgsChange,
    Change,
    EnvChange,
    File,
    FileChange,
    FlagValue,
    PatchChange,
    SitecustomizeChange,
    change_kind,
)
from orchestrator.serving.caches import Policy
from orchestrator.serving.configuration import Configuration
from orchestrator.serving.treatment import Expectation

MARKER = "treatment"
OUR_SITE = "sitecustomize.py"


@dataclass(frozen=True)
class Layout:
    """Where things are on the host. `sitecustomize`: the file the server's interpreter reads, or would read.

    `is_site_ours_to_edit` is false where that file lies outside the interpreter's own environment, so that every
    Python of the host reads it; then our block goes into a directory of ours that is searched first, and chains on.
    """

    source: str
    base: str
    package_origin: Mapping[str, str] = field(default_factory=dict)
    sitecustomize: str | None = None
    is_site_ours_to_edit: bool = True


def in_shadow(layout: Layout, home: str) -> Layout:
    """The layout of a copy of the package in `home`. Our sitecustomize then runs from a directory of ours as well."""
    source = posixpath.join(home, posixpath.basename(layout.source))
    origins = {
        package: posixpath.join(source, posixpath.basename(origin)) for package, origin in layout.package_origin.items()
    }
    return replace(layout, source=source, base=home, package_origin=origins, is_site_ours_to_edit=False)


@dataclass(frozen=True)
class FileEdit:
    """One file on the host; contents None where there is no file. `mode` None: as found, or the default."""

    path: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None


@dataclass(frozen=True)
class Treatment:
    """Everything one hypothesis does. A baseline is a treatment with nothing in it."""

    files: tuple[FileEdit, ...]
    configuration: Configuration
    expectation: Expectation
    changed_paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changed_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    caches: Policy = "auto"

    @property
    def changes_files(self) -> bool:
        return bool(self.files)


def change_id(index: int, change: Change) -> str:
    """How a change is named in a diagnosis: its kind and its place in the hypothesis, from 1."""
    return f"{change_kind(change)}:{index}"


def paths_to_read(changes: Sequence[Change], texts: Mapping[str, bytes], layout: Layout) -> list[str]:
    """Absolute paths whose bytes must be known before `build` can plan them. A sitecustomize that is only chained to
    is not among them: it may be a link, and lies where nothing of ours goes."""
    return sorted({_absolute(path, layout) for path in patching.paths_of(_planned(changes, texts, layout))})


def build(
    changes: Sequence[Change],
    texts: Mapping[str, bytes],
    layout: Layout,
    baseline: Configuration,
    found: Mapping[str, bytes | None],
    *,
    marker: str | None = None,
    caches: Policy = "auto",
) -> Treatment:
    """Plan every change in memory against the bytes found. Raises `PatchConflict` when one does not fit.

    `found`: absolute path → content, for each of `paths_to_read`.
    """
    flags, env, python_env, site = _settings(changes, layout)
    edits = _plan(changes, texts, layout, found)
    expectation = Expectation(
        package_origin=layout.package_origin,
        environ=env,
        python_environ=python_env,
        flags=flags,
        marker=marker,
        modules=_modules(edits, layout),
    )
    configured = baseline.over(flags, env)
    return Treatment(
        files=tuple(edits),
        configuration=Configuration(configured.flags, configured.env, site),
        expectation=expectation,
        changed_paths=_changed_paths(changes, texts, layout),
        changed_names=_changed_names(changes),
        remarks=_remarks(changes, layout),
        caches=caches,
    )


def untouched(baseline: Configuration, layout: Layout) -> Treatment:
    """The baseline arm."""
    return Treatment((), baseline, Expectation(package_origin=layout.package_origin))


# ---------------------------------------------------------------- files


def _plan(
    changes: Sequence[Change], texts: Mapping[str, bytes], layout: Layout, found: Mapping[str, bytes | None]
) -> list[FileEdit]:
    """Runs of equal offset policy are planned together, each on top of the one before."""
    content = {_key(path, layout): data for path, data in found.items()}
    original = dict(content)
    modes: dict[str, int] = {}
    for index, change in enumerate(changes, start=1):
        planned = _planned([change], texts, layout, first=index)
        offset = change.patch.offset if isinstance(change, PatchChange) else "exact"
        for edit in patching.plan_files(planned, content, offset=offset):
            content[edit.path] = edit.after
            if edit.mode_after is not None:
                modes[edit.path] = edit.mode_after & 0o777
    return [
        FileEdit(_absolute(path, layout), original[path], after, modes.get(path))
        for path, after in sorted(content.items())
        if after != original[path] or path in modes
    ]


def _planned(
    changes: Sequence[Change],
    texts: Mapping[str, bytes],
    layout: Layout,
    *,
    first: int = 1,
) -> list[patching.Change]:
    planned: list[patching.Change] = []
    for index, change in enumerate(changes, start=first):
        if isinstance(change, PatchChange):
            planned += _patches(change, texts)
        elif isinstance(change, SitecustomizeChange):
            if layout.is_site_ours_to_edit and layout.sitecustomize:
                marker_id = f"{MARKER}-{index}"
                source = _block_source(change)
                planned.append(patching.Block(_key(layout.sitecustomize, layout), source, marker_id))
        elif isinstance(change, FileChange):
            mode = int(change.file.mode, 8) if change.file.mode else None
            planned.append(patching.WholeFile(_key(change.file.path, layout), _content(change.file, texts), mode))
    return planned


def _patches(change: PatchChange, texts: Mapping[str, bytes]) -> list[patching.Change]:
    spec = change.patch
    parsed: list[patching.Change] = [patching.parse(texts[name], name, strip=spec.strip) for name in spec.files]
    edits = [patching.TextEdit(e.file, e.find.encode(), e.replace.encode(), e.count) for e in spec.edits]
    return [*parsed, *edits]


def _content(file: File, texts: Mapping[str, bytes]) -> bytes | None:
    """None deletes the file."""
    if file.delete:
        return None
    return texts[file.source] if file.source is not None else (file.content or "").encode()


def _absolute(path: str, layout: Layout) -> str:
    return path if path.startswith("/") else posixpath.join(layout.base, path)


def _key(path: str, layout: Layout) -> str:
    """Relative to `base` where it lies below it, so that all changes of one file meet under one name."""
    prefix = layout.base.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) else path


def _modules(edits: Sequence[FileEdit], layout: Layout) -> dict[str, tuple[str, str]]:
    """Dotted name → (path, SHA-256) of each module that the patches leave behind below the source tree."""
    modules: dict[str, tuple[str, str]] = {}
    for edit in edits:
        place = posixpath.relpath(edit.path, layout.base)
        stem, extension = posixpath.splitext(place)
        parts = stem.split("/")
        if edit.after is None or extension != ".py" or not edit.path.startswith(layout.source + "/"):
            continue
        if not all(part.isidentifier() for part in parts):
            continue  # a script that nobody can import by name
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = (edit.path, hashlib.sha256(edit.after).hexdigest())
    return modules


# ---------------------------------------------------------------- settings


def _settings(
    changes: Sequence[Change], layout: Layout
) -> tuple[dict[str, FlagValue], dict[str, str | None], dict[str, str | None], dict[str, bytes]]:
    """Flags, launch environment, environment set by Python, and the files of our own site directory."""
    flags: dict[str, FlagValue] = {}
    env: dict[str, str | None] = {}
    python_env: dict[str, str | None] = {}
    for change in changes:
        if isinstance(change, ArgsChange):
            flags.update(change.args)
        elif isinstance(change, EnvChange):
            env.update(change.env)
        elif isinstance(change, SitecustomizeChange):
            python_env.update(change.sitecustomize.env)
    blocks = _site_blocks(changes)
    site: dict[str, bytes] = {}
    if blocks and not (layout.is_site_ours_to_edit and layout.sitecustomize):
        site[OUR_SITE] = _chained_site(blocks, layout.sitecustomize)
    return flags, env, python_env, site


def _site_blocks(changes: Sequence[Change]) -> list[tuple[str, str]]:
    return [
        (f"{MARKER}-{index}", _block_source(change))
        for index, change in enumerate(changes, start=1)
        if isinstance(change, SitecustomizeChange)
    ]


def _block_source(change: SitecustomizeChange) -> str:
    spec = change.sitecustomize
    parts = [patching.env_source(spec.env)] if spec.env else []
    return "\n".join([*parts, *([spec.code] if spec.code.strip() else [])])


def _chained_site(blocks: Sequence[tuple[str, str]], found: str | None) -> bytes:
    """A `sitecustomize.py` of ours that first runs the one it hides, under its own name and path."""
    content: bytes | None = None
    if found is not None:
        content = (
            "import importlib.util\n\n"
            f"_found = importlib.util.spec_from_file_location('sitecustomize', {found!a})\n"
            "if _found is not None and _found.loader is not None:\n"
            "    _found.loader.exec_module(importlib.util.module_from_spec(_found))\n"
        ).encode("ascii")
    for position, (marker_id, source) in enumerate(blocks):
        beside = [name for name, _ in blocks[:position]]
        content = patching.with_block(content, source, marker_id, beside=beside)
    return content or b""


def _remarks(changes: Sequence[Change], layout: Layout) -> tuple[str, ...]:
    if not _site_blocks(changes) or layout.is_site_ours_to_edit:
        return ()
    return (
        f"{layout.sitecustomize} is read by others as well, so it stays as it is: our block runs from a "
        "directory of ours that comes first on the server's path, and runs that file before itself",
    )


# ---------------------------------------------------------------- for the diagnosis


def _changed_paths(changes: Sequence[Change], texts: Mapping[str, bytes], layout: Layout) -> dict[str, tuple[str, ...]]:
    paths: dict[str, tuple[str, ...]] = {}
    for index, change in enumerate(changes, start=1):
        planned = _planned([change], texts, layout, first=index)
        if planned:
            paths[change_id(index, change)] = tuple(patching.paths_of(planned))
    return paths


def _changed_names(changes: Sequence[Change]) -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {}
    for index, change in enumerate(changes, start=1):
        if isinstance(change, EnvChange):
            names[change_id(index, change)] = tuple(change.env)
        elif isinstance(change, SitecustomizeChange):
            names[change_id(index, change)] = tuple(change.sitecustomize.env)
        elif isinstance(change, ArgsChange):
            names[change_id(index, change)] = tuple(f"--{name}" for name in change.args)
    return names
