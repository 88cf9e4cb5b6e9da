"""The dead-man's switch: how long after the last word of a silent controller the host is as it was found."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.faults.agents import Agent, wait_until
from tests.faults.examining import Story, Verdict, examine, recover
from tests.faults.scenery import LAUNCH_ID, Scene
from tests.faults.table import Case

LEASE_S = 3.0
SLACK_S = 1.0
RECONNECT_S = 1.0


def silent_cut(base: Path, times_s: list[float]) -> Verdict:
    """The agent is stopped with a server running: no end of file, no signal, nothing. Byte-exact in time?"""
    scene = Scene(base).plant()
    agent = Agent(base)
    story = Story(scene, agent)
    for step in (story.open, story.snapshot, story.apply, story.launch):
        step()
    asked = time.monotonic()
    agent.call("beat", lease_s=LEASE_S)
    agent.signal(signal.SIGSTOP)
    wait_until(lambda: _is_undone(scene), "the guard undoes everything", LEASE_S + 20)
    took_s = time.monotonic() - asked
    agent.kill()
    times_s.append(took_s)
    verdict = examine(scene, Verdict())
    if took_s > LEASE_S + SLACK_S:
        verdict.stuck.append(f"byte-exact only {took_s:.2f} s after the last word")
    return verdict


def _is_undone(scene: Scene) -> bool:
    kinds = [record.kind for record in scene.records()]
    return "GUARD_REVERTED" in kinds or "GUARD_REFUSED" in kinds


def come_back(base: Path, times_s: list[float]) -> Verdict:
    """Cut off with a server running; the holder comes back with its token and recovers: how long does that take?"""
    scene = Scene(base).plant()
    agent = Agent(base)
    story = Story(scene, agent)
    for step in (story.open, story.snapshot, story.apply, story.launch):
        step()
    agent.signal(signal.SIGSTOP)
    started = time.monotonic()
    verdict = recover(scene)
    took_s = time.monotonic() - started
    agent.kill()
    times_s.append(took_s)
    if took_s > RECONNECT_S:
        verdict.stuck.append(f"recovered only {took_s:.2f} s after coming back to {LAUNCH_ID}")
    return verdict


def deadman_cases(count: int, times_s: list[float]) -> list[Case]:
    return [Case(f"silent cut {number}", silent_cut, (times_s,)) for number in range(count)]


def come_back_cases(count: int, times_s: list[float]) -> list[Case]:
    return [Case(f"coming back {number}", come_back, (times_s,)) for number in range(count)]
