"""Host system calls: each one killed before it happens, or failing; and recovery killed at each of its own.

Agent and guard are real processes over the real protocol, the server is one process. Layers 1 and 7.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.faults.agents import Agent, AgentEnded, AgentError
from tests.faults.examining import Story, Verdict, examine, recover
from tests.faults.scenery import Scene, torn
from tests.faults.table import WORKERS, Case, NotReached, clean_up
from tests.faults.tracing import ERRORS, Fault, Point, Tracer, has_struck, parse_points, trace_arguments


def _walk(scene: Scene, agent: Agent) -> str:
    """The whole story from `open` on; what the agent said at its end."""
    story = Story(scene, agent)
    try:
        story.open()
    except AgentError:
        return "unknown"
    return story.run()


def _walk_smoothly(scene: Scene, agent: Agent) -> None:
    """The same where nothing may go wrong."""
    story = Story(scene, agent)
    for step in (story.open, *story.steps()):
        step()


def trace_story(base: Path) -> list[Point]:
    """Every call that changes something between `open` and `close`, without a fault."""
    base.mkdir(parents=True, exist_ok=True)
    scene = Scene(base).plant()
    agent = Agent(base)
    tracer = Tracer(agent.line_thread(), base / "strace", trace_arguments())
    try:
        _walk_smoothly(scene, agent)
        agent.leave()
    finally:
        agent.kill()
        text = tracer.detach()
    problems = examine(scene, Verdict()).problems
    assert not problems, problems
    return parse_points(text, base)


def run_faulty(scene: Scene, fault: Fault, walk: Callable[[Scene, Agent], str] = _walk) -> tuple[str, str]:
    """The story with one fault: (`killed`, or what the agent said; what strace wrote)."""
    agent = Agent(scene.base)
    tracer = Tracer(agent.line_thread(), scene.base / "strace", fault.arguments(scene.base))
    try:
        said = walk(scene, agent)
        agent.leave()
    except AgentEnded:
        said = "killed"
    finally:
        agent.kill()
        text = tracer.detach()
    return said, text


def kill_or_fail(base: Path, fault: Fault) -> Verdict:
    """One point of layer 1."""
    scene = Scene(base).plant()
    said, text = run_faulty(scene, fault)
    if not has_struck(text, fault):
        raise NotReached(text[-200:])
    if fault.point.is_time_above:
        scene.forgive_time_above()
    if said == "clean":
        return examine(scene, Verdict())
    before_recovery = torn(scene)
    verdict = recover(scene)
    verdict.differs += before_recovery
    return verdict


def kill_cases(points: Iterable[Point]) -> list[Case]:
    return [_case(Fault(point, "KILL")) for point in points]


def error_cases(points: Iterable[Point], errors: Iterable[str] = ERRORS) -> list[Case]:
    """Each error at each call that changes a file, once and from there on."""
    wanted = [point for point in points if point.is_file]
    return [_case(Fault(p, error, stays)) for stays in (False, True) for error in errors for p in wanted]


def _case(fault: Fault) -> Case:
    return Case(str(fault), kill_or_fail, (fault,))


# -- short writes ------------------------------------------------------------------------------------------------

_SHORT = """
from orchestrator.agent import fs as _fs
_calls = 0
def _short(write):
    def act(self, fd, data, *more):
        global _calls
        _calls += 1
        part = data[:max(1, len(data) // 3)] if len(data) > 1 and _calls {relation} {at} else data
        return write(self, fd, part, *more)
    return act
_fs.Fs.write, _fs.Fs.pwrite = _short(_fs.Fs.write), _short(_fs.Fs.pwrite)
"""


def short_write_cases(count: int) -> list[Case]:
    """The n-th write of the agent takes a third of what it is given, once and from there on; then all is killed after
    `apply` as well, so that recovery reads what was written in pieces."""
    return [
        Case(f"short write {relation} {at}{', then killed' if dies else ''}", _short_write(relation, at, dies))
        for relation in ("==", ">=")
        for at in range(1, count + 1)
        for dies in (False, True)
    ]


def _short_write(relation: str, at: int, dies: bool) -> Callable[[Path], Verdict]:
    def run(base: Path) -> Verdict:
        scene = Scene(base).plant()
        agent = Agent(base, shim=_SHORT.format(relation=relation, at=at))
        story = Story(scene, agent)
        try:
            story.open()
            if not dies:
                assert story.run() == "clean", story.errors
                agent.leave()
                return examine(scene, Verdict())
            story.snapshot()
            story.apply()
        finally:
            agent.kill()
        bad = torn(scene)
        verdict = recover(scene)
        verdict.differs += bad
        return verdict

    return run


# -- double faults -----------------------------------------------------------------------------------------------


def _walk_recovery(scene: Scene, agent: Agent) -> str:
    agent.call("open", **scene.open_request())
    said: dict[str, Any] = agent.call("recover")
    agent.call("close")
    return str(said["state"])


def trace_recovery(base: Path, first: Fault) -> list[Point]:
    """What recovery does after the first fault, call by call."""
    base.mkdir(parents=True, exist_ok=True)
    scene = Scene(base).plant()
    run_faulty(scene, first)
    agent = Agent(base)
    tracer = Tracer(agent.line_thread(), base / "strace", trace_arguments())
    try:
        assert _walk_recovery(scene, agent) == "clean"
        agent.leave()
    finally:
        agent.kill()
        text = tracer.detach()
    return parse_points(text, base)


def double_fault(base: Path, first: Fault, second: Fault) -> Verdict:
    """Killed, and recovery killed too; the third agent must do it."""
    scene = Scene(base).plant()
    _, text = run_faulty(scene, first)
    if not has_struck(text, first):
        raise NotReached(text[-200:])
    if first.point.is_time_above:
        scene.forgive_time_above()
    bad = torn(scene)
    said, text = run_faulty(scene, second, _walk_recovery)
    if not has_struck(text, second):
        raise NotReached(f"recovery said {said}: {text[-200:]}")
    bad += torn(scene)
    verdict = recover(scene)
    verdict.differs += bad
    return verdict


def double_cases(points: list[Point], work: Path, wanted: int, seed: int) -> list[Case]:
    """`wanted` pairs of (kill point, point of the recovery that follows), drawn evenly over the kill points."""
    rng = random.Random(seed)
    each = max(1, -(-wanted // len(points)))
    firsts = [Fault(point, "KILL") for point in points]
    with ThreadPoolExecutor(WORKERS) as pool:
        traced = list(pool.map(lambda first: _trace_apart(work, first), firsts))
    cases = [
        _double(first, Fault(second, "KILL"))
        for first, seconds in zip(firsts, traced, strict=True)
        for second in rng.sample(seconds, min(each, len(seconds)))
    ]
    rng.shuffle(cases)
    return cases[:wanted]


def _trace_apart(work: Path, first: Fault) -> list[Point]:
    base = Path(tempfile.mkdtemp(prefix="trace-", suffix=".", dir=work))
    try:
        return trace_recovery(base, first)
    finally:
        clean_up(base)


def _double(first: Fault, second: Fault) -> Case:
    return Case(f"{first}; then {second}", double_fault, (first, second), is_double=True)
