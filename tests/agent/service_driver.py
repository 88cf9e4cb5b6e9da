"""Stops a service and gives it back in this process, which is killed at the step named: `ROOT PORT STEP`.

Steps: a kind of record (killed once it is durable), `saved`, `supervisor` (one of them is ended), `ended` (all of it
is), `started` (it is started, and no record says so), `end` (not killed), `back` (only gives back what is stopped).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from orchestrator.agent import found, kernel, processes, service
from orchestrator.agent.fs import Fs
from orchestrator.agent.tree import Tree


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(step: str, wanted: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, and then the end of this process where that is the step."""

    def wrapped(*given: Any, **named: Any) -> Any:
        result = call(*given, **named)
        if step == wanted:
            die()
        return result

    return wrapped


def main(root: str, port: int, step: str) -> None:
    kernel.become_subreaper()
    boot = processes.boot_id()
    holder = {"token": "driver", "name": "driver", "pid": os.getpid()}
    tree = Tree.open(Fs(), root, [], holder, 30.0, kill_agent=lambda _: True, boot_id=boot)
    note = tree.note

    def noting(kind: str, data: dict[str, Any]) -> int:
        seq = note(kind, data)
        if kind == step:
            die()
        return seq

    tree.note = noting  # type: ignore[method-assign]
    found.save = after(step, "saved", found.save)
    service._end_supervisor = after(step, "supervisor", service._end_supervisor)
    service._end = after(step, "ended", service._end)
    start = after(step, "started", lambda: service.start_found(tree.state_dir))
    if step != "back":
        service.stop(tree, boot, {"port": port, "kind": "process", "grace_s": 2.0}, start)
    for sentence in service.give_back(tree, boot, start):
        print(sentence)
    tree.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
