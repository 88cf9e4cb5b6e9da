"""The guard: killed and stopped at each of its calls; the agent stopped, both killed, the lease ending in every state.

Layer 4.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.agent.journal import decode
from tests.faults.agents import Agent, AgentEnded, AgentError, TooLate, processes_of, wait_until
from tests.faults.examining import Story, Verdict, ask_to_recover, examine, recover
from tests.faults.scenery import Scene, torn
from tests.faults.table import Case, NotReached
from tests.faults.tracing import Fault, Point, Tracer, has_struck, parse_points, trace_arguments

IMPATIENT = "from orchestrator.agent import guardlink as _g; _g.REPLY_S = 1.0"
"""A guard that does not answer for a second is given up: else each stopped guard costs ten."""
RESTLESS = IMPATIENT + "\nfrom orchestrator.agent import guard as _gd; _gd._RETRY_S, _gd._TRIES = 0.05, 6"
"""A guard whose disk fails tries again thirty times, with pauses of two seconds; here six times, without."""
ERRORS = ("ENOSPC", "EIO")
SHORT_S = 0.3
STATES = ("open", "snapshot", "apply", "launch", "stop", "revert")
_UNDONE_S = 30.0


def guard_pid(scene: Scene) -> int:
    """Of the guard of this scene, by its name and its HOME."""

    def find() -> int | None:
        named = [pid for pid in processes_of(str(scene.base)) if _name_of(pid) == "orc-guard"]
        return named[0] if named else None

    return int(wait_until(find, "a guard lives"))


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class LeaseSeen:
    """What the lease file says, read without the agent's classes."""

    role: str
    deadline_s: float

    @property
    def is_over(self) -> bool:
        return time.clock_gettime(time.CLOCK_BOOTTIME) >= self.deadline_s


def lease_of(scene: Scene) -> LeaseSeen | None:
    state_dir = scene.state_dir
    path = state_dir / "lease" if state_dir is not None else None
    found = decode(path.read_bytes()) if path is not None and path.exists() else None
    return LeaseSeen(found[0].data["role"], found[0].data["deadline_s"]) if found is not None else None


def await_guard(scene: Scene) -> None:
    """Until it has undone everything and has given the tree back."""

    def is_done() -> bool:
        history, lease = scene.history(), lease_of(scene)
        return history.open is None and history.launch is None and lease is not None and lease.is_over

    wait_until(is_done, "the guard undoes everything", _UNDONE_S)


# -- the guard's own calls -------------------------------------------------------------------------------------------


def _serve(scene: Scene, agent: Agent) -> str:
    """What a guard does while its controller lives."""
    story = Story(scene, agent)
    try:
        for step in (story.launch, story.stop, story.revert, story.verify, story.close):
            step()
    except AgentError as error:
        story.errors.append(str(error))
        return story.retreat()
    return "clean"


def _expire(scene: Scene, agent: Agent) -> str:
    """What it does when the controller falls silent: the agent is stopped with the lock in its hand."""
    agent.call("beat", lease_s=SHORT_S)
    agent.signal(signal.SIGSTOP)
    return "silent"


def _begin(scene: Scene, *, launched: bool) -> tuple[Agent, int]:
    agent = Agent(scene.base, shim=RESTLESS)
    story = Story(scene, agent)
    story.open()
    story.snapshot()
    story.apply()
    if launched:
        story.launch()
    return agent, guard_pid(scene)


def begin(scene: Scene) -> Agent:
    """An agent with everything applied and the server running."""
    return _begin(scene, launched=True)[0]


def trace_guard(base: Path, *, expiring: bool) -> list[Point]:
    base.mkdir(parents=True, exist_ok=True)
    scene = Scene(base).plant()
    agent, guard = _begin(scene, launched=expiring)
    tracer = Tracer(guard, base / "strace", trace_arguments())
    try:
        if expiring:
            _expire(scene, agent)
            await_guard(scene)
        else:
            assert _serve(scene, agent) == "clean"
        wait_until(lambda: not Path(f"/proc/{guard}").exists(), "the guard leaves")
    finally:
        agent.kill()
        text = tracer.detach()
    problems = examine(scene, Verdict()).problems
    assert not problems, problems
    return parse_points(text, base)


def strike_serving(base: Path, fault: Fault) -> Verdict:
    """The guard is hit while the controller is there to see it."""
    scene = Scene(base).plant()
    agent, guard = _begin(scene, launched=False)
    tracer = Tracer(guard, base / "strace", fault.arguments(base))
    try:
        said = _serve(scene, agent)
        agent.leave()
        wait_until(lambda: has_struck(tracer.log(), fault) or not _is_alive(guard), "the guard is hit")
    except AgentEnded:
        said = "ended"
    finally:
        agent.kill()
        text = tracer.detach()
    if not has_struck(text, fault):
        raise NotReached(text[-200:])
    return _settle(scene, guard, said == "clean")


