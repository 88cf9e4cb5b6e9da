"""Is the change live in the very process that answers the port?

Applied, imported and exercised are three things. Applied is proved by the agent (bytes on disk). Imported is asked of
the server's own interpreter, in its working directory and environment. Exercised is shown by a marker in the log,
where the hypothesis names one. Environment and flags are compared with what the server itself has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.serving.configuration import flag_key

if TYPE_CHECKING:
    from orchestrator.core.model import FlagValue
    from orchestrator.serving.engine import LaunchPlan

_NCCL_TOLD = re.compile(r"NCCL INFO (NCCL_\w+) set by environment to (.+?)\.?\s*$")
_PROBE = """\
import hashlib, importlib.machinery, importlib.util, json, os, sys, types
wanted = json.loads(sys.argv[1])

def find(name):
    spec, path = None, None
    for part in name.split("."):
        whole = part if spec is None else spec.name + "." + part
        below = importlib.machinery.PathFinder.find_spec
        spec = importlib.util.find_spec(whole) if path is None else below(whole, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return spec

def same(a, b):
    if not isinstance(a, types.CodeType) or not isinstance(b, types.CodeType):
        return type(a) is type(b) and (a == b or repr(a) == repr(b))
    if (a.co_code, a.co_names, len(a.co_consts)) != (b.co_code, b.co_names, len(b.co_consts)):
        return False
    return all(same(x, y) for x, y in zip(a.co_consts, b.co_consts))

def look(name):
    spec = find(name)
    if spec is None or not spec.origin or not os.path.isfile(spec.origin):
        return None
    with open(spec.origin, "rb") as file:
        source = file.read()
    seen = {"origin": spec.origin, "sha256": hashlib.sha256(source).hexdigest(), "is_fresh": None}
    try:
        seen["is_fresh"] = same(spec.loader.get_code(name), spec.loader.source_to_code(source, spec.origin))
    except SyntaxError:
        pass
    return seen

origins = {}
for name in wanted["packages"]:
    spec = importlib.util.find_spec(name)
    origins[name] = spec.origin if spec else None
site = sys.modules.get("sitecustomize")
print("\\n" + json.dumps({
    "origins": origins,
    "modules": {name: look(name) for name in wanted["modules"]},
    "environ": {name: os.environ.get(name) for name in wanted["names"]},
    "sitecustomize": getattr(site, "__file__", None),
}))
"""


@dataclass(frozen=True)
class Expectation:
    """What must be true of a live treatment.

    `package_origin`: package → its `__init__` file as the server must resolve it. `environ`: set at launch, seen in
    the main process. `python_environ`: set by sitecustomize, seen by the interpreter. `flags`: asked for. `modules`:
    patched module → (its file, SHA-256 of that file as patched).
    """

    package_origin: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str | None] = field(default_factory=dict)
    python_environ: Mapping[str, str | None] = field(default_factory=dict)
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    marker: str | None = None
    modules: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One comparison: what was asked, what is, and whether they agree (None: it could not be seen)."""

    what: str
    asked: str
    found: str
    holds: bool | None


def interpreter_probe(expectation: Expectation, plan: LaunchPlan, *, pycache: str | None = None) -> dict[str, Any]:
    """A `run` command that asks the server's interpreter, from its directory, what it would import and see. `pycache`:
    where the server looks for compiled forms, when it is not beside the sources."""
    wanted = {
        "packages": list(expectation.package_origin),
        "names": list(expectation.python_environ),
        "modules": list(expectation.modules),
    }
    return {
        "name": "treatment",
        "argv": [plan.argv[0], "-B", "-c", _PROBE, json.dumps(wanted)],
        "env": {**plan.env, **({"PYTHONPYCACHEPREFIX": pycache} if pycache else {})},
        "cwd": plan.cwd,
        "timeout_s": 60.0,
    }


def judge_treatment(
    expectation: Expectation,
    *,
    probe: Mapping[str, Any] | None,
    environ: Mapping[str, str] | None,
    resolved: Mapping[str, Any] | None,
    log: Sequence[str],
    ranks: Sequence[Mapping[str, Any]] = (),
    told: Mapping[str, Any] | None = None,
) -> list[Check]:
    """All comparisons, those that fail included. `probe` is the reply to `interpreter_probe`, `ranks` those of the
    agent's `inspect`, `told` variables that the server itself reports of its ranks."""
    seen = _probe_output(probe)
    checks = _origin_checks(expectation, seen) + _module_checks(expectation, seen)
    checks += _rank_checks(expectation, ranks) + _told_checks(expectation, told or {}, log)
    checks += [_env_check(n, v, environ, "environment") for n, v in expectation.environ.items()]
    python_env = seen.get("environ") if seen else None
    checks += [_env_check(n, v, python_env, "sitecustomize") for n, v in expectation.python_environ.items()]
    checks += [c for n, v in expectation.flags.items() if (c := _flag_check(n, v, resolved))]
    if expectation.marker is not None:
        reached = any(expectation.marker in line for line in log)
        found = "logged" if reached else "never logged"
        checks.append(Check("marker", expectation.marker, found, reached))
    return checks


def _probe_output(reply: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not reply or reply.get("rc") != 0:
        return None
    lines = str(reply.get("stdout", "")).strip().splitlines()
    try:
        seen = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return seen if isinstance(seen, dict) else None


def _origin_checks(expectation: Expectation, seen: Mapping[str, Any] | None) -> list[Check]:
    checks = []
    for package, wanted in expectation.package_origin.items():
        if seen is None:
            checks.append(Check(f"import {package}", wanted, "the interpreter did not answer", None))
            continue
        found = seen["origins"].get(package)
        checks.append(Check(f"import {package}", wanted, str(found), found == wanted))
    return checks


def _module_checks(expectation: Expectation, seen: Mapping[str, Any] | None) -> list[Check]:
    """The patched modules as the server's interpreter finds them: from which file, with which bytes, and whether the
    bytecode that it would load is of those bytes."""
    checks = []
    for name, (path, sha256) in expectation.modules.items():
        what, asked = f"module {name}", f"{path} {sha256[:12]}"
        if seen is None or "modules" not in seen:
            checks.append(Check(what, asked, "the interpreter did not answer", None))
            continue
        found = seen["modules"].get(name)
        if found is None:
            checks.append(Check(what, asked, "no such module is found", False))
        elif found["is_fresh"] is False:
            checks.append(Check(what, asked, f"{found['origin']}, but its compiled form is of other bytes", False))
        else:
            shown = f"{found['origin']} {found['sha256'][:12]}"
            checks.append(Check(what, asked, shown, (found["origin"], found["sha256"]) == (path, sha256)))
    return checks


def _rank_checks(expectation: Expectation, ranks: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Variables as the ranks were started with them. What sitecustomize sets is seen there only where the ranks were
    started anew and not forked, so its absence decides nothing."""
    readable = [rank for rank in ranks if rank["environ"] is not None]
    checks = []
    for name, wanted in {**expectation.environ, **expectation.python_environ}.items():
        if not readable:
            if ranks:
                shown = "their titles have overwritten it"
                checks.append(Check(f"environment {name} in the ranks", _shown(wanted), shown, None))
            continue
        other = next((rank for rank in readable if rank["environ"].get(name) != wanted), None)
        if other is None:
            checks.append(Check(f"environment {name} in {len(readable)} ranks", _shown(wanted), _shown(wanted), True))
        else:
            what, found = f"environment {name} in {other['title']}", _shown(other["environ"].get(name))
            holds = None if name in expectation.python_environ else False
            checks.append(Check(what, _shown(wanted), found, holds))
    return checks


def _told_checks(expectation: Expectation, told: Mapping[str, Any], log: Sequence[str]) -> list[Check]:
    """What the server reports of its variables, and what NCCL logs with NCCL_DEBUG=INFO; silence decides nothing."""
    asked = {**expectation.environ, **expectation.python_environ}
    checks = [
        Check(f"/server_info {name}", _shown(wanted), _shown(told[name]), str(told[name]) == str(wanted))
        for name, wanted in asked.items()
        if name in told
    ]
    logged = {found[1]: found[2] for line in log if (found := _NCCL_TOLD.search(line))} if asked else {}
    return checks + [
        Check(f"NCCL's {name}", _shown(wanted), logged[name], logged[name] == wanted)
        for name, wanted in asked.items()
        if name in logged
    ]


def _env_check(name: str, wanted: str | None, environ: Mapping[str, Any] | None, where: str) -> Check:
    what = f"{where} {name}"
    if environ is None:
        return Check(what, _shown(wanted), "could not be read", None)
    found = environ.get(name)
    return Check(what, _shown(wanted), _shown(found), found == wanted)


def _flag_check(name: str, wanted: FlagValue, resolved: Mapping[str, Any] | None) -> Check | None:
    """None when the server does not report a flag of that name."""
    if resolved is None or flag_key(name) not in resolved:
        return None
    found = resolved[flag_key(name)]
    agrees = found == wanted or str(found) == str(wanted) or (wanted in (None, False) and found in (None, False))
    return Check(f"flag --{name}", _shown(wanted), _shown(found), agrees)


def _shown(value: object) -> str:
    return "unset" if value is None else str(value)
