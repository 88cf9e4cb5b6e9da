"""The simulated host, and the demo that runs the whole campaign on it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.controller.run import RunRequest, RunSummary, run
from orchestrator.errors import Bug

if TYPE_CHECKING:
    from orchestrator.controller.narration import Narrator
    from orchestrator.lab import Lab

CAMPAIGN = "eagle-fast-verify.yaml"


@dataclass(frozen=True)
class Demo:
    lab: str
    playbook: str
    summary: RunSummary


def create_lab(directory: Path, seed: int) -> Lab:
    from orchestrator.lab import create

    return create(directory, seed=seed)


def demo(directory: Path | None, narrator: Narrator, *, seed: int = 7) -> Demo:
    """A lab in a temporary directory, and the campaign on it. Both stay, so that the ledger can be looked at."""
    home = directory if directory is not None else Path(tempfile.mkdtemp(prefix="orchestrator-demo-"))
    lab = create_lab(home / "lab", seed)
    narrator.note(f"a simulated host with eight GPUs lies in {lab.root}")
    playbook = packaged_playbook(CAMPAIGN)
    request = RunRequest(playbook, state=home / "state", hosts=lab.hosts_file)
    return Demo(str(lab.root), str(playbook), run(request, narrator))


def packaged_playbook(name: str) -> Path:
    """A playbook that comes with the package: from the wheel's data, or from the checkout it runs in."""
    package = Path(str(resources.files("orchestrator")))
    for folder in (package / "_data" / "playbooks", package.parent / "playbooks"):
        if (folder / name).is_file():
            return folder / name
    raise Bug(f"{name} did not come with this installation")