def strike_expiring(base: Path, fault: Fault) -> Verdict:
    """The guard is hit while it undoes what a silent controller left."""
    scene = Scene(base).plant()
    agent, guard = _begin(scene, launched=True)
    tracer = Tracer(guard, base / "strace", fault.arguments(base))
    try:
        _expire(scene, agent)
        if fault.what == "STOP":
            wait_until(lambda: "SIGSTOP" in tracer.log() or not _is_alive(guard), "the guard is hit", _UNDONE_S)
        else:
            wait_until(lambda: not _is_alive(guard), "the guard is hit, or tries again and leaves", 90.0)
    finally:
        agent.kill()
        text = tracer.detach()
    if not has_struck(text, fault):
        raise NotReached(text[-200:])
    scene.told.update(_named_by_guard(scene))
    return _settle(scene, guard, is_said_clean=False)


def _named_by_guard(scene: Scene) -> set[str]:
    """What its outcome says that the system would not let it remove."""
    outcomes = [record.data["did"] for record in scene.records() if record.kind.startswith("GUARD_")]
    words = "left in place: "
    return {line.removeprefix(words) for did in outcomes for line in did if line.startswith(words)}


def _settle(scene: Scene, guard: int, is_said_clean: bool) -> Verdict:
    """A guard that is stopped with the tree in its hand makes others wait, and finishes by itself when it goes on. One
    that holds nothing is passed by."""
    bad = torn(scene)
    if is_said_clean and not _is_alive(guard):
        return examine(scene, Verdict())
    lease = lease_of(scene)
    is_over = lease is not None and lease.is_over
    if _is_alive(guard) and (is_over or (lease is not None and lease.role == "guard")):
        busy = _is_busy(scene)
        os.kill(guard, signal.SIGCONT)
        if busy:
            await_guard(scene)
    verdict = Verdict()
    verdict.lies += ask_to_recover(scene, Agent(scene.base, shim=IMPATIENT))
    if _is_alive(guard):
        os.kill(guard, signal.SIGCONT)  # nobody needs it any more: it goes as soon as it may
    examine(scene, verdict)
    verdict.differs += bad
    return verdict


def recover_impatiently(scene: Scene, **given: Any) -> Verdict:
    return recover(scene, agent=Agent(scene.base, shim=IMPATIENT), **given)


def _is_busy(scene: Scene) -> bool:
    """Whether somebody else who comes now is turned away, and told by whom. The agent that gets the tree lets it go
    again without a change."""
    agent = Agent(scene.base, shim=IMPATIENT)
    try:
        agent.call("open", **scene.open_request(token="somebody else", lease_s=0.01))
    except AgentError as error:
        assert error.kind == "busy" and {"holder", "since", "until"} <= error.facts.keys(), error
        return True
    finally:
        agent.kill()
    return False


def _is_alive(pid: int) -> bool:
    return _state_of(pid) not in "ZX"


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def freeze(base: Path, request: str, goes_on: str) -> Verdict:
    """The guard hangs before it reads a request, for longer than anybody waits; it goes on `before` or `after` the way
    back. What it finds in its socket by then is a request that was given up."""
    scene = Scene(base).plant()
    agent, guard = _begin(scene, launched=request != "launch")
    story = Story(scene, agent)
    os.kill(guard, signal.SIGSTOP)
    said = "unknown"
    try:
        getattr(story, request)()
    except AgentError as error:
        story.errors.append(str(error))
    try:
        if goes_on == "before":
            os.kill(guard, signal.SIGCONT)
            _let_it_read(scene)
        said = story.retreat()
        if goes_on == "after":
            os.kill(guard, signal.SIGCONT)
            _let_it_read(scene)
    except (AgentEnded, ProcessLookupError) as error:
        story.errors.append(str(error))
    finally:
        agent.kill()
    return _settle(scene, guard, said == "clean")


def _let_it_read(scene: Scene) -> None:
    """Long enough for a guard that goes on to start a server, if it would."""
    with contextlib.suppress(TooLate):
        wait_until(lambda: any("import a" in words for words in processes_of(str(scene.base)).values()), "", 1.0)


def freeze_cases() -> list[Case]:
    return [
        Case(f"guard frozen at {request}, goes on {when} the way back", freeze, (request, when))
        for request in ("launch", "stop", "revert", "close")
        for when in ("before", "after", "never")
    ]


# -- the agent stopped at each of its calls ------------------------------------------------------------------------


