"""What the server's own interpreter sees from where the server starts: versions, packages, its sitecustomize."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_TIMEOUT_S = 30.0
_MARK = "ORCHESTRATOR-INTERPRETER "

# -B: looking must not write bytecode. Nothing is imported but the standard library (and, by Python itself, the
# sitecustomize that is asked about). The package is found, not imported: that would take seconds and touch GPUs.
_PROGRAM = f"""
import importlib.metadata as m, importlib.util as u, json, os, site, sys
names, package = json.loads(sys.argv[1])
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
def origin(name):
    try: spec = u.find_spec(name)
    except (ImportError, ValueError): return None
    return spec and (spec.origin or None)
loaded = sys.modules.get("sitecustomize")
folders = [p for p in site.getsitepackages() if os.path.isdir(p)]
print({_MARK!r} + json.dumps(dict(
    version=".".join(map(str, sys.version_info[:3])), executable=sys.executable, prefix=sys.prefix,
    packages=dict((n, version(n)) for n in names), package_origin=origin(package) if package else None,
    sitecustomize=getattr(loaded, "__file__", None) or origin("sitecustomize"), site_packages=folders)))
"""


@dataclass(frozen=True)
class Interpreter:
    """`packages`: name → version, None when it is not installed there. `package_origin` is the `__init__.py` that an
    import would take. `would_be_sitecustomize` is where a new one would count when there is none yet.
    `problem` is a sentence when it gave no answer."""

    version: str | None = None
    executable: str | None = None
    prefix: str | None = None
    packages: Mapping[str, str | None] = field(default_factory=dict)
    package_origin: str | None = None
    sitecustomize: str | None = None
    would_be_sitecustomize: str | None = None
    is_sitecustomize_inside_environment: bool = False
    site_packages: tuple[str, ...] = ()
    problem: str | None = None


def interpreter_command(
    python: str, packages: Sequence[str], package: str | None, env: Mapping[str, str], cwd: str
) -> dict[str, Any]:
    """One request for the agent's `run`: in the server's environment and directory, as both decide what is found."""
    argv = [python, "-B", "-c", _PROGRAM, json.dumps([list(packages), package])]
    return {"name": "interpreter", "argv": argv, "env": dict(env), "cwd": cwd, "timeout_s": _TIMEOUT_S}


def parse_interpreter(answer: Mapping[str, Any], python: str) -> Interpreter:
    """The reply to `interpreter_command`. Whatever else start-up files print is skipped."""
    lines = [line for line in answer["stdout"].splitlines() if line.startswith(_MARK)]
    if not lines:
        return Interpreter(problem=_problem(answer, python))
    said = json.loads(lines[-1].removeprefix(_MARK))
    folders = tuple(said["site_packages"])
    would_be = f"{folders[0]}/sitecustomize.py" if folders else None
    effective = said["sitecustomize"] or would_be
    return Interpreter(
        version=said["version"],
        executable=said["executable"],
        prefix=said["prefix"],
        packages=said["packages"],
        package_origin=said["package_origin"],
        sitecustomize=said["sitecustomize"],
        would_be_sitecustomize=would_be,
        is_sitecustomize_inside_environment=_is_inside(effective, folders, said["prefix"]),
        site_packages=folders,
    )


def _is_inside(path: str | None, folders: Sequence[str], prefix: str) -> bool:
    """A file in a site-packages of this environment. One from the standard library or PYTHONPATH serves others too."""
    if path is None:
        return False
    folder = path.rpartition("/")[0]
    return folder in folders and folder.startswith(prefix.rstrip("/") + "/")


def _problem(answer: Mapping[str, Any], python: str) -> str:
    if answer.get("error"):
        return f"{python} cannot be started: {answer['error']}"
    if answer["timed_out"]:
        return f"{python} does not answer within {_TIMEOUT_S:g} s"
    last = answer["stderr"].strip().splitlines()[-1:] or ["it says nothing"]
    return f"{python} failed with exit code {answer['rc']}: {last[0][:300]}"
