# ruff: noqa: E501 - whole lines of other files, quoted as they are
"""Bugs to plant: each breaks one promise of state safety in one place of the agent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bug:
    """`edits` are (file below orchestrator/agent, text, replacement); every text occurs exactly once."""

    name: str
    edits: tuple[tuple[str, str, str], ...]
    seen_by: str


def _one(name: str, seen_by: str, file: str, old: str, new: str) -> Bug:
    return Bug(name, ((file, old, new),), seen_by)


_SYNCED = ("files.py", "journal.py", "fs.py", "changes.py", "state.py", "proof.py")
_SYNC = re.compile(
    r"^( +)(?:self\._|self\.|fs\.|files\.|)?(?:fs\.)?(?:fsync|fdatasync|sync_dir|sync_all)\(.*\)(?:  #.*)?$"
)


def single_syncs(agent: Path) -> list[Bug]:
    """One bug for each line that syncs: it does nothing instead. The lines of `Fs` that carry a sync out are left."""
    found = []
    for file in _SYNCED:
        lines = (agent / file).read_text().splitlines(keepends=True)
        for number, line in enumerate(lines):
            match = _SYNC.match(line.rstrip("\n"))
            if match is None or line.strip().startswith("os."):
                continue
            old = "".join(lines[max(0, number - 6) : number + 3])
            new = "".join([*lines[max(0, number - 6) : number], f"{match[1]}None\n", *lines[number + 1 : number + 3]])
            found.append(_one(f"{file}:{number + 1} {line.strip()} taken out", "9", file, old, new))
    return found


# fmt: off
BUGS = (
    _one(
        "staged copy not synced", "9", "files.py",
        "        fs.futime(fd, after.mtime_ns)\n        fs.fsync(fd)\n", "        fs.futime(fd, after.mtime_ns)\n",
    ),
    _one(
        "journal record not synced", "9", "journal.py",
        "if not can_wait:\n", "if False:\n",
    ),
    _one(
        "directories not synced after the swaps", "9", "files.py",
        "        placed[index] = True\n    sync_all(fs, transaction)\n", "        placed[index] = True\n",
    ),
    _one(
        "directories not synced after the swap back", "9", "files.py",
        "            held.extend(_try_back(fs, change, seen[index][0]))\n    sync_all(fs, transaction)\n",
        "            held.extend(_try_back(fs, change, seen[index][0]))\n",
    ),
    _one(
        "directories not synced after what was staged is gone", "9", "files.py",
        "            fs.set_dir_time(folder, mtime_ns)\n    sync_all(fs, transaction)\n",
        "            fs.set_dir_time(folder, mtime_ns)\n",
    ),
    _one(
        "no checksum", "9", "journal.py",
        "    if zlib.crc32(struct.pack(\"<QI\", seq, length) + payload) != check:\n        return None\n", "",
    ),
    _one(
        "owner not copied", "1 calls killed", "files.py",
        "            _keep_owner(fs, fd, change, after)\n", "            fs.fstat(fd)\n",
    ),
    _one(
        "attributes not copied", "1 calls killed", "files.py",
        "            _copy_xattrs(fs, fd, change)\n", "            fs.fstat(fd)\n",
    ),
    _one(
        "mode not copied", "1 calls killed", "files.py",
        "        fs.fchmod(fd, after.mode)\n", "",
    ),
    _one(
        "three renames for a swap", "1 calls killed", "files.py",
        "        fs.exchange(stage, path)\n",
        "        fs.rename(path, stage + '.x')\n        fs.rename(stage, path)\n        fs.rename(stage + '.x', stage)\n",
    ),
    _one(
        "revert written in place", "1 calls killed", "files.py",
        "    if change.kind == \"replace\":\n        swap(fs, change.stage, change.path)\n    else:\n        move(fs, change.path, "
        "change.stage)\n    came_out = identify(fs, change.stage)\n    if came_out is not None and expected",
        "    if change.kind == \"replace\":\n        parked = fs.read_file(change.stage)\n        fd = fs.open(change.path, "
        "os.O_WRONLY | os.O_TRUNC)\n        fs.write_all(fd, parked)\n        fs.close(fd)\n        return []\n    move(fs, change.path, "
        "change.stage)\n    came_out = identify(fs, change.stage)\n    if came_out is not None and expected",
    ),
    _one(
        "what was staged is kept", "1 calls killed", "files.py",
        "            if fs.find(name) is not None:\n                fs.unlink(name)\n", "            fs.find(name)\n",
    ),
    _one(
        "made directories not removed", "1 calls killed", "files.py",
        "            fs.rmdir(made)\n    return kept\n", "            fs.find(made)\n    return kept\n",
    ),
    _one(
        "times of directories not put back", "1 calls killed", "files.py",
        "            fs.set_dir_time(folder, mtime_ns)\n", "            fs.find(folder)\n",
    ),
    _one(
        "what came out in apply is not looked at", "5 third parties", "files.py",
        "    if came_out is not None and change.before is not None and is_same(came_out, change.before):\n", "    if True:\n",
    ),
    _one(
        "what came out in revert is not looked at", "5 third parties", "files.py",
        "    if came_out is not None and expected is not None and is_same_but_time(came_out, expected):\n", "    if True:\n",
    ),
    _one(
        "an edit of our version is overwritten", "5 third parties", "decisions.py",
        "    return Verdict(HOLD, \"somebody edited the file while our version was in place\")\n\n\ndef _decide_create",
        "    return _OURS\n\n\ndef _decide_create",
    ),
    _one(
        "a changed mode of our version is lost", "5 third parties", "decisions.py",
        "    if now.sha256 == after.sha256 and not has_same_rights(now, after):\n        return Verdict(HOLD, \"somebody changed mode, "
        "owner or attributes of the file while our version was in place\")\n",
        "    if now.sha256 == after.sha256 and not has_same_rights(now, after):\n        return _OURS\n",
    ),
    _one(
        "entries below the bytecode prefix stay", "1 calls killed", "files.py",
        "    bytecode.drop_below_prefix(fs, place.pycache_dir, sources)\n", "    bytecode.below_prefix(fs, place.pycache_dir, sources[0])\n",
    ),
    _one(
        "REVERTED written before the swap back", "1 calls killed", "changes.py",
        "        undone = files.undo(self._fs,",
        "        self.note(\"REVERTED\", {\"txn\": txn, \"reason\": reason, \"kept\": [], \"paths\": [c.path for c in transaction.changes]})\n"
        "        undone = files.undo(self._fs,",
    ),
    Bug(
        "INTENT written after the files are staged",
        (
            ("changes.py", "            self.note(\"INTENT\", record)\n", "            self._late = record\n"),
            (
                "changes.py", "            files.stage_all(self._fs, transaction, plan)\n",
                "            files.stage_all(self._fs, transaction, plan)\n            self.note(\"INTENT\", self._late)\n",
            ),
        ),
        "1 calls killed",
    ),
    _one(
        "APPLIED written before the swaps are durable", "9", "changes.py",
        "            files.swap_all(self._fs, transaction, placed)\n",
        "            left = {at: self._fs.lstat(at).mtime_ns for at in transaction.dirs}\n"
        "            self.note(\"APPLIED\", {\"txn\": transaction.txn, \"left\": left})\n"
        "            files.swap_all(self._fs, transaction, placed)\n",
    ),
    _one(
        "launch not recorded before it starts", "1 calls killed", "session.py",
        "        self.tree.note(\"LAUNCH_INTENT\", record)\n", "",
    ),
    _one(
        "lock not taken", "5 second controller", "state.py",
        "        return self._fs.lock(self._fd) and self._lock_root() and self._is_current()\n", "        return True\n",
    ),
    _one(
        "a lease of somebody else is passed over", "5 second controller", "taking.py",
        "    if lease is not None and lease.token != mine.token and lease.is_valid(mine.boot_id, now_s):\n", "    if False:\n",
    ),
    _one(
        "a controller that comes back late may write", "5 second controller", "tree.py",
        "        there = self._lease_file.read()\n        if there is None or there.epoch != self.epoch or not self._lease.is_valid("
        "self._lease.boot_id, self._clock()):\n",
        "        there = self._lease_file.read()\n        if False:\n",
    ),
    _one(
        "a lease of an earlier boot still holds", "5 reboot", "lease.py",
        "        return self.boot_id == boot_id and now_s < self.deadline_s\n", "        return now_s < self.deadline_s\n",
    ),
    _one(
        "the guard ignores the lease", "4 silence", "guard.py",
        "                return lease.deadline_s - processes.boottime_s() if lease.boot_id == self._boot else 0.0\n",
        "                return 3600.0\n",
    ),
    _one(
        "the guard leaves the server alone", "4 silence", "guard.py",
        "        ended = ending.end_launch(ours, grace_s=0.0, reap=self._reap)\n",
        "        ended = ending.Ended([], [], 0.0)\n",
    ),
    _one(
        "a pid is enough to be killed", "6", "processes.py",
        "        if stat is None or stat.start_ticks != identity.start_ticks:\n            if pidfd is not None:\n",
        "        if stat is None:\n            if pidfd is not None:\n",
    ),
    _one(
        "orphans are not adopted", "6", "nursery.py",
        "        kernel.become_subreaper()\n", "",
    ),
    _one(
        "a guard whose disk failed once waits for its own lease", "4 guard's", "guard.py",
        "                left_s = self._lease_left_s() if self._tree is None else 0.0\n", "                left_s = self._lease_left_s()\n",
    ),
    _one(
        "the manifest as found is not put aside for a change that stays", "1 lasting", "lasting.py",
        "            self._proof.keep_original()\n", "            self._fs.find(self.root)\n",
    ),
    Bug(
        "KEPT written before the manifest of what is kept",
        (
            (
                "lasting.py", "            self._proof.keep_original()\n            taken = ",
                "            self._proof.keep_original()\n            self._changes.keep(txn)\n            taken = ",
            ),
            ("lasting.py", "        self._changes.keep(txn)  # killed", "        # killed"),
        ),
        "1 lasting",
    ),
    _one(
        "a copy is begun before its record", "1 lasting", "lasting.py",
        "            self.note(\"SHADOW_INTENT\", {\"of\": shadow.of, \"copy\": shadow.copy})\n            remove_copy(self._fs, shadow.home)\n"
        "            make_copy(self._fs, shadow)\n",
        "            remove_copy(self._fs, shadow.home)\n            make_copy(self._fs, shadow)\n"
        "            self.note(\"SHADOW_INTENT\", {\"of\": shadow.of, \"copy\": shadow.copy})\n",
    ),
    _one(
        "what a silent holder has claimed is passed over", "1 lasting", "claims.py",
        "        return is_valid and not is_own\n", "        return False\n",
    ),
    _one(
        "claims are not given back", "1 lasting", "tree.py",
        "            self._lease_file.write(self._lease._replace(deadline_s=0.0, claims=()))\n            self._claims.release()\n",
        "            self._lease_file.write(self._lease._replace(deadline_s=0.0, claims=()))\n",
    ),
    _one(
        "a guard that did not answer may act later", "4 guard", "guardlink.py",
        "                    self.is_alive = not ending.kill_and_wait(self._known, self._known.boot_id, SILENT_S)\n",
        "                    self._number += 0\n",
    ),
)
