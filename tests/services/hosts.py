"""Hosts that serve when we come: the lab, and the real SGLang of the rig, each under a script of its own."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from orchestrator.lab import Lab, create
from tests.end_to_end.conftest import processes_of
from tests.end_to_end.rig import find_rig, free_port
from tests.services.live import Live, serving, words_of

PROBE = {"id": "probe", "claim": "c"}
LAB_EDIT = {"file": "sglang/launch_server.py", "find": "import sys", "replace": "import sys\nimport json", "count": 1}


@dataclass(frozen=True)
class Served:
    """`mark`: in the command line or environment of all that runs here; `patience_s`: longest wait for anything."""

    name: str
    hosts: Path
    playbook: Path
    source: Path
    live: Live
    lease_s: float
    patience_s: float
    mark: Path

    def tree(self) -> dict[str, tuple[int, int, str]]:
        """Mode, time and digest of every file that is no bytecode."""
        return {
            str(path): (path.stat().st_mode, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in self.source.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }

    def ours(self) -> list[str]:
        """Command lines on this host that are not the service's."""
        theirs = {" ".join(words_of(pid)).strip() for pid in self.live.processes()}
        return [line for line in processes_of(self.mark) if line.strip() not in theirs]


def write(folder: Path, hosts: dict[str, Any], changes: list[dict[str, Any]], lease_s: float, **more: Any) -> Path:
    (folder / "served-hosts.yaml").write_text(json.dumps(hosts))
    playbook = {
        "campaign": "served",
        "lease": f"{lease_s:g}s",
        "workload": {"prompt_tokens": 8, "output_tokens": 16},
        "measure": {"repetitions": 1, "launches": 1},
        "hypotheses": [{**PROBE, "changes": changes}],
        **more,
    }
    path = folder / "served.yaml"
    path.write_text(json.dumps(playbook))
    return path


@contextmanager
def lab_host(folder: Path) -> Iterator[Served]:
    lab: Lab = create(folder / "lab")
    hosts = dict(YAML(typ="safe").load(lab.hosts_file.read_text()))
    target = hosts["targets"]["kimi-lab"]
    target["service"] = {"process": {}}
    playbook = write(lab.root, hosts, [{"patch": {"edits": [LAB_EDIT]}}], 3.0)
    argv = [str(target["python"]), "-m", "sglang.launch_server", "--model-path", str(target["model"])]
    argv += ["--port", str(lab.port), "--tp-size", str(target["args"]["tp-size"]), "--disable-custom-all-reduce"]
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, target["gpus"]))}
    with serving(folder / "live-lab", argv, lab.port, gpus) as live:
        yield Served("lab", lab.root / "served-hosts.yaml", playbook, lab.source, live, 3.0, 60.0, lab.root)


@contextmanager
def rig_host(folder: Path) -> Iterator[Served]:
    rig, port = find_rig(), free_port()
    target = rig.target(port)
    target["service"] = {"process": {}}
    target["source"] = str(rig.source)
    hosts = {"hosts": {"rig": {"route": "local", "target": "sglang"}}, "targets": {"sglang": target}}
    home = folder / "rig"
    home.mkdir()
    edit = {"file": "sglang/launch_server.py", "find": "import sys", "replace": "import sys\nimport json", "count": 1}
    playbook = write(home, hosts, [{"patch": {"edits": [edit]}}], 5.0)
    argv = [str(target["python"]), "-m", "sglang.launch_server", "--model-path", str(target["model"])]
    argv += ["--port", str(port), *_flags(target["args"])]
    with serving(folder / "live-rig", argv, port, target["env"], 300.0) as live:  # type: ignore[arg-type]
        yield Served("rig", home / "served-hosts.yaml", playbook, rig.source, live, 5.0, 300.0, home)


def _flags(args: Any) -> list[str]:
    words: list[str] = []
    for name, value in args.items():
        words += [f"--{name}"] if value is True else [f"--{name}", *shlex.split(str(value))]
    return words
