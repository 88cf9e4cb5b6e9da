"""What a source tree is compared with, beside the manifest as found: a wheel's RECORD, a commit, a stored manifest."""

from __future__ import annotations

import base64
import csv
import io
import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import Refused, UsageError

if TYPE_CHECKING:
    from orchestrator.controller.session import HostSession

_READ_LIMIT = 8 << 20
_GIT_S = 120.0
_OUR_STATE = ".orchestrator-"
_SHOWN = 20
Entries = Mapping[str, Mapping[str, Any]]
"""Absolute path → entry of a manifest."""


@dataclass(frozen=True)
class Reference:
    """`digests`: path relative to the tree → sha256 in hex. `modes` where they are known. `contents`: a file's bytes
    where the reference has them."""

    name: str
    digests: Mapping[str, str]
    modes: Mapping[str, int] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Deviation:
    """One path that is not as the reference says. `what`: changed, missing, extra, mode."""

    path: str
    what: str


def compare(reference: Reference, entries: Entries, source: str) -> list[Deviation]:
    """Pure. `entries`: absolute path → manifest entry. Compiled files and what is ours by name are left out."""
    prefix = source.rstrip("/") + "/"
    now = {path[len(prefix) :]: e for path, e in entries.items() if path.startswith(prefix) and e["kind"] != "dir"}
    found: list[Deviation] = []
    for path in sorted(reference.digests.keys() | now.keys()):
        if is_left_out(path):
            continue
        entry = now.get(path)
        if entry is None:
            found.append(Deviation(path, "missing"))
        elif path not in reference.digests:
            found.append(Deviation(path, "extra"))
        elif entry["sha256"] != reference.digests[path]:
            found.append(Deviation(path, "changed"))
        elif path in reference.modes and entry["mode"] != reference.modes[path]:
            found.append(Deviation(path, "mode"))
    return found


def is_left_out(path: str) -> bool:
    parts = path.split("/")
    return path.endswith(".pyc") or "__pycache__" in parts or parts[0].startswith(_OUR_STATE)


def load_reference(session: HostSession, against: str, entries: Entries) -> Reference:
    """`record`, `git:REV` or `manifest:FILE`. Raises `UsageError` for another word or a file that is none."""
    kind, _, rest = against.partition(":")
    if against == "record":
        return _record(session)
    if kind == "git" and rest:
        return _commit(session, rest, entries)
    if kind == "manifest" and rest:
        return read_manifest(Path(rest))
    raise UsageError(f"--against {against}: not one of record, git:REV, manifest:FILE")


# -- a wheel's RECORD ------------------------------------------------------------------------------------------------


def _record(session: HostSession) -> Reference:
    """The RECORD beside the tree that lists it."""
    source = session.found_source
    package = posixpath.basename(source)
    pattern = posixpath.join(posixpath.dirname(source), "*.dist-info", "RECORD")
    paths = session.connection.call("glob", {"patterns": [pattern]})[pattern]
    wanted = {"paths": paths, "max_bytes": _READ_LIMIT}
    reply = session.connection.call("read", wanted, timeout_s=120.0) if paths else {}
    for path in paths:
        text = base64.b64decode(reply[path].get("content_b64", "")).decode("utf-8", "surrogateescape")
        digests = parse_record(text, package)
        if digests:
            return Reference(posixpath.basename(posixpath.dirname(path)), digests)
    raise Refused(
        f"no wheel's RECORD on {session.name} lists files of {source}",
        facts={"looked at": pattern},
        hint="an editable install has none: compare with git:REV or manifest:FILE",
    )


def parse_record(text: str, package: str) -> dict[str, str]:
    """RECORD → path below the package → sha256 in hex. Entries without a digest are left out."""
    digests = {}
    for row in csv.reader(io.StringIO(text)):
        if len(row) >= 2 and row[0].startswith(package + "/") and row[1].startswith("sha256="):
            encoded = row[1].removeprefix("sha256=")
            raw = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
            digests[row[0][len(package) + 1 :]] = raw.hex()
    return digests


