"""The simulated machine: GPUs, links, NCCL, faults. Copied into a lab's site-packages as `lab_hardware`.

Nothing here knows an engine, and nothing here is part of the source tree that experiments patch. Standard library only.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .model import Constants, Machine, read_values


@dataclass(frozen=True)
class Settings:
    """`lab.json`, read once by a process."""

    root: Path
    seed: int
    constants: Constants
    machine: Machine

    @property
    def major(self) -> int:
        """The compute capability's major version."""
        return int(self.machine.compute_capability.partition(".")[0])


def read_settings(root: Path) -> Settings:
    """The settings of the lab in `root`. Raises ValueError or TypeError for values the model does not know."""
    written = json.loads((root / "lab.json").read_text(encoding="utf-8"))
    return Settings(
        root=root,
        seed=int(written["seed"]),
        constants=Constants(**read_values(written["constants"])),
        machine=Machine(**read_values(written["machine"])),
    )


@cache
def settings() -> Settings:
    """The settings of the lab whose interpreter runs this."""
    return read_settings(Path(sys.prefix).parent)
