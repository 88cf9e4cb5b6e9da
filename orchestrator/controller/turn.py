"""Whose turn it is: from one state directory, one command at a time works on a host.

The holder's token belongs to the state directory, so that the next command can take over what a dead one left. One
that lives is not taken over: the second command would end the agent of the first, and close its run in the ledger.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

from orchestrator.errors import Busy, Refused

if TYPE_CHECKING:
    from orchestrator.core.ports import Clock


@contextmanager
def sole_turn(state: Path, host: str, clock: Clock) -> Iterator[None]:
    """The turn on `host`, given back by the kernel however this process ends.

    Raises `Busy` when another process has it, `Refused` where the state directory cannot be written."""
    path = state / "turns" / f"{hashlib.sha256(host.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}.lock"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}", facts={"file": str(path)}) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(host, file) from None
        _sign(file, datetime.fromtimestamp(clock.now(), UTC).isoformat(timespec="seconds"))
        yield


def _sign(file: IO[str], since: str) -> None:
    file.truncate(0)
    command = " ".join(word for word in sys.argv[1:3] if not word.startswith("-"))
    json.dump({"pid": os.getpid(), "command": command, "since": since}, file)
    file.flush()


def _taken(host: str, file: IO[str]) -> Busy:
    file.seek(0)
    text = file.read()
    try:
        facts = {str(name): str(value) for name, value in json.loads(text).items()}
    except (ValueError, AttributeError):
        facts = {}  # it has the lock, and has not signed yet
    return Busy(
        f"another command of this state directory is at work on {host}",
        facts=facts,
        hint="wait for it, or stop it with Ctrl-C: it puts the host back first",
    )
