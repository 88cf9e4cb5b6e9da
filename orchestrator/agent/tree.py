"""A tree taken for one controller: lock, lease and epoch, and what may be done while they hold."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from orchestrator.agent import state
from orchestrator.agent.changes import Changes, os_errors
from orchestrator.agent.claims import Claims
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.identity import xattrs_digest
from orchestrator.agent.lasting import Lasting
from orchestrator.agent.lease import Lease, LeaseFile, busy, own_start_ticks, read_lease
from orchestrator.agent.preflight import Place, is_below
from orchestrator.agent.proof import Proof
from orchestrator.agent.shadow import Shadow, make_home
from orchestrator.agent.taking import PATIENCE_S, is_held_error, take_lock, take_lock_as_guard

_GUARD_LEASE_S = 600.0


def boottime_s() -> float:
    """CLOCK_BOOTTIME: goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Tree(Lasting):
    """An open tree. Only its holder changes anything in it; made by `open` or `for_guard`."""

    def __init__(
        self,
        fs: Fs,
        place: Place,
        lock: state.Lock,
        lease: Lease,
        clock: Callable[[], float],
        claims: Claims,
        journal_dir: Optional[str] = None,
    ) -> None:
        """With the lock taken: opens lease file and journal, and begins a new epoch."""
        self._fs = fs
        self._place = place
        self._lock = lock
        self._clock = clock
        self._claims = claims
        self._is_left = False
        self.shadow: Optional[Shadow] = None  # for whom the tree is a copy
        self.is_resumed = False  # whether this holder's own lease was still running when it came back
        self._lease_s = lease.deadline_s - clock()
        self._lease_file = LeaseFile(fs, os.path.join(place.state_dir, "lease"))
        try:
            self._journal = state.open_journal(fs, place.state_dir, journal_dir)
        except BaseException:
            self._lease_file.close()
            raise
        self._changes = Changes(fs, place, self._journal)
        self._proof = Proof(fs, place, self._changes)
        try:
            self._lease = self._begin(lease)
        except BaseException:
            self._lease_file.close()
            self._journal.close()
            raise

    def _begin(self, lease: Lease) -> Lease:
        old = self._lease_file.read()
        epoch = 1 + max(self._changes.history.epoch, old.epoch if old is not None else 0)
        self._claims.inherit(old.claims if old is not None else ())
        self.is_resumed = old is not None and old.token == lease.token and old.is_valid(lease.boot_id, self._clock())
        lease = lease._replace(epoch=epoch, claims=self._claims.paths)
        self.note("LEASE", {"epoch": epoch, "root": self.root, "boot_id": lease.boot_id, "name": lease.name})
        self._lease_file.write(lease)
        return lease

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
        resources: Sequence[str] = (),
        shadow: Optional[Shadow] = None,
        clock: Callable[[], float] = boottime_s,
    ) -> Tree:
        """Takes the tree for `holder` (token, name, pid), or raises `busy` with who has it, since and until when; the
        `resources` (device:PATH, port:NUMBER) with it.

        `kill_agent` gets {pid, start_ticks, boot_id} of an agent of the same holder that still has the lock; it checks
        that identity, ends the process and says whether it is gone. `clock` gives CLOCK_BOOTTIME in seconds.
        """
        token, now_s = str(holder["token"]), clock()
        me = (os.getpid(), own_start_ticks(), "agent", 0, boot_id)
        lease = Lease(token, str(holder["name"]), int(holder["pid"]), *me, fs.now_ns() / 1e9, now_s + lease_s)
        with os_errors("open"):
            if shadow is not None:
                make_home(fs, shadow)
            real, found = state.resolve_root(fs, root)
            state_dir = state.find_state_dir(fs, real, found) or state.make_state_dir(fs, real, found)
            lock = state.Lock(fs, real, state_dir)
            try:
                take_lock(fs, lock, state_dir, lease, kill_agent, now_s)
                claims = Claims.take(fs, state_dir, lease, resources, now_s)
                tree = cls._start(fs, real, guarded, state_dir, lock, lease, clock, claims, journal_dir)
            except BaseException:
                lock.close()
                raise
        tree.shadow = shadow
        return tree

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
        patience_s: float = PATIENCE_S,
    ) -> Tree:
        """Takes the tree for the guard of `epoch`, whose lease has run out and whose agent has been ended.

        `busy` when another agent has the lock or a later epoch began (it recovers then), or the lease was extended.
        """
        with os_errors("open"):
            real = fs.resolve(root)
            lock = state.Lock(fs, real, state_dir)
            try:
                old = take_lock_as_guard(fs, lock, state_dir, epoch, boot_id, clock, patience_s)
                lease = old._replace(host_pid=os.getpid(), start_ticks=own_start_ticks(), role="guard")
                lease = lease._replace(deadline_s=clock() + _GUARD_LEASE_S)
                claims = Claims(fs, state_dir)
                return cls._start(fs, real, guarded, state_dir, lock, lease, clock, claims, None)
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
        lease: Lease,
        clock: Callable[[], float],
        claims: Claims,
        journal_dir: Optional[str],
    ) -> Tree:
        try:
            state.furnish(fs, state_dir)
            fresh_xattrs = xattrs_digest(fs.xattrs(os.path.join(state_dir, "lock")))
            place = Place(root, tuple(_resolve_guarded(fs, path) for path in guarded), state_dir, fresh_xattrs)
            return cls(fs, place, lock, lease, clock, claims, journal_dir)
        except BaseException:
            claims.drop()
            raise

    def close(self) -> None:
        """Gives the tree back; `dirty` while a change or a launch is open."""
        self._changes.refuse_open()
        if self.open_launch() is not None:
            raise AgentError("dirty", "a launch is still open", {"launch": json.dumps(self.open_launch())})
        if self.open_service() is not None:
            raise AgentError("dirty", "what served before is not given back", {"root": self.root}, "recover")
        self.drop_shadow()
        self.note("CLOSED", {"epoch": self.epoch})
        with os_errors("close"):
            self._lease_file.write(self._lease._replace(deadline_s=0.0, claims=()))
            self._claims.release()
        self.leave()

    def give_back(self) -> None:
        """What the guard does when it is done: lease and claims end, whatever is still open."""
        self.beat(0.0)
        with os_errors("close"):
            self._claims.release()
        self.leave()

    def leave(self) -> None:
        """Lets go of lock and journal; lease, stage and open transaction stay for whoever comes next.

        Also what a forked child calls first: the lock is the parent's alone.
        """
        if not self._is_left:
            self._is_left = True
            self._journal.close()
            self._lease_file.close()
            self._claims.drop()
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
                is_held = lease is not None and lease.is_valid(boot_id or read_boot_id(), clock())
                if is_held or not lock.try_take():
                    raise is_held_error(lease, state_dir)
                state.refuse_open(fs, state_dir)
                return state.remove(fs, state_dir)
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

    def fs_facts(self) -> Dict[str, Any]:
        """{exchange, type} of the file system of the tree, by trying with two files of ours."""
        one, other = (os.path.join(self._place.stage_dir, f"probe.{letter}") for letter in "ab")
        mounts = [mount for mount in self._fs.mounts() if is_below(self.root, mount.point)]
        kind = max(mounts, key=lambda mount: len(mount.point)).type if mounts else "unknown"
        try:
            for path in (one, other):
                self._fs.close(self._fs.open(path, os.O_RDWR | os.O_CREAT))
            self._fs.exchange(one, other)
        except OSError:  # cannot, or no room to try: then apply finds out by itself
            return {"exchange": False, "type": kind}
        finally:
            state.drop_probes(self._fs, self._place.stage_dir)
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
            self._claims.write(self._lease)
        return self._lease.deadline_s

    def _fence(self) -> None:
        """A controller that comes back late must not write: its guard, or somebody else, may be at work."""
        there = self._lease_file.read()
        if there is None or there.epoch != self.epoch or not self._lease.is_valid(self._lease.boot_id, self._clock()):
            raise busy(there, self._clock(), self._fs.now_ns() / 1e9)

    def open_launch(self) -> Optional[Dict[str, Any]]:
        """The last LAUNCH_INTENT or LAUNCHED without a STOPPED: its data with `kind` and `seq`."""
        return self._changes.history.launch

    def open_service(self) -> Optional[Dict[str, Any]]:
        """The last SERVICE_INTENT without a SERVICE_STARTED: its data with `stage` (intent, stopped, starting)."""
        return self._changes.history.service

    def outcome(self) -> Optional[Dict[str, Any]]:
        """The last GUARD_… record until it is acknowledged: its data with `kind` and `seq`."""
        return self._changes.history.outcome

    def acknowledge(self) -> None:
        if self.outcome() is not None:
            self.note("ACKNOWLEDGED", {"epoch": self.epoch})

    # -- files -----------------------------------------------------------------------------------------------------

    def open_transaction(self) -> Optional[Dict[str, Any]]:
        """{txn, state, paths, report} of what is applied or half applied.

        state: intended, applied, reverting, held, releasing.
        """
        return self._changes.open_transaction()

    def apply(self, txn: str, files: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
        """Changes all files or none: {txn, files: [{path, before, after}], seconds}.

        `conflict` when a file is not as expected, `refused` when a precondition of safety does not hold, `dirty` when
        something is applied already, or when a third party kept us from undoing a half.
        """
        self._fence()
        return self._changes.apply(txn, files)

    def revert(self, txn: str, reason: str) -> Dict[str, Any]:
        """Brings back every file of the open transaction: {txn, state: "reverted", files: [{path, now}], seconds}.

        `dirty` with a report when a third party interfered; nothing is moved then, and both versions are kept.
        """
        if not self._changes.was_reverted(txn):
            self._fence()
        result = self._changes.revert(txn, reason)
        self._settle_manifest()
        return result

    def recover_files(self, reason: str) -> Dict[str, Any]:
        """Undoes whatever is open: {state: clean or held, did: [sentence], report: [Held]}. Idempotent."""
        self._fence()
        state.drop_probes(self._fs, self._place.stage_dir)
        result = self._changes.recover(reason)
        if result["state"] == "clean":
            self._settle_manifest()
        copy = self.drop_shadow() if result["state"] == "clean" and self.open_launch() is None else None
        return {**result, "did": [*result["did"], f"removed the copy {copy}"]} if copy else result

    def release(self, txn: str, choice: str, merged: Sequence[Mapping[str, Any]] = ()) -> Dict[str, Any]:
        """Ends a held transaction by a person's word: {txn, state: "released", kept: [path]}.

        `choice`: `theirs` leaves what somebody made of the held files, `found` brings the originals back, `merge` puts
        what is `merged` ({path, theirs_sha256, content_b64}) there. What does not stay is moved to `kept/`.
        """
        self._fence()
        result = self._changes.release(txn, choice, merged)
        self._settle_manifest()
        return result

    def foresee_release(self, txn: str, choice: str) -> Dict[str, Any]:
        """What `release` would do, per file; changes nothing."""
        return self._changes.foresee_release(txn, choice)

    def verify(self) -> Dict[str, Any]:
        """Compares with the manifest as found: {clean, digest, differences, seconds}; `refused` without a snapshot."""
        with os_errors("verify"):
            return self._proof.verify()


def read_boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _resolve_guarded(fs: Fs, path: str) -> str:
    path = path.rstrip("/")
    return os.path.join(fs.resolve(os.path.dirname(path)), os.path.basename(path))
