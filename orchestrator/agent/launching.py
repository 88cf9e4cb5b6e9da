"""What is made for a launch before its server starts: its name checked, its folder, its environment, its record."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
from typing import Any, Dict, List, Mapping

from orchestrator.agent import ending, processes
from orchestrator.agent.errors import AgentError
from orchestrator.agent.runs import Run

_LAUNCH_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
_TMP = "/tmp/" + ending.TMP_PREFIX  # noqa: S108 - AF_UNIX paths must fit below it, and it is made 0700 and exclusively


def new_run(state_dir: str, launch_id: str) -> Run:
    """Where the launch keeps its things; nothing is made yet. Raises `usage` for a name that cannot name a directory,
    `refused` for one that was used before."""
    if not _LAUNCH_ID.match(launch_id):
        raise AgentError("usage", f"{launch_id!r} cannot name a directory", {"launch_id": launch_id})
    run = Run(state_dir, launch_id)
    if os.path.exists(run.path):
        raise AgentError("refused", f"there was a launch {launch_id} before", {"log": run.log})
    return run


def make_record(run: Run, request: Mapping[str, Any], boot: str) -> Dict[str, Any]:
    """What the journal says of the launch; the environment's digest is added to it, the environment itself never."""
    return {
        "launch_id": run.launch_id,
        "argv": list(request["argv"]),
        "cwd": str(request["cwd"]),
        "grace_s": float(request["grace_s"]),
        "boot_id": boot,
        "since_ticks": int(processes.boottime_s() * processes.TICKS_PER_S) - 1,
        "tmp": f"{_TMP}{secrets.token_hex(4)}",
    }


def make_environment(
    request: Mapping[str, Any], record: Mapping[str, Any], added: Mapping[str, str], first: List[str], pycache_dir: str
) -> Dict[str, str]:
    """The server's whole environment. `added`: variables of the server that was found; `first`: what comes first on its
    PYTHONPATH."""
    env = {str(name): str(value) for name, value in request["env"].items()}
    env.update(added)
    env[processes.RUN_ID] = str(record["launch_id"])
    env["TMPDIR"] = str(record["tmp"])
    for name in request.get("own_caches") or ():
        env[str(name)] = os.path.join(str(record["tmp"]), "caches", str(name).lower())
    if request["pycache"]:
        env["PYTHONPYCACHEPREFIX"] = pycache_dir
        env.pop("PYTHONDONTWRITEBYTECODE", None)
    if first:
        env["PYTHONPATH"] = ":".join(filter(None, [*first, env.get("PYTHONPATH")]))
    return env


def digest_of(env: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(env.items())).encode("utf-8", "surrogateescape")).hexdigest()


def write_site(run: Run, content: Mapping[str, str]) -> str:
    """A directory that goes first on the server's PYTHONPATH, for a sitecustomize of our own; "" for none."""
    if not content:
        return ""
    site = site_of(run)
    os.mkdir(site, 0o700)
    for name, encoded in content.items():
        if os.path.basename(name) != name:
            raise AgentError("usage", f"{name!r} is no file name", {"name": name})
        with open(os.path.join(site, name), "wb") as file:
            file.write(base64.b64decode(encoded))
    return site


def site_of(run: Run) -> str:
    return os.path.join(run.path, "site")
