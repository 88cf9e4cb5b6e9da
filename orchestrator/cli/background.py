"""A run without this terminal: `run --detach` leaves it in the background, `run --attach` tells what it does."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli import diagnostics, output
from orchestrator.errors import Busy, Dirty, Interrupted, Refused, UsageError

if TYPE_CHECKING:
    from orchestrator.core.records import RunRecord
    from orchestrator.ledger.live import LiveLine
    from orchestrator.ledger.watching import Watch

BEGINS_WITHIN_S = 60.0
LOOK_EVERY_S = 0.2


def detach(words: Sequence[str], state: Path) -> int:
    """Start `orchestrator WORDS` in a session of its own, and return when its run is in the ledger.

    What it says goes to `STATE/live/detached.log`. Its own error is shown when it ends before that; the exit code is
    then its own."""
    state.mkdir(parents=True, exist_ok=True)
    log = state / "live" / "detached.log"
    log.parent.mkdir(mode=0o700, exist_ok=True)
    before = _newest(state)
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli.main", *words],
            stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + BEGINS_WITHIN_S
    while process.poll() is None and (_newest(state) == before or _living(state) is None):
        if time.monotonic() > deadline:
            raise Busy("the run has not begun yet", facts={"pid": str(process.pid), "log": str(log)})
        time.sleep(LOOK_EVERY_S)
    if process.poll() is not None:
        diagnostics.say(log.read_text(encoding="utf-8", errors="replace").strip().replace("\n", " / ")[-2000:])
        return int(process.returncode)
    run = _living(state)
    output.emit(f"run {run.id if run else '?'} goes on in the background (pid {process.pid})")
    output.emit(f"watch it: orchestrator tui --state {state}   or: orchestrator run --attach --state {state}")
    output.emit(f"stop it: orchestrator request stop {run.host if run else 'HOST'} --state {state}")
    return 0


def attach(state: Path, host: str | None) -> int:
    """Tell what the run that lives does until it ends. Ctrl-C leaves it alone. The exit code is that of the run."""
    from orchestrator.ledger.live import LiveReader, is_alive
    from orchestrator.ledger.watching import Watch

    run = _living(state, host)
    if run is None:
        raise Refused("no run lives in this state directory", hint="orchestrator run PLAYBOOK begins one")
    diagnostics.say(f"run {run.id} of {run.campaign} on {run.host}; Ctrl-C leaves it running")
    reader = LiveReader(state, run.id)
    try:
        while is_alive(state, run.id):
            _tell(reader.read())
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        diagnostics.say(f"run {run.id} goes on")
        return 0
    _tell(reader.read())
    watch = Watch(state)
    try:
        return _ended(watch, run)
    finally:
        watch.close()


def _ended(watch: Watch, run: RunRecord) -> int:
    ended = watch.last_runs()[run.host]
    output.emit(f"run {run.id} {ended.state}")
    if ended.state == "dirty":
        raise Dirty(f"{run.host} is not proved clean", hint=f"orchestrator host recover {run.host}")
    if ended.state == "interrupted":
        raise Interrupted("the run was stopped; the host was put back first")
    if ended.state != "done":
        raise Refused(f"run {run.id} ended as {ended.state}", hint="STATE/live/detached.log has its last words")
    return 0


def _tell(lines: Sequence[LiveLine]) -> None:
    for line in lines:
        if line.kind in ("note", "warn"):
            diagnostics.say(f"warning: {line.text}" if line.kind == "warn" else line.text)
        elif line.kind == "phase" and "\t" in line.text and not line.text.endswith("\t"):
            diagnostics.say(line.text.replace("\t", " "))
        elif line.kind == "done":
            name, seconds, result = (*line.text.split("\t"), "", "")[:3]
            diagnostics.say(f"{name} {result} ({seconds} s)")
        elif line.kind == "server":
            diagnostics.say(f"server is at {line.text}")


def _living(state: Path, host: str | None = None) -> RunRecord | None:
    """The newest run that a process carries out; None where there is no ledger yet."""
    from orchestrator.ledger.live import is_alive

    runs = [run for run in _runs(state) if run.ended_at is None and (host is None or run.host == host)]
    return next((run for run in sorted(runs, key=lambda run: -run.id) if is_alive(state, run.id)), None)


def _newest(state: Path) -> int:
    return max((run.id for run in _runs(state)), default=0)


def _runs(state: Path) -> list[RunRecord]:
    from orchestrator.ledger.watching import Watch

    try:
        watch = Watch(state)
    except (Refused, UsageError):  # it is being made, or of an older schema that the run brings up to date
        return []
    try:
        return list(watch.last_runs().values())
    finally:
        watch.close()