# -- a commit --------------------------------------------------------------------------------------------------------


def _commit(session: HostSession, revision: str, entries: Entries) -> Reference:
    """A commit of the checkout that the source lies in. Git hashes the files there: no index is trusted or written."""
    source = session.found_source
    if revision.startswith("-"):
        raise UsageError(f"not a revision: {revision!r}")
    git = ["git", "-c", "safe.directory=*", "-C", source]
    name = _run(session, [*git, "rev-parse", "--verify", f"{revision}^{{commit}}"]).strip()
    blobs = parse_ls_tree(_run(session, [*git, "ls-tree", "-r", "-z", name, "--", "."]))
    present = sorted(path for path in blobs if entries.get(posixpath.join(source, path), {}).get("kind") == "file")
    names = "".join(f"{posixpath.join(source, path)}\n" for path in present)
    hashed = _run(session, [*git, "hash-object", "--no-filters", "--stdin-paths"], stdin=names)
    now = dict(zip(present, hashed.split(), strict=True))
    same = {path for path, blob in blobs.items() if now.get(path) == blob}
    digests = {p: str(entries[posixpath.join(source, p)]["sha256"]) if p in same else blobs[p] for p in blobs}
    changed = sorted(p for p in present if p not in same)[:_SHOWN]
    contents = {
        p: _run(session, [*git, "cat-file", "blob", blobs[p]]).encode("utf-8", "surrogateescape") for p in changed
    }
    return Reference(f"commit {name[:12]}", digests, contents=contents)


def parse_ls_tree(text: str) -> dict[str, str]:
    """`git ls-tree -r -z` → path → blob. Links and submodules are left out."""
    blobs = {}
    for line in filter(None, text.split("\0")):
        head, _, path = line.partition("\t")
        mode, kind, blob = head.split()
        if kind == "blob" and mode.startswith("100"):
            blobs[path] = blob
    return blobs


def _run(session: HostSession, argv: list[str], stdin: str = "") -> str:
    """What a looking command prints. Git takes no lock and writes no index for us."""
    env = {**session.base_env, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = {"name": "git", "argv": argv, "env": env, "stdin": stdin, "timeout_s": _GIT_S, "max_bytes": 12 << 20}
    answer = session.connection.call("run", {"commands": [command]}, timeout_s=_GIT_S + 30.0)["git"]
    if answer["rc"] != 0 or answer.get("error"):
        said = (answer.get("error") or answer["stderr"]).strip()[-300:]
        raise Refused(
            f"git on {session.name} does not know this tree and revision",
            facts={
                "source": session.found_source,
                "asked": " ".join(argv[5:])[:200],
                "git": said or f"exit code {answer['rc']}",
            },
            hint="git:REV needs git there and a checkout around the source tree; record and manifest:FILE do not",
        )
    return str(answer["stdout"])


# -- a stored manifest -----------------------------------------------------------------------------------------------


def read_manifest(path: Path) -> Reference:
    """A manifest that `host verify --save` wrote."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        files = stored["files"]
        digests = {str(at): str(file["sha256"]) for at, file in files.items()}
        modes = {str(at): int(file["mode"], 8) for at, file in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "`host verify HOST --save FILE` writes one"
        raise UsageError(f"{path} is not a stored manifest: {error}", hint=hint) from error
    return Reference(f"manifest {path.name}", digests, modes)


def write_manifest(path: Path, source: str, entries: Entries) -> int:
    """Content and mode of every file of the tree, by path below it; how many. Other machines can be held against it."""
    prefix = source.rstrip("/") + "/"
    files = {
        at[len(prefix) :]: {"sha256": entry["sha256"], "mode": f"{entry['mode']:04o}"}
        for at, entry in entries.items()
        if at.startswith(prefix) and entry["kind"] == "file" and not is_left_out(at[len(prefix) :])
    }
    path.write_text(json.dumps({"source": source, "files": files}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return len(files)
