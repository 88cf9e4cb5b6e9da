"""Makes the directory of a lab: environment, tree, machine, models, inventory, playbook."""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import py_compile
import random
import shutil
import socket
import sys
import venv
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.errors import Refused, UsageError
from orchestrator.lab import Lab, texts
from orchestrator.lab.hardware.model import Constants, Machine, describe

HERE = Path(__file__).parent
T = TypeVar("T", Constants, Machine)
PORTS = range(20000, 32000)  # below the range from which the kernel takes ports for outgoing connections


def build(
    root: Path, *, seed: int, port: int | None, constants: Mapping[str, float], machine: Mapping[str, object]
) -> Lab:
    """Make a lab in `root`, which must be absent or empty.

    Raises `Refused` for a directory that holds something or cannot be written, `UsageError` for a value that the model
    does not know.
    """
    values, gpus = _with_values(Constants(), constants), _with_values(Machine(), machine)
    try:
        if root.exists() and any(root.iterdir()):
            raise Refused(f"{root} is not empty", hint="give a directory that does not exist yet")
        root.mkdir(parents=True, exist_ok=True)
        lab = _lab(root.resolve(), seed, port or free_port())
        _make_environment(lab)
        _make_tree(lab)
        _make_machine(lab, values, gpus)
        _make_models(lab)
        _make_campaign(lab, gpus)
        _compile(lab)
    except OSError as error:
        raise Refused(f"no lab can be made in {root}: {error.strerror or error}") from error
    return lab


def free_port() -> int:
    """A port nobody listens on just now."""
    choose = random.SystemRandom()
    while True:
        port = choose.choice(PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def _with_values(defaults: T, given: Mapping[str, object]) -> T:
    known = {f.name for f in fields(defaults)}
    if unknown := sorted(set(given) - known):
        raise UsageError(f"the lab has no constant {', '.join(unknown)}", hint="docs/lab.md lists them")
    values: dict[str, Any] = {f.name: given.get(f.name, getattr(defaults, f.name)) for f in fields(defaults)}
    return type(defaults)(**values)


def _lab(root: Path, seed: int, port: int) -> Lab:
    site = root / "venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    return Lab(root=root, seed=seed, port=port, site=site)


def _make_environment(lab: Lab) -> None:
    venv.EnvBuilder(with_pip=False, symlinks=True).create(lab.root / "venv")
    _copy(HERE / "hardware", lab.site / "lab_hardware")
    for name in ("torch", "flashinfer"):
        _copy(HERE / "host.d" / name, lab.site / name)
    shutil.copy(HERE / "host.d" / "sitecustomize.py", lab.sitecustomize)
    (lab.site / "lab-tree.pth").write_text(f"{lab.root / 'tree'}\n", encoding="utf-8")
    (lab.site / "lab-sitecustomize.pth").write_text(texts.sitecustomize_path_text(lab.site), encoding="utf-8")


def _make_tree(lab: Lab) -> None:
    _copy(HERE / "host.d" / "sglang", lab.source)
    for name, version in texts.DISTRIBUTIONS.items():
        folder = lab.site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(texts.metadata_text(name, version), encoding="utf-8")
        (folder / "INSTALLER").write_text("lab\n", encoding="utf-8")
        files = sorted(lab.source.rglob("*.py")) if name == "sglang" else []
        (folder / "RECORD").write_text("".join(_record_line(path, lab.site) for path in files), encoding="utf-8")


def _make_machine(lab: Lab, constants: Constants, machine: Machine) -> None:
    settings = {"seed": lab.seed, "constants": describe(constants), "machine": describe(machine)}
    (lab.root / "lab.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    (lab.root / "run" / "gpu").mkdir(parents=True)
    (lab.root / "dev").mkdir()
    for index in range(machine.gpu_count):
        (lab.root / "dev" / f"nvidia{index}").touch()
    (lab.root / "bin").mkdir()
    lab.nvidia_smi.write_text(texts.nvidia_smi_text(lab.python), encoding="utf-8")
    lab.nvidia_smi.chmod(0o755)


def _make_models(lab: Lab) -> None:
    for name, config in texts.MODELS.items():
        folder = lab.root / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(config, encoding="utf-8")


def _make_campaign(lab: Lab, machine: Machine) -> None:
    hosts = texts.hosts_text(lab.root, lab.site, port=lab.port, gpu_count=machine.gpu_count)
    lab.hosts_file.write_text(hosts, encoding="utf-8")
    lab.playbook_file.write_text(texts.PLAYBOOK, encoding="utf-8")
    (lab.root / "patches").mkdir()
    for name, edits in texts.PATCHES.items():
        (lab.root / "patches" / name).write_text(_diff(lab.root / "tree", edits), encoding="utf-8")


def _diff(top: Path, edits: tuple[tuple[str, str, str], ...]) -> str:
    """The unified diff that these edits amount to in the tree as it is."""
    text = ""
    for file in dict.fromkeys(edit[0] for edit in edits):
        found = (top / file).read_text(encoding="utf-8")
        changed = found
        for _, find, put in (edit for edit in edits if edit[0] == file):
            changed = changed.replace(f"{find}\n", f"{put}\n", 1)
        lines = difflib.unified_diff(
            found.splitlines(keepends=True), changed.splitlines(keepends=True), f"a/{file}", f"b/{file}"
        )
        text += "".join(lines)
    return text


def _compile(lab: Lab) -> None:
    """Compile everything once, as an installer does: nothing that only runs the lab changes it."""
    for folder in (lab.source, lab.site):
        for path in folder.rglob("*.py"):
            py_compile.compile(str(path), doraise=True)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def _record_line(path: Path, site: Path) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
    relative = Path(*[".."] * len(site.relative_to(site.parents[3]).parts), path.relative_to(site.parents[3]))
    return f"{relative},sha256={digest},{path.stat().st_size}\n"
