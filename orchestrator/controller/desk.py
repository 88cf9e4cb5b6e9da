"""Beside a run: what it says goes to its live file, and what is asked of it through the ledger is carried out."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.requests import BY_NAME, RequestRecord
from orchestrator.core.secrets import Masker
from orchestrator.errors import OrchestratorError, Unreachable
from orchestrator.ledger.live import LiveWriter

if TYPE_CHECKING:
    from orchestrator.controller.narration import Narrator
    from orchestrator.controller.session import HostSession
    from orchestrator.core.records import RunRecord
    from orchestrator.ledger import Ledger

LOOK_S = 0.25
MEMORY_EVERY_S = 3.0
QUIET_PHASES = frozenset({"gate", "measure"})
"""Nothing of ours runs on the host beside a measurement."""


class Desk:
    """Of one run, from `open` to `close`; a thread of its own looks for requests."""

    def __init__(self, session: HostSession, ledger: Ledger, run_row: RunRecord, state: Path, masker: Masker) -> None:
        self._session = session
        self._ledger = ledger
        self._run = run_row
        self._state = state
        self._masker = masker
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._attend, name="desk", daemon=True)
        self._live: LiveWriter | None = None
        self._heard: object = None
        self._ending: list[RequestRecord] = []
        self._memory_at = 0.0

    def open(self) -> None:
        self._live = LiveWriter(self._state, self._run.id, self._session.clock.now, self._masker.text)
        self._session.narrator = Told(self._session.narrator, self._live)
        self._thread.start()

    def close(self, host_state: str) -> None:
        """The run's rows are ended, and the host is as `host_state` says."""
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=5.0)
        for request in self._ending:
            answer = f"the run has ended; {self._session.name} is {host_state}"
            self._ledger.answer_request(request.id, "done" if host_state != "dirty" else "failed", answer)
        self._ledger.refuse_requests_of(self._run.id, "the run has ended")
        if self._live is not None:
            self._live.close()

    # ---------------------------------------------------------------- the thread

    def _attend(self) -> None:
        while not self._done.wait(LOOK_S):
            try:
                self._listen()
                self._look_at_memory()
                request = self._ledger.take_request(
                    self._session.name, pid=os.getpid(), run_id=self._run.id, actions=self._doable()
                )
                if request is not None:
                    self._carry_out(request)
            except Unreachable:
                continue  # the run meets the same loss, and connects anew
            except OrchestratorError as error:
                self._say("warn", f"what was asked of this run cannot be seen just now: {error.what}")

    def _doable(self) -> set[str]:
        """What asks something of the host waits for the end of a measurement."""
        told = self._session.narrator
        is_quiet = isinstance(told, Told) and told.now in QUIET_PHASES
        return set(BY_NAME) - ({"look"} if is_quiet else set())

    def _listen(self) -> None:
        """The server's log, on whatever connection is the present one."""
        connection = self._session.connection
        if connection is not self._heard:
            self._heard = connection
            connection.on_event(self._on_event)

    def _on_event(self, event: str, data: Mapping[str, Any]) -> None:
        if event == "log" and self._live is not None:
            self._live.write("log", *map(str, data["lines"]))

    def _look_at_memory(self) -> None:
        from orchestrator.hosts.gputool import memory_command, parse_memory

        session = self._session
        now = session.clock.monotonic()
        is_due = now - self._memory_at >= MEMORY_EVERY_S
        if not is_due or "look" not in self._doable() or not session.is_open or not session.facts.gpus:
            return
        self._memory_at = now
        reply = session.connection.call("run", {"commands": [memory_command(session.host.gpu_tool)]}, timeout_s=20.0)
        total = {g.index: g.memory_total_mib for g in session.facts.gpus}
        cards = {str(index): [used, total.get(index)] for index, used in parse_memory(reply).items()}
        self._say("gpu", json.dumps(cards))

    def _say(self, kind: str, text: str) -> None:
        if self._live is not None:
            self._live.write(kind, text)

    # ---------------------------------------------------------------- what is asked

    def _carry_out(self, request: RequestRecord) -> None:
        self._say("note", f"asked by {request.asked_by}: {request.action}")
        act = {
            "stop": self._stop, "revert": self._stop, "pause": self._pause, "resume": self._go_on,
            "look": self._look, "rerank": self._rerank, "next": self._put_first,
        }.get(request.action)  # fmt: skip
        if act is None:
            answer = f"a run is at work on {request.host}, and does that before each launch; stop it first"
            self._ledger.answer_request(request.id, "refused", answer)
            return
        try:
            act(request)
        except OrchestratorError as error:
            self._ledger.answer_request(request.id, "failed", error.what)

    def _stop(self, request: RequestRecord) -> None:
        """Answered when the run has ended and the host is proved clean."""
        self._ending.append(request)
        self._session.interrupts.stop()

    def _pause(self, request: RequestRecord) -> None:
        self._session.interrupts.pause()
        self._say("state", "paused")
        told = self._session.narrator
        phase = told.now if isinstance(told, Told) else ""
        self._ledger.answer_request(request.id, "done", f"waits when {phase or 'the present phase'} is over")

    def _go_on(self, request: RequestRecord) -> None:
        was_paused = self._session.interrupts.is_paused
        self._session.interrupts.go_on()
        self._say("state", "running")
        self._ledger.answer_request(request.id, "done", "goes on" if was_paused else "it was not paused")

    def _look(self, request: RequestRecord) -> None:
        from orchestrator.controller.holders import examine

        seen = examine(self._session, None)
        self._ledger.answer_request(request.id, "done", f"{len(seen.holders)} process(es)", seen.as_json())

    def _rerank(self, request: RequestRecord) -> None:
        from orchestrator.controller.requests import rank_again

        answer = rank_again(self._ledger, self._run.campaign)
        self._ledger.answer_request(request.id, "done", answer)

    def _put_first(self, request: RequestRecord) -> None:
        from orchestrator.controller.requests import put_first

        answer = put_first(self._ledger, self._run.campaign, str(request.arguments.get("hypothesis", "")))
        self._ledger.answer_request(request.id, "done", answer)


class Told:
    """A narrator whose words also go to the live file. `now` is the phase that the run is in."""

    def __init__(self, narrator: Narrator, live: LiveWriter) -> None:
        self._narrator = narrator
        self._live = live
        self.now = ""

    def phase(self, host: str, name: str, detail: str) -> None:
        self.now = name
        self._live.write("phase", f"{name}\t{detail}")
        self._narrator.phase(host, name, detail)

    def phase_done(self, host: str, name: str, seconds: float, result: str) -> None:
        self.now = ""
        self._live.write("done", f"{name}\t{seconds:.2f}\t{result}")
        self._narrator.phase_done(host, name, seconds, result)

    def server_phase(self, host: str, name: str) -> None:
        self._live.write("server", name)
        self._narrator.server_phase(host, name)

    def note(self, text: str) -> None:
        self._live.write("note", text)
        self._narrator.note(text)

    def warn(self, text: str) -> None:
        self._live.write("warn", text)
        self._narrator.warn(text)
