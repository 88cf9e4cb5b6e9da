"""The whole environment of a server: nothing is inherited from the connection by accident."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING

from orchestrator.serving.configuration import merge_env

if TYPE_CHECKING:
    from orchestrator.core.model import Target
    from orchestrator.serving.configuration import Configuration

BASE_NAMES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "XDG_CACHE_HOME",
)
"""What a server gets from the account it runs under, before target, context and changes."""


_TITLED = frozenset({"sglang", "vllm"})
_TITLES = {"SPT_NOENV": "1"}
"""Has setproctitle leave the environment of a rank readable, so that what reached it can be proved."""


API_KEY_ENV = "ORC_API_KEY"
"""Where a server that was given `--api-key` carries it once more, for the agent to read beside it."""


def api_key_of(target: Target) -> str | None:
    """The key that the target's own flags demand of every request."""
    key = target.args.get("api-key")
    return key if isinstance(key, str) else None


def server_environment(target: Target, configuration: Configuration, base_env: Mapping[str, str]) -> dict[str, str]:
    """Account → interpreter's own directory first on PATH → GPUs → target, context and changes."""
    base = {name: base_env[name] for name in BASE_NAMES if name in base_env}
    if target.python.startswith("/"):
        own = posixpath.dirname(target.python)
        base["PATH"] = f"{own}:{base['PATH']}" if base.get("PATH") else f"{own}:/usr/local/bin:/usr/bin:/bin"
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, target.gpus))} if target.gpus is not None else {}
    key = api_key_of(target)
    keys = {API_KEY_ENV: key} if key is not None else {}
    return merge_env(base, gpus, _TITLES if target.engine in _TITLED else {}, keys, configuration.env)
