"""The agent cache on the host: archives of ours, and a note of every tree that keeps something of ours."""

from __future__ import annotations

import os
import re
from typing import List

_ARCHIVE = re.compile(r"^[0-9a-f]{64}$")
_TREES = "trees"


class Cache:
    """A directory; made when there is something to note."""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def of_this_agent(cls) -> Cache:
        """Where the archive lies that this code came from, else where it would."""
        archive = getattr(globals().get("__loader__"), "archive", None)
        if isinstance(archive, str) and _ARCHIVE.match(os.path.basename(archive)):
            return cls(os.path.dirname(archive))
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return cls(os.path.join(base, "orchestrator"))

    def remember(self, state_dir: str, root: str) -> None:
        """Note a state directory, so that `forget` knows what is left. A cache that cannot be written keeps no note."""
        folder = os.path.join(self.path, _TREES)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            with open(os.path.join(folder, os.path.basename(state_dir)), "w", encoding="utf-8") as file:
                file.write(f"{state_dir}\n{root}\n")
        except OSError:
            return

    def trees(self) -> List[str]:
        """Roots whose state directories still exist; notes of the others are dropped."""
        folder = os.path.join(self.path, _TREES)
        found = []
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            note = os.path.join(folder, name)
            with open(note, encoding="utf-8") as file:
                state_dir, root = file.read().splitlines()[:2]
            if os.path.isdir(state_dir):
                found.append(root)
            else:
                os.unlink(note)
        return found

    def remove(self) -> List[str]:
        """Delete archives and notes, and the directory when nothing else is in it; the paths removed."""
        if not os.path.isdir(self.path):
            return []
        removed = []
        for name in sorted(os.listdir(self.path)):
            if _ARCHIVE.match(name):
                os.unlink(os.path.join(self.path, name))
                removed.append(os.path.join(self.path, name))
        if os.path.isdir(os.path.join(self.path, _TREES)):
            os.rmdir(os.path.join(self.path, _TREES))
        if not os.listdir(self.path):
            os.rmdir(self.path)
            removed.append(self.path)
        return removed
