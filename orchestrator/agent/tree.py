"""A tree taken for one controller: its journal, its lease, and the transactions on its files."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set

from orchestrator.agent import files, state
from orchestrator.agent.errors import AgentError, failed
from orchestrator.agent.fs import Fs
from orchestrator.agent.history import History, report_digest
from orchestrator.agent.identity import Identity, identify
from orchestrator.agent.journal import Journal, Record
from orchestrator.agent.lease import Lease, LeaseFile, busy, own_start_ticks, read_lease
from orchestrator.agent.manifest import Entry, Manifest, difference, manifest
from orchestrator.agent.preflight import Place, Wanted, is_below, make_plan, parse_wanted

_PATIENCE_S = 5.0  # for an agent that was just ended
_GUARD_LEASE_S = 600.0
_SPARE_BYTES = 1 << 16  # of the journal, for the records that end a transaction


def boottime_s() -> float:
    """CLOCK_BOOTTIME: goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


@contextmanager
def os_errors(call: str) -> Iterator[None]:
    """Turns an operating-system error into the protocol's `failed`."""
    try:
        yield
    except OSError as error:
        raise failed(error, call) from error


class Tree:
    """An open tree. Only its holder changes anything in it; made by `open` or `for_guard`."""

    def __init__(self, fs: Fs, place: Place, lock: state.Lock, lease: Lease, clock: Callable[[], float]) -> None:
        self._fs = fs
        self._place = place
        self._lock = lock
        self._clock = clock
        self._lease = lease
        self._lease_s = lease.deadline_s - clock()
        self._lease_file = LeaseFile(fs, os.path.join(place.state_dir, "lease"))
        self._found: Optional[Manifest] = None

    # -- taking and leaving ----------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        fs: Fs,
        root: str,
        guarded: Sequence[str],
        holder: Mapping[str, Any],
        lease_s: float,
        *,
        journal_dir: Optional[str] = None,
        kill_agent: Callable[[Dict[str, Any]], bool],
        boot_id: str,
        clock: Callable[[], float] = boottime_s,
    ) -> Tree:
        """Takes the tree for `holder` (token, name, pid), or raises `busy` with who has it, since and until when.

        `kill_agent` gets {pid, start_ticks, boot_id} of an agent of the same holder that still has the lock; it checks
        that identity, ends the process and says whether it is gone. `clock` gives CLOCK_BOOTTIME in seconds.
        """
        with os_errors("open"):
            real, found = state.resolve_root(fs, root)
            state_dir = state.find_state_dir(fs, real, found) or state.make_state_dir(fs, real, found)
            lock = state.Lock(fs, real, state_dir)
            try:
                _take_lock(fs, lock, state_dir, str(holder["token"]), kill_agent, boot_id, clock)
                fresh = Lease(
                    str(holder["token"]),
                    str(holder["name"]),
                    int(holder["pid"]),
                    os.getpid(),
                    own_start_ticks(),
                    "agent",
                    0,
                    boot_id,
                    fs.now_ns() / 1e9,
                    clock() + lease_s,
                )
                return cls._start(fs, real, guarded, state_dir, lock, fresh, journal_dir, clock)
            except BaseException:
                lock.close()
                raise

    @classmethod
    def for_guard(
        cls,
        fs: Fs,
        root: str,
        guarded: Sequence[str],
        state_dir: str,
        epoch: int,
        *,
        boot_id: str,
        clock: Callable[[], float] = boottime_s,
        patience_s: float = _PATIENCE_S,
    ) -> Tree:
        """Takes the tree for the guard of `epoch`, whose lease has run out and whose agent has been ended.

        `busy` when another agent has the lock or a later epoch began (it recovers then), or the lease was extended.
        """
        with os_errors("open"):
            real = fs.resolve(root)
            lock = state.Lock(fs, real, state_dir)
            try:
                if not lock.take(patience_s):
                    raise busy(read_lease(fs, os.path.join(state_dir, "lease")), clock(), fs.now_ns() / 1e9)
                old = read_lease(fs, os.path.join(state_dir, "lease"))
                if old is None or old.epoch != epoch or old.is_valid(boot_id, clock()):
                    raise busy(old, clock(), fs.now_ns() / 1e9)
                fresh = old._replace(
                    host_pid=os.getpid(),
                    start_ticks=own_start_ticks(),
                    role="guard",
                    deadline_s=clock() + _GUARD_LEASE_S,
                )
                return cls._start(fs, real, guarded, state_dir, lock, fresh, None, clock)
            except BaseException:
                lock.close()
                raise

    @classmethod
    def _start(
        cls,
        fs: Fs,
        root: str,
        guarded: Sequence[str],
        state_dir: str,
        lock: state.Lock,
        fresh: Lease,
        journal_dir: Optional[str],
        clock: Callable[[], float],
    ) -> Tree:
        """With the lock: journal, a new epoch, lease."""
        state.furnish(fs, state_dir)
        real_guarded = tuple(_resolve_guarded(fs, path) for path in guarded)
        place = Place(root, real_guarded, state_dir, _xattrs_of_ours(fs, state_dir))
        tree = cls(fs, place, lock, fresh, clock)
        journal = None
        try:
            journal = state.open_journal(fs, state_dir, journal_dir)
            tree._begin(journal)
        except BaseException:
            tree._lease_file.close()
            if journal is not None:
                journal.close()
            raise
        return tree

    def _begin(self, journal: Journal) -> None:
        self._journal = journal
        self._history = History(journal.records())
        old = self._lease_file.read()
        epoch = 1 + max(self._history.epoch, old.epoch if old is not None else 0)
        self._lease = self._lease._replace(epoch=epoch)
        self._compact()
        lease = self._lease
        self.note("LEASE", {"epoch": epoch, "root": self._place.root, "boot_id": lease.boot_id, "name": lease.name})
        self._lease_file.write(lease)

    def close(self) -> None:
        """Gives the tree back; `dirty` while a change or a launch is open."""
        if self._history.open is not None:
            raise self._is_open_error()
        if self._history.launch is not None:
            raise AgentError("dirty", "a launch is still open", {"launch": json.dumps(self._history.launch)})
        with os_errors("close"):
            self.note("CLOSED", {"epoch": self.epoch})
            self._lease_file.write(self._lease._replace(deadline_s=0.0))
        self.leave()

    def leave(self) -> None:
        """Lets go of lock and journal; lease, stage and open transaction stay for whoever comes next.

        Also what a forked child calls first: the lock is the parent's alone.
        """
        self._journal.close()
        self._lease_file.close()
        self._lock.close()

    @classmethod
    def forget(
        cls,
        fs: Fs,
        root: str,
        *,
        boot_id: Optional[str] = None,
        clock: Callable[[], float] = boottime_s,
    ) -> List[str]:
        """Removes everything we keep for this tree and returns the paths; `refused` while anything is open."""
        with os_errors("forget"):
            real, found = state.resolve_root(fs, root)
            state_dir = state.find_state_dir(fs, real, found)
            if state_dir is None:
                return []
            lock = state.Lock(fs, real, state_dir)
            try:
                lease = read_lease(fs, os.path.join(state_dir, "lease"))
                if not lock.try_take() or (lease is not None and lease.is_valid(boot_id or read_boot_id(), clock())):
                    facts = {"holder": lease.name if lease else "unknown", "state_dir": state_dir}
                    raise AgentError("refused", "somebody holds the tree", facts)
                _refuse_open(fs, state_dir)
                return _remove_state(fs, state_dir)
            finally:
                lock.close()

    # -- what it is ------------------------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        return self._place.root

    @property
    def state_dir(self) -> str:
        return self._place.state_dir

    @property
    def pycache_dir(self) -> str:
        """The PYTHONPYCACHEPREFIX of every launch on this tree."""
        return self._place.pycache_dir

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    @property
    def lease(self) -> float:
        """CLOCK_BOOTTIME in seconds at which the lease ends."""
        return self._lease.deadline_s

    @property
    def found(self) -> Optional[Manifest]:
        """The manifest as found, or None before the first `snapshot`."""
        if self._found is None and self._fs.find(self._found_path) is not None:
            self._found = self._load_found()
        return self._found

    @property
    def _found_path(self) -> str:
        return os.path.join(self._place.state_dir, "found.json")

    def fs_facts(self) -> Dict[str, Any]:
        """{exchange, type} of the file system of the tree, by trying with two files of ours."""
        one, other = (os.path.join(self._place.stage_dir, f"probe.{letter}") for letter in "ab")
        mounts = [mount for mount in self._fs.mounts() if is_below(self._place.root, mount.point)]
        kind = max(mounts, key=lambda mount: len(mount.point)).type if mounts else "unknown"
        try:
            for path in (one, other):
                self._fs.close(self._fs.open(path, os.O_RDWR | os.O_CREAT))
            self._fs.exchange(one, other)
        except OSError:  # cannot, or no room to try: then apply finds out by itself
            return {"exchange": False, "type": kind}
        finally:
            for path in (one, other):
                if self._fs.find(path) is not None:
                    self._fs.unlink(path)
        return {"exchange": True, "type": kind}

    # -- lease and notes -------------------------------------------------------------------------------------------

    def beat(self, lease_s: Optional[float] = None) -> float:
        """Extends the lease and returns its new end; `busy` when it ran out or a later epoch began."""
        self._fence()
        if lease_s is not None:
            self._lease_s = lease_s
        self._lease = self._lease._replace(deadline_s=self._clock() + self._lease_s)
        with os_errors("beat"):
            self._lease_file.write(self._lease)
        return self._lease.deadline_s

    def _fence(self) -> None:
        """A controller that comes back late must not write: its guard, or somebody else, may be at work."""
        there = self._lease_file.read()
        if there is None or there.epoch != self.epoch or not self._lease.is_valid(self._lease.boot_id, self._clock()):
            raise busy(there, self._clock(), self._fs.now_ns() / 1e9)

    def note(self, kind: str, data: Dict[str, Any]) -> int:
        """Appends a record, durable on return; `failed` when the disk does not take it."""
        with os_errors("journal"):
            seq = self._journal.append(kind, data)
        self._history.add(Record(seq, kind, self._journal.records()[-1].data))
        return seq

    def open_launch(self) -> Optional[Dict[str, Any]]:
        """The last LAUNCH_INTENT or LAUNCHED without a STOPPED: its data with `kind` and `seq`."""
        return self._history.launch

    def outcome(self) -> Optional[Dict[str, Any]]:
        """What a guard did while nobody was connected, until it is acknowledged."""
        return self._history.outcome

    def acknowledge(self) -> None:
        if self._history.outcome is not None:
            self.note("ACKNOWLEDGED", {"epoch": self.epoch})

    def _compact(self) -> None:
        is_open = self._history.open is not None or self._history.launch is not None
        if is_open or 2 * self._journal.used_bytes < self._journal.capacity_bytes:
            return
        self._journal.compact([("PAST", self._history.past())])

    # -- transactions ----------------------------------------------------------------------------------------------

    def open_transaction(self) -> Optional[Dict[str, Any]]:
        """{txn, state, paths, report} of what is applied or half applied; state: intended, applied, reverting, held."""
        record = self._history.open
        if record is None:
            return None
        paths = [file["given"] for file in record["files"]]
        return {"txn": record["txn"], "state": self._history.state, "paths": paths, "report": self._history.report}

    def apply(self, txn: str, files: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
        """Changes all files or none: {txn, files: [{path, before, after}], seconds}.

        `conflict` when a file is not as expected, `refused` when a precondition of safety does not hold, `dirty` when
        something is applied already, or when a third party kept us from undoing a half.
        """
        self._fence()
        if self._history.open is not None:
            raise self._is_open_error()
        if txn in self._history.names:
            raise AgentError("refused", "this transaction was applied before", {"txn": txn})
        wanted = parse_wanted(files)
        with os_errors("apply"):
            self._compact()
            try:
                return self._apply(txn, wanted, beside=False)
            except _OtherDevice:  # one mount, but renames between the two directories are refused: project quotas
                return self._apply(txn, wanted, beside=True)

    def _apply(self, txn: str, wanted: Sequence[Wanted], beside: bool) -> Dict[str, Any]:
        started_s = time.monotonic()
        taken = _Seconds(self._history, self._place)
        plan = make_plan(self._fs, self._place, wanted, self._journal.next_seq, taken, beside)
        results = [{"path": given, "before": now.as_dict(), "after": now.as_dict()} for given, now in plan.same]
        if plan.changes:
            transaction = files.Transaction(txn, tuple(plan.changes), tuple(plan.made_dirs), plan.dirs)
            record = {"epoch": self.epoch, **transaction.as_record(self._place)}
            self._journal.reserve(4 * len(json.dumps(record)) + _SPARE_BYTES)
            self.note("INTENT", record)
            results += self._carry_out(transaction, plan)
        return {"txn": txn, "files": results, "seconds": time.monotonic() - started_s}

    def _carry_out(self, transaction: files.Transaction, plan: files.Plan) -> List[Dict[str, Any]]:
        placed: List[Optional[bool]] = [False] * len(transaction.changes)
        try:
            files.stage_all(self._fs, transaction, plan)
            files.swap_all(self._fs, transaction, placed)
            left = {at: self._fs.lstat(at).mtime_ns for at in transaction.dirs}
            self.note("APPLIED", {"txn": transaction.txn, "left": left})
            seen = files.read_back(self._fs, transaction)
        except (OSError, AgentError) as error:
            self._take_back(transaction, placed, error)
            if isinstance(error, OSError) and error.errno == files.EXDEV:
                raise _OtherDevice from error
            raise
        return [
            {"path": change.given, "before": _as_dict(change.before), "after": _as_dict(now)} for change, now in seen
        ]

    def _take_back(
        self, transaction: files.Transaction, placed: List[Optional[bool]], cause: Exception
    ) -> None:
        """After a failed apply; when that fails too, the host is dirty until `recover`."""
        try:
            undone = self._undo(transaction, placed, set(), f"apply failed: {cause}")
        except (OSError, AgentError) as error:
            facts = {"txn": transaction.txn, "cause": str(cause), "then": str(error)}
            raise AgentError("dirty", "apply failed and could not be undone yet", facts, "recover") from error
        if undone.held:
            raise self._held_error(transaction.txn, undone.held) from cause

    def revert(self, txn: str, reason: str) -> Dict[str, Any]:
        """Brings back every file of the open transaction: {txn, state: "reverted", files: [{path, now}], seconds}.

        `dirty` with a report when a third party interfered; nothing is moved then, and both versions are kept.
        """
        started_s = time.monotonic()
        closed = self._history.closed
        if self._history.open is None and closed is not None and closed["txn"] == txn:
            with os_errors("revert"):
                now = [(path, identify(self._fs, path)) for path in closed["paths"]]
        else:
            self._fence()
            now = self._revert(txn, reason).now
        shown = [{"path": path, "now": _as_dict(identity)} for path, identity in now]
        return {"txn": txn, "state": "reverted", "files": shown, "seconds": time.monotonic() - started_s}

    def _revert(self, txn: str, reason: str) -> files.Undone:
        record = self._history.open
        if record is None or record["txn"] != txn:
            facts = {"txn": txn, "open": str(record["txn"]) if record else "none"}
            raise AgentError("refused", "this transaction is not open", facts)
        with os_errors("revert"):
            transaction = files.Transaction.from_record(record, self._place)
            undone = self._undo(transaction, self._history.placed(), self._touched(), reason)
        if undone.held:
            raise self._held_error(txn, undone.held)
        return undone

    def _touched(self) -> Set[str]:
        """Directories of the open transaction whose time somebody else has changed since it was applied."""
        if self._history.revert is not None:
            return set(self._history.revert["touched"])
        left = self._history.left or {}
        now = {folder: self._fs.find(folder) for folder in left}
        return {folder for folder, found in now.items() if found is None or found.mtime_ns != left[folder]}

    def _undo(
        self, transaction: files.Transaction, placed: Sequence[Optional[bool]], touched: Set[str], reason: str
    ) -> files.Undone:
        txn = transaction.txn

        def intend(plan: List[str]) -> None:
            self.note("REVERT_INTENT", {"txn": txn, "reason": reason, "plan": plan, "touched": sorted(touched)})

        undone = files.undo(self._fs, self._place, transaction, placed, touched, intend)
        if not undone.held:
            paths = [change.path for change in transaction.changes]
            self.note("REVERTED", {"txn": txn, "reason": reason, "kept": undone.kept, "paths": paths})
        elif report_digest(undone.held) != report_digest(self._history.report):
            self.note("CONFLICT", {"txn": txn, "report": undone.held})
        return undone

    def recover_files(self, reason: str) -> Dict[str, Any]:
        """Undoes whatever is open: {state: clean or held, did: [sentence], report: [Held]}. Idempotent."""
        record = self._history.open
        if record is None:
            return {"state": "clean", "did": [], "report": []}
        try:
            undone = self._revert(record["txn"], reason)
        except AgentError as error:
            if error.kind != "dirty" or not self._history.report:
                raise
            return {"state": "held", "did": [], "report": self._history.report}
        did = [f"reverted {record['txn']}: {len(undone.now)} files ({reason})"]
        did += [f"kept {folder}, which somebody else uses now" for folder in undone.kept]
        return {"state": "clean", "did": did, "report": []}

    def _is_open_error(self) -> AgentError:
        record = self._history.open or {}
        facts = {"txn": str(record.get("txn")), "state": self._history.state}
        return AgentError("dirty", "a transaction is still open", facts, "revert it, or recover")

    def _held_error(self, txn: str, report: List[Dict[str, Any]]) -> AgentError:
        facts = {"txn": txn, "report": json.dumps(report), **{held["path"]: held["why"] for held in report}}
        return AgentError("dirty", "a third party interfered; both versions are kept", facts, "decide per file")

    # -- proof -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Dict[str, Any]:
        """Records the tree and the guarded paths as found: {digest, files, bytes, seconds}."""
        self._fence()
        if self._history.open is not None:
            raise self._is_open_error()
        started_s = time.monotonic()
        with os_errors("snapshot"):
            taken = self._manifest_now()
            head = json.dumps({"root": self._place.root}).encode("ascii")
            self._fs.write_file(self._found_path, head + b"\n" + taken.as_json())
        self._found = taken
        seconds = time.monotonic() - started_s
        return {"digest": taken.digest, "files": taken.files, "bytes": taken.bytes, "seconds": seconds}

    def verify(self) -> Dict[str, Any]:
        """Compares with the manifest as found: {clean, digest, differences, seconds}; `refused` without a snapshot."""
        started_s = time.monotonic()
        with os_errors("verify"):
            found = self.found
            if found is None:
                raise AgentError("refused", "there is no manifest as found to compare with", {}, "snapshot first")
            now = self._manifest_now()
            differences = [
                {**entry, "ours": self._is_ours(entry)} for entry in difference(found, now)
            ] + self._leftovers()
        clean = self._history.open is None and not any(entry["ours"] for entry in differences)
        seconds = time.monotonic() - started_s
        return {"clean": clean, "digest": now.digest, "differences": differences, "seconds": seconds}

    def _manifest_now(self) -> Manifest:
        return manifest(self._fs, [self._place.root, *self._place.guarded], [self._place.state_dir])

    def _load_found(self) -> Manifest:
        head, _, body = self._fs.read_file(self._found_path).partition(b"\n")
        old_root, root = json.loads(head.decode("ascii"))["root"], self._place.root
        entries = Manifest.from_json(body).entries
        if old_root != root:  # taken by another route
            entries = {root + at[len(old_root) :] if is_below(at, old_root) else at: e for at, e in entries.items()}
        return Manifest(entries)

    def _is_ours(self, entry: Dict[str, Any]) -> bool:
        path, was, now = entry["path"], entry["found"], entry["now"]
        if self._history.open is not None:
            transaction = files.Transaction.from_record(self._history.open, self._place)
            touched = {change.path for change in transaction.changes}.union(transaction.made_dirs, transaction.folders)
            if path in touched:
                return True
        if os.path.basename(path).startswith(self._place.dot_prefix):
            return True
        is_new = now is not None and (was is None or was["sha256"] != now["sha256"])
        return is_new and self._history.is_ours(files.shorten(path, self._place.root), now["sha256"])

    def _leftovers(self) -> List[Dict[str, Any]]:
        """Staged files that no open transaction explains."""
        explained: Set[str] = set()
        if self._history.open is not None:
            transaction = files.Transaction.from_record(self._history.open, self._place)
            explained = {change.stage for change in transaction.changes}
        paths = [os.path.join(self._place.stage_dir, name) for name in self._fs.names(self._place.stage_dir)]
        now = Entry("file")._asdict()
        return [
            {"path": path, "what": "extra", "ours": True, "found": None, "now": dict(now)}
            for path in paths
            if path not in explained
        ]


class _OtherDevice(Exception):
    """The stage directory cannot exchange names with the target's directory; nothing is changed."""


class _Seconds(Dict[str, Set[int]]):
    """Real path → the seconds that earlier versions of ours had there."""

    def __init__(self, history: History, place: Place) -> None:
        super().__init__()
        self._history = history
        self._place = place

    def get(self, path: str, default: Any = None) -> Any:
        return self._history.seconds_of(files.shorten(path, self._place.root))


def _take_lock(
    fs: Fs,
    lock: state.Lock,
    state_dir: str,
    token: str,
    kill_agent: Callable[[Dict[str, Any]], bool],
    boot_id: str,
    clock: Callable[[], float],
) -> None:
    """Takes the lock, or raises `busy`: against another agent, and against a lease that still runs."""
    lease_path = os.path.join(state_dir, "lease")
    if not lock.try_take():
        lease = read_lease(fs, lease_path)
        is_same_holder = lease is not None and lease.token == token and lease.boot_id == boot_id
        if lease is None or not is_same_holder:
            raise busy(lease, clock(), fs.now_ns() / 1e9)
        if lease.role == "agent" and not kill_agent(lease.agent()):
            raise busy(lease, clock(), fs.now_ns() / 1e9)
        if not lock.take(_PATIENCE_S):
            raise busy(lease, clock(), fs.now_ns() / 1e9)
    lease = read_lease(fs, lease_path)
    if lease is not None and lease.token != token and lease.is_valid(boot_id, clock()):
        raise busy(lease, clock(), fs.now_ns() / 1e9)


def _resolve_guarded(fs: Fs, path: str) -> str:
    return os.path.join(fs.resolve(os.path.dirname(path.rstrip("/"))), os.path.basename(path.rstrip("/")))


def _xattrs_of_ours(fs: Fs, state_dir: str) -> str:
    return files.xattrs_digest(fs.xattrs(os.path.join(state_dir, "lock")))


def _as_dict(identity: Optional[Identity]) -> Optional[Dict[str, Any]]:
    return None if identity is None else identity.as_dict()


def _refuse_open(fs: Fs, state_dir: str) -> None:
    journal_path = os.path.join(state_dir, "journal")
    if fs.find(journal_path) is None:
        return
    journal = state.open_journal(fs, state_dir, None)
    try:
        history = History(journal.records())
    finally:
        journal.close()
    if history.open is not None or history.launch is not None:
        raise AgentError("refused", "something is still open on this tree", {"state_dir": state_dir}, "recover first")


def _remove_state(fs: Fs, state_dir: str) -> List[str]:
    """Removes the state directory, a journal elsewhere included; the parent keeps its time."""
    home = os.path.dirname(state_dir)
    before = fs.lstat(home)
    removed = []
    journal_path = os.path.join(state_dir, "journal")
    found = fs.find(journal_path)
    if found is not None and found.kind == "link":
        removed.append(fs.resolve(journal_path))
        if fs.find(removed[0]) is not None:
            fs.unlink(removed[0])
    _remove_all(fs, state_dir)
    state.restore_time(fs, home, before)
    fs.sync_dir(home)
    return [*removed, state_dir]


def _remove_all(fs: Fs, folder: str) -> None:
    for name, found in fs.scan(folder):
        path = os.path.join(folder, name)
        if found.kind == "dir":
            _remove_all(fs, path)
        else:
            fs.unlink(path)
    fs.rmdir(folder)