def stop_agent(base: Path, point: Point) -> Verdict:
    """The agent hangs at this call for longer than its lease. Where a guard is there it has undone everything before
    anybody comes; where none is there yet, nothing was changed and the holder takes the tree back."""
    scene = Scene(base).plant()
    fault = Fault(point, "STOP")
    agent = Agent(base)
    tracer = Tracer(agent.line_thread(), base / "strace", fault.arguments(base))
    agent.is_given_up = lambda: "SIGSTOP" in tracer.log()
    try:
        story = Story(scene, agent)
        try:
            agent.send(agent.frame("open", scene.open_request(lease_s=1.0)))
            _answer_or_stop(agent)
            for name in ("snapshot", "apply", "launch", "stop", "revert", "verify", "close"):
                _ask(story, agent, name)
        except _Stopped:
            pass
        else:
            raise NotReached("it never stopped")
    finally:
        text = tracer.detach()
    if not has_struck(text, fault):
        raise NotReached(text[-200:])
    try:
        return _after_stop(scene, agent)
    finally:
        agent.kill()


class _Stopped(Exception):
    """The agent hangs."""


def _ask(story: Story, agent: Agent, name: str) -> None:
    step: Callable[[], None] = getattr(story, name)
    try:
        step()
    except (TooLate, AgentEnded):
        raise _Stopped from None


def _answer_or_stop(agent: Agent) -> None:
    try:
        agent.answer()
    except (TooLate, AgentEnded):
        raise _Stopped from None


def _after_stop(scene: Scene, agent: Agent) -> Verdict:
    if any(_name_of(pid) == "orc-guard" for pid in processes_of(str(scene.base))):
        await_guard(scene)
        return recover_impatiently(scene)
    first = ask_to_recover(scene, Agent(scene.base, shim=IMPATIENT))
    if agent.process.poll() is None:  # it hangs in `open`, with the lock but without a lease yet: nothing was changed
        assert not first or "busy" in first[0], first
        agent.signal(signal.SIGCONT)
        agent.leave()
        return recover(scene)
    return examine(scene, Verdict(stuck=first))


# -- silence in every state ----------------------------------------------------------------------------------------


def silence(base: Path, state: str, who: str, is_guard_killed: bool) -> Verdict:
    """The controller is silent from this state on. `who`: the agent is killed, stopped, or lives and is not asked."""
    scene = Scene(base).plant()
    agent = Agent(base, shim=IMPATIENT)
    story = Story(scene, agent)
    for name in STATES[: STATES.index(state) + 1]:
        getattr(story, name)()
    agent.call("beat", lease_s=SHORT_S)
    has_guard = STATES.index(state) >= STATES.index("apply")
    if is_guard_killed and has_guard:
        os.kill(guard_pid(scene), signal.SIGKILL)
    if who == "killed":
        agent.kill()
    elif who == "stopped":
        agent.signal(signal.SIGSTOP)
    lease = lease_of(scene)
    assert lease is not None
    wait_until(lambda: lease.is_over, "the lease ends")
    if has_guard and not is_guard_killed:
        await_guard(scene)
        agent.kill()
        verdict = examine(scene, Verdict())  # before anybody has come
        verdict.lies += recover(scene, token="a later controller").problems
        return verdict
    if who != "killed":
        verdict = recover_impatiently(scene)  # the lock is still in the hand of the old agent: only its holder may
        agent.kill()
        return verdict
    return recover_impatiently(scene, token="a later controller")


def silence_cases() -> list[Case]:
    return [
        Case(
            f"silent after {state}, agent {who}, guard {'killed' if dead else 'alive'}",
            silence,
            (state, who, dead),
        )
        for state in STATES
        for who in ("killed", "stopped", "alive")
        for dead in (False, True)
    ]


def guard_cases(serving: list[Point], expiring: list[Point]) -> list[Case]:
    cases = []
    for what in ("KILL", "STOP"):
        cases += [_case("serving", strike_serving, Fault(point, what)) for point in serving]
        cases += [_case("undoing", strike_expiring, Fault(point, what)) for point in expiring]
    return cases


def error_cases(serving: list[Point], expiring: list[Point]) -> list[Case]:
    """Each of its calls on a file fails, once and from there on."""
    cases = []
    for error, stays in ((error, stays) for error in ERRORS for stays in (False, True)):
        cases += [_case("serving", strike_serving, Fault(p, error, stays)) for p in serving if p.is_file]
        cases += [_case("undoing", strike_expiring, Fault(p, error, stays)) for p in expiring if p.is_file]
    return cases


def _case(when: str, strike: Callable[[Path, Fault], Verdict], fault: Fault) -> Case:
    return Case(f"guard {when}: {fault}", strike, (fault,))


def stop_cases(points: list[Point]) -> list[Case]:
    return [Case(f"agent STOP at {point}", stop_agent, (point,)) for point in points]
