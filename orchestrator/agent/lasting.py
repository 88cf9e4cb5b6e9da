"""What an open tree has beyond one transaction: its manifest, changes that stay, and the copy that it may be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Dict, List, Optional

from orchestrator.agent.changes import Changes, os_errors
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.manifest import Manifest
from orchestrator.agent.proof import Proof
from orchestrator.agent.shadow import Shadow, differing, make_copy, remove_copy


class Lasting(ABC):
    """The part of `Tree` that says what the tree is compared with. Only its holder calls it."""

    _fs: Fs
    _changes: Changes
    _proof: Proof
    shadow: Optional[Shadow]

    @property
    @abstractmethod
    def root(self) -> str:
        """Without symbolic links."""

    @property
    def found(self) -> Optional[Manifest]:
        """The manifest as found, or None before the first `snapshot`."""
        return self._proof.found

    @abstractmethod
    def _fence(self) -> None:
        """Raises `busy` when the lease is not ours any more."""

    def note(self, kind: str, data: Dict[str, Any]) -> int:
        """Appends a record, durable on return, and returns its number; `failed` when the disk does not take it."""
        return self._changes.note(kind, data)

    def snapshot(self) -> Dict[str, Any]:
        """Records the tree and the guarded paths as found: {digest, files, bytes, seconds}. A shadow is copied anew
        before; `conflict` when what was found changed meanwhile."""
        self._fence()
        if self.shadow is not None:
            self.drop_shadow()  # of an earlier run
            self.make_shadow()
        with os_errors("snapshot"):
            taken = self._proof.snapshot()
        there, found = self.open_shadow(), self.found
        wrong = differing(found.entries, there) if there is not None and found is not None else []
        if wrong:
            self.drop_shadow()
            raise AgentError("conflict", "the tree changed while it was copied", {"path": wrong[0]})
        return taken

    # -- changes that stay ---------------------------------------------------------------------------------------------

    def keep(self, txn: str) -> Dict[str, Any]:
        """The applied transaction stays, beyond lease and guard: {txn, digest, files, …} of the tree as it is kept.

        The originals remain parked and the manifest as found is put aside, so that `restore_kept` can bring both back.
        """
        self._fence()
        if self.shadow is not None:
            raise AgentError(
                "refused", "a copy cannot be kept", {"txn": txn}, "`tree: in_place` keeps what was found best"
            )
        self._changes.refuse_unapplied(txn)
        with os_errors("keep"):
            self._proof.keep_original()
            taken = self._proof.snapshot(with_open=True)
        self._changes.keep(txn)  # killed before: the change is reverted, and the manifest as found comes back with it
        return {"txn": txn, **taken}

    def restore_kept(self) -> Dict[str, Any]:
        """Takes back all that is kept, the last one first: {did: [sentence], state, report}; `held` as for a revert."""
        self._fence()
        did: List[str] = []
        while self.kept():
            self._changes.reopen()
            result = self._changes.recover("a person took back what was kept")
            did += result["did"]
            if result["state"] != "clean":
                return {**result, "did": did}
            self._settle_manifest()
        return {"state": "clean", "did": did, "report": []}

    def _settle_manifest(self) -> None:
        with os_errors("keep"):
            self._proof.restore_original()

    def kept(self) -> List[str]:
        """Names of the transactions that stay, oldest first."""
        return [str(one["intent"]["txn"]) for one in self._changes.history.kept]

    # -- the copy, where the tree is a shadow --------------------------------------------------------------------------

    def open_shadow(self) -> Optional[Dict[str, Any]]:
        """{of, copy} of a copy that is there or half made, or None."""
        return self._changes.history.shadow

    def make_shadow(self) -> None:
        """Copies the found package, unless that is done."""
        shadow = self.shadow
        if shadow is None or self.open_shadow() is not None:
            return
        with os_errors("shadow"):
            self.note("SHADOW_INTENT", {"of": shadow.of, "copy": shadow.copy})
            remove_copy(self._fs, shadow.home)
            make_copy(self._fs, shadow)

    def drop_shadow(self) -> Optional[str]:
        """Takes the copy away and returns its path; None when there was none. Idempotent."""
        there = self.open_shadow()
        if there is None:
            return None
        with os_errors("shadow"):
            remove_copy(self._fs, self.root)
        self.note("SHADOW_REMOVED", {"copy": there["copy"]})
        return str(there["copy"])
