"""The simulated host: an environment, a source tree, eight GPUs and a server with a cost model, all in one directory.

`create` makes one. Nothing outside the directory is touched, and nothing in it knows what an experiment is: what a
launch yields follows from the code, the variables and the flags that it really reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Lab", "create"]


@dataclass(frozen=True)
class Lab:
    """A lab on disk. Paths are absolute."""

    root: Path
    seed: int
    port: int
    site: Path

    @property
    def python(self) -> Path:
        """The interpreter of the lab's server."""
        return self.root / "venv" / "bin" / "python"

    @property
    def source(self) -> Path:
        """Root of the source tree that experiments change."""
        return self.root / "tree" / "sglang"

    @property
    def sitecustomize(self) -> Path:
        """Where the known-good NCCL values are set."""
        return self.site / "sitecustomize.py"

    @property
    def hosts_file(self) -> Path:
        return self.root / "hosts.yaml"

    @property
    def playbook_file(self) -> Path:
        return self.root / "playbook.yaml"

    @property
    def nvidia_smi(self) -> Path:
        return self.root / "bin" / "nvidia-smi"

    @property
    def faults_file(self) -> Path:
        """Failures the next launches are to have; absent in a new lab."""
        return self.root / "faults.json"

    @property
    def model(self) -> Path:
        return self.root / "models" / "kimi-k2.5"

    @property
    def draft_model(self) -> Path:
        return self.root / "models" / "kimi-k2.5-eagle3"

    def server_command(self, *flags: str) -> list[str]:
        """The baseline's argument vector, and further flags."""
        baseline = ["--tp-size", "8", "--cuda-graph-max-bs", "128", "--disable-custom-all-reduce"]
        place = ["--model-path", str(self.model), "--port", str(self.port)]
        return [str(self.python), "-m", "sglang.launch_server", *place, *baseline, *flags]


def create(
    directory: Path,
    *,
    seed: int = 7,
    port: int | None = None,
    constants: Mapping[str, float] | None = None,
    machine: Mapping[str, object] | None = None,
) -> Lab:
    """Make a lab in `directory`, which must be absent or empty.

    The same seed gives the same noise. `port` is where its server is to listen; without it a free one is chosen.
    `constants` and `machine` replace defaults by name (docs/lab.md lists them). Raises `Refused` for a directory that
    holds something or cannot be written, `UsageError` for a name the lab does not have.
    """
    from orchestrator.lab.build import build  # venv, random and shutil are not needed to import this package

    return build(directory, seed=seed, port=port, constants=constants or {}, machine=machine or {})
