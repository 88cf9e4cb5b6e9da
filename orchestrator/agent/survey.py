"""What of ours lies on the host for one tree, found by looking only: no lock is taken and nothing is made."""

from __future__ import annotations

import glob
import os
import stat as stat_bits
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set

from orchestrator.agent import bytecode, ending, guardsocket, holders, leftovers, processes, state
from orchestrator.agent.fs import Fs
from orchestrator.agent.history import History
from orchestrator.agent.journal import Journal, Record
from orchestrator.agent.lease import read_lease
from orchestrator.agent.processes import Identity
from orchestrator.agent.runs import list_runs

_TMP = "/tmp/" + ending.TMP_PREFIX  # noqa: S108 - looked for, not made
_DIAL_S = 2.0


def survey(root: str, boot: str) -> Dict[str, Any]:
    """The reply to `survey`: what the protocol says."""
    fs = Fs()
    real, found = state.resolve_root(fs, root)
    home = state.find_state_dir(fs, real, found)
    if home is None:
        return nothing(real)
    records = _records(fs, home)
    history = History(records)
    runs = list_runs(home)
    alive = [
        {"launch_id": run.launch_id, "pid": one.pid}
        for run in runs
        for one in sorted(run.seen(boot))
        if processes.is_alive(one, boot)
    ]
    return {
        "root": real,
        "state_dir": home,
        "found": fs.find(os.path.join(home, "found.json")) is not None,
        "lease": _lease(fs, home, boot),
        "guard": _guard(home, boot),
        "journal": {
            "records": len(records),
            "epoch": history.epoch,
            "open": history.open and {"txn": history.open["txn"], "state": history.state},
            "launch": history.launch and {"launch_id": history.launch["launch_id"]},
            "shadow": history.shadow and history.shadow["copy"],
            "service": history.service and {"port": history.service["port"], "stage": history.service["stage"]},
            "outcome": history.outcome and {"kind": history.outcome["kind"]},
        },
        "stage": _names(fs, os.path.join(home, "stage")),
        "kept_changes": [one["intent"]["txn"] for one in history.kept],
        "kept": _names(fs, os.path.join(home, "kept")),
        "runs": [run.launch_id for run in runs],
        "alive": alive,
        "pycache": _compiled(fs, os.path.join(home, "pycache")),
        "tmp": _tmps(records),
        "shm": _shared_memory({inode for run in runs for inode in run.mapped()}),
    }


def nothing(root: str) -> Dict[str, Any]:
    """Of a tree for which nothing of ours was ever kept."""
    return {"root": root, "state_dir": None, "tmp": _tmps([]), "shm": _shared_memory(set())}


def _records(fs: Fs, home: str) -> Sequence[Record]:
    """Read without the lock: a record that is just being written is simply not there yet."""
    path = os.path.join(home, "journal")
    if fs.find(path) is None or not os.path.exists(path):
        return []
    journal = Journal(fs, path, fs.open(fs.resolve(path), os.O_RDONLY))
    try:
        return list(journal.records())
    finally:
        journal.close()


def _lease(fs: Fs, home: str, boot: str) -> Optional[Dict[str, Any]]:
    lease = read_lease(fs, os.path.join(home, "lease"))
    if lease is None:
        return None
    now_s = processes.boottime_s()
    left_s = max(lease.deadline_s - now_s, 0.0) if lease.is_valid(boot, now_s) else 0.0
    return {"holder": lease.name, "role": lease.role, "host_pid": lease.host_pid, "left_s": round(left_s, 1)}


def _guard(home: str, boot: str) -> Optional[int]:
    sock = guardsocket.dial(home, _DIAL_S)
    if sock is None:
        return None
    with sock:
        identity: Optional[Identity] = processes.identity_of(guardsocket.peer_pid(sock), boot)
    return identity.pid if identity is not None else None


def _names(fs: Fs, folder: str) -> List[str]:
    return [os.path.join(folder, name) for name in fs.names(folder)] if fs.find(folder) is not None else []


def _compiled(fs: Fs, prefix: str) -> Dict[str, Any]:
    """The bytecode prefix of our launches. `stale`: made for another version of the source than lies there now."""
    files = size_bytes = stale = 0
    for folder, _, names in os.walk(prefix):
        for name in names:
            path = os.path.join(folder, name)
            files += 1
            size_bytes += os.lstat(path).st_size
            source = os.path.join(folder[len(prefix) :] or "/", name.split(".")[0] + ".py")
            there = fs.find(source)
            if there is not None:
                stale += bytecode.second_of(there.mtime_ns) not in bytecode.seconds_claimed(fs, [path])
    return {"files": files, "bytes": size_bytes, "stale": stale}


def _tmps(records: Sequence[Record]) -> List[Dict[str, Any]]:
    """Temporary directories of launches; `ours` where this tree's journal names it."""
    named = {str(record.data.get("tmp")) for record in records if record.kind in ("LAUNCH_INTENT", "LAUNCHED")}
    return [{"path": path, "ours": path in named} for path in sorted(glob.glob(_TMP + "*")) if _is_own(path)]


def _is_own(path: str) -> bool:
    try:
        seen = os.lstat(path)
    except FileNotFoundError:
        return False
    return seen.st_uid == os.getuid() and stat_bits.S_ISDIR(seen.st_mode)


def _shared_memory(mapped: Set[int]) -> List[Dict[str, Any]]:
    """Segments that launches of this tree mapped, and others of an engine's kind of name. `held`: somebody has it."""
    seen: Dict[str, os.stat_result] = {}
    for path in glob.glob(leftovers.SHM + "/*"):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        is_ours = found.st_ino in mapped
        if stat_bits.S_ISREG(found.st_mode) and (is_ours or leftovers.is_suspect(os.path.basename(path))):
            seen[path] = found
    held = _held(seen)
    return [
        {"path": path, "ours": found.st_ino in mapped, "held": path in held, "size": found.st_size}
        for path, found in sorted(seen.items())
    ]


def _held(seen: Mapping[str, os.stat_result]) -> Set[str]:
    if not seen:
        return set()
    wanted = holders.Wanted({}, {(s.st_dev, s.st_ino): path for path, s in seen.items()}, set(seen))
    return {path for paths in holders.scan(wanted, set()).devices.values() for path in paths}
