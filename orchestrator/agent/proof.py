"""The manifest as found, and the comparison with it: is everything as it was, and what is left is whose?"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, List, Optional, Set

from orchestrator.agent.changes import Changes
from orchestrator.agent.errors import AgentError
from orchestrator.agent.files import merged_name, shorten
from orchestrator.agent.fs import Fs
from orchestrator.agent.manifest import Entry, Manifest, difference, manifest
from orchestrator.agent.preflight import Place, is_below


class Proof:
    """Snapshot and verification of one open tree."""

    def __init__(self, fs: Fs, place: Place, changes: Changes) -> None:
        self._fs = fs
        self._place = place
        self._changes = changes
        self._found: Optional[Manifest] = None

    @property
    def _path(self) -> str:
        return os.path.join(self._place.state_dir, "found.json")

    @property
    def found(self) -> Optional[Manifest]:
        """The manifest as found, or None before the first snapshot."""
        if self._found is None and self._fs.find(self._path) is not None:
            self._found = self._load()
        return self._found

    def snapshot(self, *, with_open: bool = False) -> Dict[str, Any]:
        if not with_open:
            self._changes.refuse_open()
        started_s = time.monotonic()
        taken = self._now()
        head = json.dumps({"root": self._place.root, "shadow": self._changes.history.shadow}).encode("ascii")
        self._fs.write_file(self._path, head + b"\n" + taken.as_json())
        self._found = taken
        seconds = time.monotonic() - started_s
        return {"digest": taken.digest, "files": taken.files, "bytes": taken.size_bytes, "seconds": seconds}

    @property
    def _original_path(self) -> str:
        """Of the manifest from before the change that is being kept, or that was kept and is taken back: one for each
        change that stays, by how many stay beneath it."""
        beneath = len(self._changes.history.kept)
        return os.path.join(self._place.state_dir, f"original-{beneath}.json" if beneath else "original.json")

    def keep_original(self) -> None:
        """Puts the manifest aside, before that of what is kept takes its place; the first one counts."""
        if self._fs.find(self._path) is not None and self._fs.find(self._original_path) is None:
            self._fs.write_file(self._original_path, self._fs.read_file(self._path))

    def restore_original(self) -> None:
        """When a change does not stay, the manifest from before it is the one to compare with again."""
        if self._fs.find(self._original_path) is not None:
            self._fs.rename(self._original_path, self._path)
            self._fs.sync_dir(self._place.state_dir)
            self._found = None

    def verify(self) -> Dict[str, Any]:
        started_s = time.monotonic()
        if self.found is None:
            raise AgentError("refused", "there is no manifest as found to compare with", {}, "snapshot first")
        now = self._now()
        differences = [{**entry, "ours": self._is_ours(entry)} for entry in difference(self._expected(), now)]
        differences += self._leftovers()
        is_open = self._changes.history.open is not None
        clean = not is_open and not any(entry["ours"] for entry in differences)
        seconds = time.monotonic() - started_s
        digests = {"digest": now.digest, "found_digest": self.found.digest, "files": now.files}
        return {"clean": clean, **digests, "differences": differences, "seconds": seconds}

    def _now(self) -> Manifest:
        """Of a shadow: the copy while it is there, and the tree that was found."""
        roots, shadow = [self._place.root], self._changes.history.shadow or self._found_shadow()
        if shadow is not None:
            there = self._changes.history.shadow is not None
            roots = [shadow["of"], *([shadow["copy"]] if there else [])]
        return manifest(self._fs, [*roots, *self._place.guarded], [self._place.state_dir])

    def _expected(self) -> Manifest:
        """The manifest as found, without a copy that was taken away again."""
        found, shadow = self.found, self._found_shadow()
        assert found is not None
        if shadow is None or self._changes.history.shadow is not None:
            return found
        return Manifest({path: e for path, e in found.entries.items() if not is_below(path, shadow["copy"])})

    def _found_shadow(self) -> Optional[Dict[str, Any]]:
        """What the stored manifest says of a shadow."""
        if self._fs.find(self._path) is None:
            return None
        shadow: Optional[Dict[str, Any]] = json.loads(self._fs.read_file(self._path).partition(b"\n")[0]).get("shadow")
        return shadow

    def _load(self) -> Manifest:
        head, _, body = self._fs.read_file(self._path).partition(b"\n")
        old_root, root = json.loads(head.decode("ascii"))["root"], self._place.root
        entries = Manifest.from_json(body).entries
        if old_root != root:  # taken by another route
            entries = {root + at[len(old_root) :] if is_below(at, old_root) else at: e for at, e in entries.items()}
        return Manifest(entries)

    def _is_ours(self, entry: Dict[str, Any]) -> bool:
        """Whether a difference comes from us: an open transaction, a name of ours, or content that we once wrote."""
        path, was, now = entry["path"], entry["found"], entry["now"]
        transaction = self._changes.read_open()
        if transaction is not None:
            paths = {change.path for change in transaction.changes}
            if path in paths.union(transaction.folders):
                return True
        if os.path.basename(path).startswith(self._place.dot_prefix):
            return True
        is_new = now is not None and (was is None or was["sha256"] != now["sha256"])
        return is_new and self._changes.history.is_ours(shorten(path, self._place.root), now["sha256"])

    def _leftovers(self) -> List[Dict[str, Any]]:
        """Staged files that no open transaction explains."""
        transaction = self._changes.read_open()
        changes = transaction.changes if transaction else ()
        explained: Set[str] = {name for change in changes for name in (change.stage, merged_name(change))}
        explained.update(self._changes.kept_stages())
        stage_dir = self._place.stage_dir
        paths = [os.path.join(stage_dir, name) for name in self._fs.names(stage_dir)]
        now = dict(Entry("file")._asdict())
        return [
            {"path": path, "what": "extra", "ours": True, "found": None, "now": now}
            for path in paths
            if path not in explained
        ]
