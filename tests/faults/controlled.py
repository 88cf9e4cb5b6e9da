"""`orchestrator` in a process that dies at a chosen point: `python -m tests.faults.controlled WORDS…`.

FAULTS_AT is the number of the point at which it dies, FAULTS_LOG a file that every point passed is written to. Points
are before and after each commit of the ledger and each request to the host; the heartbeat's are left out, since they
come when they come. Only this module knows of the variables: the product is wrapped from outside.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from orchestrator.hosts import client
from orchestrator.ledger import database

_AT = int(os.environ.get("FAULTS_AT", "0"))
_LOG = os.environ.get("FAULTS_LOG")
_lock = threading.Lock()
_passed = 0


def _point(label: str) -> None:
    global _passed
    with _lock:
        _passed += 1
        if _LOG is not None:
            with open(_LOG, "a", encoding="utf-8") as file:
                file.write(label + "\n")
        if _passed == _AT:
            os._exit(77)


def _wrap_commits() -> None:
    write = database.Database.write

    @contextmanager
    def counted(self: Any) -> Iterator[Any]:
        is_outer = not self._is_writing
        with write(self) as connection:
            yield connection
            if is_outer:
                _point("before a commit")
        if is_outer:
            _point("after a commit")

    database.Database.write = counted  # type: ignore[method-assign]


def _wrap_requests() -> None:
    submit = client.Connection.submit

    def counted(self: Any, do: str, with_: Any = None) -> Future[dict[str, Any]]:
        if do == "beat":
            return submit(self, do, with_)
        _point(f"before {do} is sent")
        future = submit(self, do, with_)
        _point(f"after {do} was sent")
        return future

    client.Connection.submit = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    from orchestrator.cli.main import run_command

    _wrap_commits()
    _wrap_requests()
    sys.exit(run_command(sys.argv[1:]))
