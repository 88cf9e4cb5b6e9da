"""What the journal says, folded into what we need to know. Pure: records in, facts out."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple

from orchestrator.agent.bytecode import second_of
from orchestrator.agent.decisions import BACK
from orchestrator.agent.journal import Record

_KEPT_PER_PATH = 64
_LAUNCH_KINDS = ("LAUNCH_INTENT", "LAUNCHED")


class History:
    """The state after a sequence of records. `open` is the INTENT of the transaction that is not closed, if any."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.epoch = 0
        self.root: Optional[str] = None
        self.boot_id: Optional[str] = None
        self.open: Optional[Dict[str, Any]] = None
        self.left: Optional[Dict[str, int]] = None  # times of the directories after APPLIED; None before
        self.revert: Optional[Dict[str, Any]] = None  # the last REVERT_INTENT of the open transaction
        self.report: List[Dict[str, Any]] = []  # of the last CONFLICT of the open transaction
        self.release: Optional[Dict[str, Any]] = None  # the last RELEASE_INTENT: a person's word on it
        self.closed: Optional[Dict[str, Any]] = None  # the last REVERTED or RELEASED
        self.names: Set[str] = set()  # of all transactions that were applied
        self.launch: Optional[Dict[str, Any]] = None
        self.outcome: Optional[Dict[str, Any]] = None
        self.kept: List[Dict[str, Any]] = []  # {intent, left} of transactions that are to stay, oldest first
        self.shadow: Optional[Dict[str, Any]] = None  # the last SHADOW_INTENT: a copy is there, or half made
        self.service: Optional[Dict[str, Any]] = None  # of what is stopped and not given back
        self._versions: Dict[str, List[Tuple[int, str]]] = {}  # path → (second, digest) of every version of ours
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Takes one more record in."""
        take = getattr(self, f"_on_{record.kind.lower()}", None)
        if take is not None:
            take(record.data)
        elif record.kind in _LAUNCH_KINDS:
            self.launch = {"kind": record.kind, "seq": record.seq, **record.data}
        elif record.kind.startswith("GUARD_"):
            self.outcome = {"kind": record.kind, "seq": record.seq, **record.data}

    def _on_lease(self, data: Dict[str, Any]) -> None:
        self.epoch, self.root, self.boot_id = data["epoch"], data["root"], data["boot_id"]

    def _on_intent(self, data: Dict[str, Any]) -> None:
        self.open, self.left, self.revert, self.report, self.release = data, None, None, [], None
        for file in data["files"]:
            if file["after"] is not None:
                version = (second_of(file["after"]["mtime_ns"]), file["after"]["sha256"])
                self._versions.setdefault(file["path"], []).append(version)

    def _on_applied(self, data: Dict[str, Any]) -> None:
        self.left = data["left"]
        self.names.add(data["txn"])

    def _on_revert_intent(self, data: Dict[str, Any]) -> None:
        self.revert = data

    def _on_conflict(self, data: Dict[str, Any]) -> None:
        self.report = data["report"]

    def _on_reverted(self, data: Dict[str, Any]) -> None:
        self.closed, self.open, self.left, self.revert, self.report, self.release = data, None, None, None, [], None

    def _on_release_intent(self, data: Dict[str, Any]) -> None:
        self.release = data

    def _on_released(self, data: Dict[str, Any]) -> None:
        self._on_reverted(data)

    def _on_stopped(self, _data: Dict[str, Any]) -> None:
        self.launch = None

    def _on_kept(self, _data: Dict[str, Any]) -> None:
        self.kept.append({"intent": self.open, "left": self.left})
        self.open, self.left, self.revert, self.report, self.release = None, None, None, [], None

    def _on_reopened(self, _data: Dict[str, Any]) -> None:
        kept = self.kept.pop()
        self.open, self.left, self.revert, self.report, self.release = kept["intent"], kept["left"], None, [], None

    def _on_shadow_intent(self, data: Dict[str, Any]) -> None:
        self.shadow = data

    def _on_shadow_removed(self, _data: Dict[str, Any]) -> None:
        self.shadow = None

    def _on_service_intent(self, data: Dict[str, Any]) -> None:
        self.service = {**data, "stage": "intent"}

    def _on_service_stopped(self, _data: Dict[str, Any]) -> None:
        if self.service is not None:
            self.service = {**self.service, "stage": "stopped"}

    def _on_service_start_intent(self, _data: Dict[str, Any]) -> None:
        if self.service is not None:
            self.service = {**self.service, "stage": "starting"}

    def _on_service_started(self, _data: Dict[str, Any]) -> None:
        self.service = None

    def _on_acknowledged(self, _data: Dict[str, Any]) -> None:
        self.outcome = None

    def _on_past(self, data: Dict[str, Any]) -> None:
        self.epoch, self.root, self.boot_id = data.get("epoch", 0), data.get("root"), data.get("boot_id")
        self.names.update(data["names"])
        self.closed, self.outcome, self.shadow = data["closed"], data["outcome"], data.get("shadow")
        self.kept, self.service = list(data.get("kept", ())), data.get("service")
        for path, versions in data["versions"].items():
            self._versions[path] = [(second, digest) for second, digest in versions]

    @property
    def state(self) -> str:
        """Of the open transaction: `intended`, `applied`, `reverting`, `held`, `releasing`; `none` without one."""
        if self.open is None:
            return "none"
        if self.release is not None:
            return "releasing"
        if self.report:
            return "held"
        if self.revert is not None:
            return "reverting"
        return "intended" if self.left is None else "applied"

    def placed(self) -> List[Optional[bool]]:
        """Per file of the open transaction: whether our version had reached its path, as far as the journal knows."""
        assert self.open is not None
        if self.revert is not None:
            return [action == BACK for action in self.revert["plan"]]
        return [None if self.left is None else True] * len(self.open["files"])

    def seconds_of(self, path: str) -> Set[int]:
        """Seconds that versions of ours had at this path (as the journal writes paths)."""
        return {second for second, _ in self._versions.get(path, ())}

    def is_ours(self, path: str, sha256: str) -> bool:
        """Whether we ever put this content at this path."""
        return any(digest == sha256 for _, digest in self._versions.get(path, ()))

    def past(self) -> Dict[str, Any]:
        """What a compacted journal keeps, as the data of a PAST record."""
        return {
            "epoch": self.epoch,
            "root": self.root,
            "boot_id": self.boot_id,
            "names": sorted(self.names)[-_KEPT_PER_PATH:],
            "closed": self.closed,
            "outcome": self.outcome,
            "shadow": self.shadow,
            "kept": self.kept,
            "service": self.service,
            "versions": {path: versions[-_KEPT_PER_PATH:] for path, versions in self._versions.items()},
        }


def report_digest(report: Sequence[Dict[str, Any]]) -> str:
    """Tells whether two reports say the same."""
    return hashlib.sha256(repr(report).encode("utf-8", "surrogateescape")).hexdigest()
