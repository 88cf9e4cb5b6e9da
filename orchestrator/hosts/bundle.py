"""The agent as one zip archive: the same bytes for the same sources, named by their sha256."""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can name
_REGULAR_0644 = 0o100644 << 16


@dataclass(frozen=True)
class Bundle:
    """`content` is a zip with `start` and the package `orchestrator.agent`; `digest` its sha256 in hexadecimal."""

    content: bytes
    digest: str


def pack(sources: Mapping[str, bytes]) -> Bundle:
    """Archive path → source, as a zip that depends on nothing else."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(sources):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.create_system = 3  # Unix, wherever the controller runs
            entry.external_attr = _REGULAR_0644
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, sources[path])
    content = out.getvalue()
    return Bundle(content, hashlib.sha256(content).hexdigest())


def agent_sources() -> dict[str, bytes]:
    """Archive path → bytes of every module of the agent, from a checkout or an installed wheel alike.

    The package above it becomes an empty one: our own `orchestrator/__init__.py` may use a newer Python.
    """
    found = {
        f"orchestrator/agent/{item.name}": item.read_bytes()
        for item in resources.files("orchestrator.agent").iterdir()
        if item.name.endswith(".py")
    }
    starter = resources.files("orchestrator.hosts").joinpath("start.py").read_bytes()
    return {"orchestrator/__init__.py": b"", "start.py": starter, **found}


@functools.cache
def bundle() -> Bundle:
    """The agent of this installation, packed once per process."""
    return pack(agent_sources())
