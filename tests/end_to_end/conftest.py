"""Hosts for whole runs: a lab of its own for each test, and a real sshd."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from orchestrator.cli.main import run_command
from orchestrator.lab import Lab, create
from tests.sshd import sshd, sshd_factory

__all__ = ["sshd", "sshd_factory"]


@dataclass
class Bench:
    """A lab with a state directory, and the command line over both."""

    lab: Lab
    state: Path
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, Any]:
        """Exit code and JSON of one command."""
        code = run_command([*words, "--state", str(self.state), "--json"])
        shown = self.capsys.readouterr()
        return code, json.loads(shown.out) if shown.out.strip() else shown.err

    def inventory(self) -> dict[str, Any]:
        return dict(YAML(typ="safe").load(self.lab.hosts_file.read_text()))

    def write_inventory(self, inventory: dict[str, Any]) -> Path:
        self.lab.hosts_file.write_text(json.dumps(inventory))
        return self.lab.hosts_file

    def write_playbook(self, hypotheses: list[dict[str, Any]], **more: Any) -> Path:
        """A small, quick campaign in the lab's directory."""
        playbook = {
            "campaign": "bench",
            "workload": {"prompt_tokens": 8, "output_tokens": 16},
            "measure": {"repetitions": 2, "launches": 1},
            "hypotheses": [{"claim": "c", **h} for h in hypotheses],
            **more,
        }
        path = self.lab.root / "bench.yaml"
        path.write_text(json.dumps(playbook))
        return path

    def tree(self) -> dict[str, tuple[int, float, bytes]]:
        """Every file of the source tree: mode, modification time, content."""
        return {
            str(p.relative_to(self.lab.source)): (p.stat().st_mode, p.stat().st_mtime_ns, p.read_bytes())
            for p in sorted(self.lab.source.rglob("*"))
            if p.is_file()
        }


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(create(tmp_path / "lab"), tmp_path / "state", capsys)


def processes_of(root: Path) -> list[str]:
    """Command lines of living processes whose environment or command line names `root`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environ = (entry / "environ").read_bytes()
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(root).encode() in environ + line:
                found.append(line.replace(b"\0", b" ").decode())
    return found
