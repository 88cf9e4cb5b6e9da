"""Transactions with their records: what is written to the journal before and after each effect on the files."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set

from orchestrator.agent import files, release
from orchestrator.agent.errors import AgentError, failed
from orchestrator.agent.fs import Fs
from orchestrator.agent.history import History, report_digest
from orchestrator.agent.identity import Identity, identify
from orchestrator.agent.journal import Journal, Record
from orchestrator.agent.preflight import Place, Plan, Wanted, make_plan, parse_wanted
from orchestrator.agent.release import Merged

_SPARE_BYTES = 1 << 16  # of the journal, for the records that end a transaction


@contextmanager
def os_errors(call: str) -> Iterator[None]:
    """Turns an operating-system error into the protocol's `failed`."""
    try:
        yield
    except OSError as error:
        raise failed(error, call) from error


class _OtherDevice(Exception):
    """The stage directory cannot exchange names with the target's directory; nothing is changed."""


class Changes:
    """The transactions of one open tree. Whoever calls has the lock and a valid lease."""

    def __init__(self, fs: Fs, place: Place, journal: Journal) -> None:
        self._fs = fs
        self._place = place
        self._journal = journal
        self.history = History(journal.records())

    def note(self, kind: str, data: Mapping[str, Any], *, can_wait: bool = False) -> int:
        """Appends a record, durable on return or, where it can wait, with the next one; takes it into the history."""
        with os_errors("journal"):
            seq = self._journal.append(kind, data, can_wait=can_wait)
        self.history.add(Record(seq, kind, self._journal.records()[-1].data))
        return seq

    def open_transaction(self) -> Optional[Dict[str, Any]]:
        record = self.history.open
        if record is None:
            return None
        paths = [file["given"] for file in record["files"]]
        return {"txn": record["txn"], "state": self.history.state, "paths": paths, "report": self.history.report}

    def read_open(self) -> Optional[files.Transaction]:
        """The open transaction with absolute paths."""
        record = self.history.open
        return None if record is None else files.Transaction.from_record(record, self._place)

    def refuse_open(self) -> None:
        """`dirty` while a transaction is open."""
        record = self.history.open
        if record is not None:
            facts = {"txn": str(record["txn"]), "state": self.history.state}
            raise AgentError("dirty", "a transaction is still open", facts, "revert it, or recover")

    # -- forward -----------------------------------------------------------------------------------------------------

    def apply(self, txn: str, wanted_files: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
        self.refuse_open()
        if txn in self.history.names:
            raise AgentError("refused", "this transaction was applied before", {"txn": txn})
        wanted = parse_wanted(wanted_files)
        with os_errors("apply"):
            self._compact()
            try:
                return self._apply(txn, wanted, beside=False)
            except _OtherDevice:  # one mount, but renames between the two directories are refused: project quotas
                return self._apply(txn, wanted, beside=True)

    def _compact(self) -> None:
        is_due = 2 * self._journal.used_bytes > self._journal.capacity_bytes
        if is_due and self.history.open is None and self.history.launch is None:
            self._journal.compact([("PAST", self.history.past())])
            self.history = History(self._journal.records())

    def _apply(self, txn: str, wanted: Sequence[Wanted], beside: bool) -> Dict[str, Any]:
        started_s = time.monotonic()
        plan = make_plan(self._fs, self._place, wanted, self._journal.next_seq, self._seconds_of, beside)
        results = [{"path": given, "before": now.as_dict(), "after": now.as_dict()} for given, now in plan.same]
        if plan.changes:
            transaction = files.Transaction(txn, tuple(plan.changes), tuple(plan.made_dirs), plan.dirs)
            record = {"epoch": self.history.epoch, **transaction.as_record(self._place)}
            self._journal.reserve(4 * len(json.dumps(record)) + _SPARE_BYTES)
            self.note("INTENT", record)
            results += self._carry_out(transaction, plan)
        return {"txn": txn, "files": results, "seconds": time.monotonic() - started_s}

    def _seconds_of(self, path: str) -> Set[int]:
        return self.history.seconds_of(files.shorten(path, self._place.root))

    def _carry_out(self, transaction: files.Transaction, plan: Plan) -> List[Dict[str, Any]]:
        placed: List[Optional[bool]] = [False] * len(transaction.changes)
        try:
            files.stage_all(self._fs, transaction, plan)
            files.swap_all(self._fs, transaction, placed)
            files.drop_compiled(self._fs, self._place, transaction)
            left = {at: self._fs.lstat(at).mtime_ns for at in transaction.dirs}
            self.note("APPLIED", {"txn": transaction.txn, "left": left}, can_wait=True)
            seen = files.read_back(self._fs, transaction)
        except (OSError, AgentError) as error:
            self._take_back(transaction, placed, error)
            if isinstance(error, OSError) and error.errno == files.EXDEV:
                raise _OtherDevice from error
            raise
        return [{"path": change.given, "before": as_dict(change.before), "after": as_dict(now)} for change, now in seen]

    def _take_back(self, transaction: files.Transaction, placed: List[Optional[bool]], cause: Exception) -> None:
        """After a failed apply; when that fails too, the host is dirty until `recover`."""
        try:
            undone = self._undo(transaction, placed, set(), f"apply failed: {cause}")
        except (OSError, AgentError) as error:
            facts = {"txn": transaction.txn, "cause": str(cause), "then": str(error)}
            raise AgentError("dirty", "apply failed and could not be undone yet", facts, "recover") from error
        if undone.held:
            raise _held_error(transaction.txn, undone.held) from cause

    # -- back --------------------------------------------------------------------------------------------------------

    def revert(self, txn: str, reason: str) -> Dict[str, Any]:
        started_s = time.monotonic()
        if self.history.release is not None:
            raise AgentError("dirty", "a release was cut short", {"txn": txn}, "recover")
        if self.was_reverted(txn):
            closed = self.history.closed or {}
            with os_errors("revert"):
                now = [(path, identify(self._fs, path)) for path in closed["paths"]]
        else:
            now = self._revert(txn, reason).now
        shown = [{"path": path, "now": as_dict(identity)} for path, identity in now]
        return {"txn": txn, "state": "reverted", "files": shown, "seconds": time.monotonic() - started_s}

    def was_reverted(self, txn: str) -> bool:
        """Whether this was the last transaction and is undone: then a repeated request gets its answer again."""
        closed = self.history.closed
        is_last = self.history.open is None and closed is not None and closed["txn"] == txn
        return is_last and closed is not None and "choice" not in closed

    def _revert(self, txn: str, reason: str) -> files.Undone:
        transaction = self.read_open()
        if transaction is None or transaction.txn != txn:
            facts = {"txn": txn, "open": transaction.txn if transaction else "none"}
            raise AgentError("refused", "this transaction is not open", facts)
        with os_errors("revert"):
            undone = self._undo(transaction, self.history.placed(), self._touched(transaction), reason)
        if undone.held:
            raise _held_error(txn, undone.held)
        return undone

    def _touched(self, transaction: files.Transaction) -> Set[str]:
        """Directories whose time somebody else has changed since the transaction was applied."""
        earlier = self.history.release or self.history.revert
        if earlier is not None:
            return set(earlier["touched"])
        left = self.history.left
        if left is None:
            return set()
        now = {folder: self._fs.find(folder) for folder in transaction.dirs}
        return {at for at, found in now.items() if found is None or found.mtime_ns != left.get(at)}

    def _undo(
        self, transaction: files.Transaction, placed: Sequence[Optional[bool]], touched: Set[str], reason: str
    ) -> files.Undone:
        txn = transaction.txn

        def intend(plan: List[str]) -> None:
            self.note("REVERT_INTENT", {"txn": txn, "reason": reason, "plan": plan, "touched": sorted(touched)})

        if self.history.left is None or self.history.revert is not None:
            # A killed process may have left names in memory only: they become durable before anything rests on them.
            files.sync_all(self._fs, transaction)
        undone = files.undo(self._fs, self._place, transaction, placed, touched, intend)
        if not undone.held:
            paths = [change.path for change in transaction.changes]
            outcome = {"txn": txn, "reason": reason, "kept": undone.kept, "paths": paths}
            self.note("REVERTED", outcome, can_wait=True)
            self._fs.forget_contents()
        elif report_digest(undone.held) != report_digest(self.history.report):
            self.note("CONFLICT", {"txn": txn, "report": undone.held})
        return undone

    def recover(self, reason: str) -> Dict[str, Any]:
        transaction = self.read_open()
        if transaction is None:
            return {"state": "clean", "did": [], "report": []}
        if self.history.release is not None:  # cut short: the person's word still holds
            kept = self.release(transaction.txn, self.history.release["choice"])["kept"]
            return {"state": "clean", "did": [f"released {transaction.txn}, kept {len(kept)} files"], "report": []}
        try:
            undone = self._revert(transaction.txn, reason)
        except AgentError as error:
            if error.kind != "dirty" or not self.history.report:
                raise
            return {"state": "held", "did": [], "report": self.history.report}
        did = [f"reverted {transaction.txn}: {len(undone.now)} files ({reason})"]
        did += [f"kept {folder}, which somebody else uses now" for folder in undone.kept]
        return {"state": "clean", "did": did, "report": []}

    def release(self, txn: str, choice: str, merged: Sequence[Mapping[str, Any]] = ()) -> Dict[str, Any]:
        transaction = self._held(txn, choice)
        with os_errors("release"):
            placed = self.history.placed()
            touched = set() if choice == release.FOUND else self._touched(transaction)
            waiting = self._merged(transaction, placed, choice, merged)
            record = {"txn": txn, "choice": choice, "touched": sorted(touched), "merged": waiting}
            self.note("RELEASE_INTENT", record)
            kept = release.release(self._fs, self._place, transaction, placed, choice, waiting)
            files.drop_compiled(self._fs, self._place, transaction)
            files.restore_times(self._fs, transaction, touched)
            paths = [change.path for change in transaction.changes]
            self.note("RELEASED", {"txn": txn, "choice": choice, "kept": kept, "paths": paths})
        return {"txn": txn, "state": "released", "kept": kept}

    def foresee_release(self, txn: str, choice: str) -> Dict[str, Any]:
        """What `release` would do: {txn, state, files: [{path, why, does, keeps, kept_in}]}. Changes nothing."""
        transaction = self._held(txn, choice)
        with os_errors("release"):
            shown = release.foresee(self._fs, self._place, transaction, self.history.placed(), choice)
        return {"txn": txn, "state": self.history.state, "files": shown}

    # -- to stay -----------------------------------------------------------------------------------------------------

    def refuse_unapplied(self, txn: str) -> None:
        if self.history.state != "applied" or self.history.open is None or self.history.open["txn"] != txn:
            raise AgentError("refused", "this transaction is not applied", {"txn": txn, "state": self.history.state})

    def keep(self, txn: str) -> None:
        """The open transaction is to stay: the originals remain parked, until `reopen`."""
        self.refuse_unapplied(txn)
        self.note("KEPT", {"txn": txn})

    def reopen(self) -> str:
        """The transaction that was kept last is open again, to be reverted as any; its name."""
        self.refuse_open()
        if not self.history.kept:
            raise AgentError("refused", "nothing is kept on this tree")
        record = self.history.kept[-1]["intent"]
        with os_errors("journal"):
            self._journal.reserve(4 * len(json.dumps(record)) + _SPARE_BYTES)
        self.note("REOPENED", {"txn": record["txn"]})
        return str(record["txn"])

    def kept_stages(self) -> List[str]:
        """Where the originals of what is kept are parked."""
        kept = [files.Transaction.from_record(one["intent"], self._place) for one in self.history.kept]
        return [change.stage for transaction in kept for change in transaction.changes]

    def _held(self, txn: str, choice: str) -> files.Transaction:
        transaction = self.read_open()
        if transaction is None or transaction.txn != txn or self.history.state not in ("held", "releasing"):
            raise AgentError("refused", "this transaction is not held", {"txn": txn, "state": self.history.state})
        if choice not in release.CHOICES:
            raise AgentError("usage", f"none of {', '.join(release.CHOICES)}: {choice!r}", {"txn": txn})
        return transaction

    def _merged(
        self,
        transaction: files.Transaction,
        placed: Sequence[Optional[bool]],
        choice: str,
        sent: Sequence[Mapping[str, Any]],
    ) -> Dict[str, Merged]:
        """The merged versions that wait on the disk: of now, or of the release that was cut short."""
        if sent and choice == release.MERGE:
            return release.stage_merged(self._fs, self._place, transaction, placed, sent)
        earlier = (self.history.release or {}).get("merged", {})
        if choice == release.MERGE and not earlier:
            raise AgentError("refused", "no merged version was sent", {"txn": transaction.txn})
        return {path: Merged(*one) for path, one in earlier.items()}


def as_dict(identity: Optional[Identity]) -> Optional[Dict[str, Any]]:
    return None if identity is None else identity.as_dict()


def _held_error(txn: str, report: List[Dict[str, Any]]) -> AgentError:
    facts = {"txn": txn, "report": json.dumps(report), **{held["path"]: held["why"] for held in report}}
    return AgentError("dirty", "a third party interfered; both versions are kept", facts, "decide per file")
