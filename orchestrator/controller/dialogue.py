"""Questions to a server that must not outlive it: whoever waits for an answer learns of its end instead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from orchestrator.controller.watch import FATAL_GRACE_S, ServerWatch
from orchestrator.core.records import LaunchOutcome
from orchestrator.errors import Unreachable

if TYPE_CHECKING:
    from orchestrator.controller.session import HostSession

T = TypeVar("T")
_OUTCOMES = {state.value: state for state in LaunchOutcome}


class ArmFailed(Exception):
    """A step came to an end that is a result, not an error."""

    def __init__(self, outcome: LaunchOutcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


class Dialogue:
    """Of one launch. Every wait ends with the answer, with the server, or at its limit. `seen` keeps what was found out
    on the way."""

    def __init__(self, session: HostSession, watch: ServerWatch, seen: dict[str, Any]) -> None:
        self._session = session
        self._watch = watch
        self._seen = seen

    @property
    def launch_id(self) -> str:
        return self._watch.launch_id

    def ask(self, do: str, with_: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """A request to the agent whose reply depends on the server. Raises `ArmFailed` when the server is lost,
        `Unreachable` as the agent names it or when nothing came in time."""
        with self._session.interrupts.cancellable():
            return self._first_of(self._session.connection.submit(do, with_), timeout_s)

    def carry_out(self, work: Callable[[], T], *, timeout_s: float) -> T:
        """Several requests as one: `work` runs beside, and is left behind when the server is lost."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="dialogue", daemon=True).start()
        with self._session.interrupts.cancellable():
            return self._first_of(future, timeout_s)

    def _first_of(self, future: Future[T], timeout_s: float) -> T:
        watch, clock = self._watch, self._session.clock
        future.add_done_callback(lambda _: watch.wake.set())
        deadline = clock.monotonic() + timeout_s
        while (left := deadline - clock.monotonic()) > 0:
            watch.wake.wait(min(left, 1.0))
            watch.wake.clear()
            if watch.is_lost and not future.done():
                wait([future], timeout=FATAL_GRACE_S)
            if future.done():
                return self._answer(future)
            if watch.is_lost:
                self.fail("exited", {})
        what = f"{self._session.name} gave no answer within {timeout_s:.0f} s"
        raise Unreachable(what, facts={"reason": "timeout"})

    def _answer(self, future: Future[T]) -> T:
        try:
            return future.result()
        except Unreachable as error:
            # A connection that broke is most often a server that is about to be seen dead: that is the better answer.
            if self._watch.await_loss(FATAL_GRACE_S):
                self.fail("exited", {"error": error.what})
            raise

    def refuse_lost(self) -> None:
        """Raises `ArmFailed` where the server is gone, whatever was answered before."""
        if self._watch.is_lost:
            self.fail("exited", {})

    def fall_silent(self, error: Unreachable, facts: Mapping[str, Any]) -> NoReturn:
        """A request that got no answer: a server that hangs, with its stacks while they can be seen, or one that closed
        the connection. Raises `error` again where the agent is not there either."""
        if not self._session.connection.alive:
            raise error  # the way to the host broke: that is no word about the server
        if error.facts.get("reason") != "timeout":
            self.fail("generation_failed", {**facts, "error": error.what})
        stacks = self.ask("stacks", {"launch_id": self.launch_id}, timeout_s=60.0)
        self._seen["not_ready"] = {"state": "hung", **facts, **stacks}
        self.fail("hung", {**facts, "error": error.what})

    def fail(self, state: str, facts: Mapping[str, Any]) -> NoReturn:
        """The server did not come up, or was lost: `ArmFailed`, named after how."""
        watch = self._watch
        if watch.is_lost:
            state = "exited"  # a dying server's socket belongs to nobody for a moment, and looks like a stranger's
        outcome = _OUTCOMES.get(state, LaunchOutcome.exited)
        detail = watch.fatal or sentence_of(state, facts)
        phase = f" in phase {watch.phase}" if watch.phase is not None and state in ("hung", "timeout") else ""
        raise ArmFailed(outcome, f"{state}{phase}: {detail}" if detail else state + phase)


def sentence_of(state: str, facts: Mapping[str, Any]) -> str:
    """The agent's facts on how a server did not come up, in words. Pure."""
    known = {name: value for name, value in facts.items() if name not in _LONG and value not in (None, "")}
    last = known.pop("last_line", None)
    said = [f"last line: {last}"] if last else []
    if state == "stranger":
        owner = (
            f"pid {known['pid']} of {known.get('user', '?')}"
            if "pid" in known
            else f"somebody: {known.get('why', 'not seen')}"
        )
        age = f", for {known['age_s']:.0f} s" if "age_s" in known else ""
        words = f": {' '.join(known['cmdline'])[:200]}" if known.get("cmdline") else ""
        return f"port {known.get('port')} belongs to {owner}{age}{words}"
    if state == "exited" and "after_s" in known:
        how = f"signal {known['signal']}" if "signal" in known else f"exit code {known.get('exit_code', 'unknown')}"
        return "; ".join([f"{how} after {known['after_s']:.1f} s", *said])
    if "stalled_s" in known:
        known = {"no progress for": f"{known.pop('stalled_s'):.0f} s", **known}
    return "; ".join([", ".join(f"{name} {value}" for name, value in known.items()), *said]).strip("; ")


_LONG = frozenset({"processes", "py_spy"})
