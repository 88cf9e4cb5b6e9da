"""The directory of one launch below the state directory: its log, its end, and who was seen to belong to it.

Nothing here is needed for safety, so nothing is synced: after a reboot there are no processes to find.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Dict, List, Mapping, Set

from orchestrator.agent import processes
from orchestrator.agent.ending import Launched
from orchestrator.agent.processes import Identity


class Run:
    def __init__(self, state_dir: str, launch_id: str) -> None:
        self.launch_id = launch_id
        self.path = os.path.join(state_dir, "runs", launch_id)

    @property
    def log(self) -> str:
        return os.path.join(self.path, "server.log")

    def launched(self, record: Mapping[str, Any]) -> Launched:
        """From what the journal says; a launch that never got to LAUNCHED has no pid."""
        return Launched(
            launch_id=self.launch_id,
            pid=int(record.get("pid") or 0),
            start_ticks=int(record.get("start_ticks") or 0),
            boot_id=str(record.get("boot_id") or ""),
            since_ticks=int(record.get("since_ticks") or 0),
            tmp=str(record.get("tmp") or ""),
        )

    @staticmethod
    def since_s(record: Mapping[str, Any]) -> float:
        """The launch on the wall clock, from the boot clock, which nobody sets."""
        since_boot_s = int(record.get("since_ticks") or 0) / processes.TICKS_PER_S
        return time.time() - processes.boottime_s() + since_boot_s

    def save_record(self, record: Mapping[str, Any]) -> None:
        """What a later sweep needs to know: the journal forgets launches that are over. A help and no condition."""
        try:
            self._save("launch.json", {name: record[name] for name in ("tmp", "since_ticks", "boot_id")})
        except OSError as error:
            print(f"not noted where {self.launch_id} keeps its files: {error}", file=sys.stderr)

    def read_record(self) -> Dict[str, Any] | None:
        """None for a launch that got no further than its directory."""
        return self._load("launch.json")

    def save_exit(self, end: Mapping[str, Any]) -> None:
        self._save("exit.json", end)

    def read_exit(self) -> Dict[str, Any] | None:
        """How the server's main process ended, as its guard saw it; None while it lives or when no guard was there."""
        found = self._load("exit.json")
        return dict(found) if found else None

    def save_seen(self, identities: Set[Identity], mapped: Set[int]) -> None:
        """A full disk costs this note, which is a help and no condition, and never the end of a launch."""
        try:
            self._save("seen.json", {"identities": sorted(identities), "mapped": sorted(mapped)})
        except OSError as error:
            print(f"not noted who belongs to {self.launch_id}: {error}", file=sys.stderr)

    def seen(self, boot: str) -> Set[Identity]:
        """Processes that were of this launch when somebody looked."""
        found = (self._load("seen.json") or {}).get("identities", [])
        return {Identity(*one) for one in found if one[2] == boot}

    def mapped(self) -> Set[int]:
        """Inodes of shared memory that they mapped."""
        return set((self._load("seen.json") or {}).get("mapped", []))

    def _save(self, name: str, content: Mapping[str, Any]) -> None:
        path = os.path.join(self.path, name)
        with open(path + ".new", "w", encoding="ascii") as file:
            json.dump(content, file)
        os.replace(path + ".new", path)

    def _load(self, name: str) -> Dict[str, Any] | None:
        try:
            with open(os.path.join(self.path, name), encoding="ascii") as file:
                found: Dict[str, Any] = json.load(file)
        except FileNotFoundError:
            return None
        return found


def list_runs(state_dir: str) -> List[Run]:
    """All launches that left a directory, in order of name."""
    folder = os.path.join(state_dir, "runs")
    return [Run(state_dir, name) for name in sorted(os.listdir(folder))] if os.path.isdir(folder) else []
