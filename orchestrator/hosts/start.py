"""Travels with the agent and is the first to run from its archive: has the agent compiled once per host, not per start.

Compiling takes a quarter of a second, five round trips of a far host. So the first start writes a second archive with
bytecode beside the one that came, for this interpreter; where that fails, the sources are used. Python 3.8, standard
library only. Both names are 64 hexadecimal digits, by which the agent's `forget` knows what is ours.
"""

# ruff: noqa: PTH104, PTH108, PTH110, PTH118, PTH123
# os.path: importing pathlib would cost this start 10 ms

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys

_UNCHECKED_HASH = b"\x01\0\0\0" + b"\0" * 8  # the archive's name already says which sources these are


def start(archive: str) -> None:
    """Serve the protocol on descriptors 0 and 1, then leave the process."""
    sys.path[sys.path.index(archive)] = compiled(archive)
    from orchestrator.agent.main import run_agent

    sys.exit(run_agent(0, 1))


def compiled(archive: str) -> str:
    """The archive with bytecode for this interpreter, made if need be; `archive` itself where it cannot be kept."""
    target = _beside(archive, importlib.util.MAGIC_NUMBER.hex())
    if os.path.exists(target):
        return target
    draft = _beside(target, str(os.getpid()))
    try:
        _compile(archive, draft)
        os.rename(draft, target)
    except OSError:
        if os.path.exists(draft):
            os.unlink(draft)
        return archive
    return target


def _beside(path: str, salt: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, hashlib.sha256((name + salt).encode()).hexdigest())


def _compile(archive: str, target: str) -> None:
    """Durable before it gets its name: a power cut must not leave half an archive that is then believed."""
    import marshal
    import zipfile

    with open(target, "wb") as out:
        with zipfile.ZipFile(archive) as sources, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as made:
            for name in sources.namelist():
                code = compile(sources.read(name), f"{archive}/{name}", "exec", dont_inherit=True)
                made.writestr(name + "c", importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + marshal.dumps(code))
        out.flush()
        os.fsync(out.fileno())
