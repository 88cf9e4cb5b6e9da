"""Is the change live in the very process that answers the port?

Applied, imported and exercised are three things. Applied is proved by the agent (bytes on disk). Imported is asked of
the server's own interpreter, in its working directory and environment. Exercised is shown by a marker in the log,
where the hypothesis names one. Environment and flags are compared with what the server itself has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.serving.configuration import flag_key

if TYPE_CHECKING:
    from orchestrator.core.model import FlagValue
    from orchestrator.serving.engine import LaunchPlan

_PROBE = """\
import importlib.util, json, os, sys
wanted = json.loads(sys.argv[1])
origins = {}
for name in wanted["packages"]:
    spec = importlib.util.find_spec(name)
    origins[name] = spec.origin if spec else None
site = sys.modules.get("sitecustomize")
print("\\n" + json.dumps({
    "origins": origins,
    "environ": {name: os.environ.get(name) for name in wanted["names"]},
    "sitecustomize": getattr(site, "__file__", None),
}))
"""


@dataclass(frozen=True)
class Expectation:
    """What must be true of a live treatment.

    `package_origin`: package → its `__init__` file as the server must resolve it. `environ`: set at launch, seen in
    the main process. `python_environ`: set by sitecustomize, seen by the interpreter. `flags`: asked for.
    """

    package_origin: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str | None] = field(default_factory=dict)
    python_environ: Mapping[str, str | None] = field(default_factory=dict)
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    marker: str | None = None


@dataclass(frozen=True)
class Check:
    """One comparison: what was asked, what is, and whether they agree (None: it could not be seen)."""

    what: str
    asked: str
    found: str
    holds: bool | None


def interpreter_probe(expectation: Expectation, plan: LaunchPlan) -> dict[str, Any]:
    """A `run` command that asks the server's interpreter, from its directory, what it would import and see."""
    wanted = {"packages": list(expectation.package_origin), "names": list(expectation.python_environ)}
    return {
        "name": "treatment",
        "argv": [plan.argv[0], "-B", "-c", _PROBE, json.dumps(wanted)],
        "env": dict(plan.env),
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
) -> list[Check]:
    """All comparisons, those that fail included. `probe` is the reply to `interpreter_probe`."""
    seen = _probe_output(probe)
    checks = _origin_checks(expectation, seen)
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
