"""Frames between controller and agent: cut, torn, lost, repeated, late. Layer 2."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.agents import Agent, AgentEnded, AgentError, pause, wait_until
from tests.faults.examining import Story, Verdict, recover
from tests.faults.scenery import LAUNCH_ID, TXN, Scene, torn
from tests.faults.table import Case

_SHORT_LEASE_S = 0.4


@dataclass(frozen=True)
class Request:
    """One request of a story: what happens before it, and what it says."""

    do: str
    before: tuple[str, ...]
    given: Callable[[Scene], dict[str, Any]]


def _nothing(_scene: Scene) -> dict[str, Any]:
    return {}


_LIVE = ("open", "snapshot", "apply", "launch")
REQUESTS = (
    Request("open", (), lambda scene: scene.open_request()),
    Request("snapshot", _LIVE[:1], _nothing),
    Request("apply", _LIVE[:2], lambda scene: {"txn": TXN, "files": scene.changes()}),
    Request("launch", _LIVE[:3], lambda scene: scene.launch_request()),
    Request("inspect", _LIVE, lambda _: {"launch_id": LAUNCH_ID}),
    Request("beat", _LIVE, _nothing),
    Request("stop", _LIVE, lambda _: {"launch_id": LAUNCH_ID, "grace_s": 0.0}),
    Request("revert", (*_LIVE, "stop"), lambda _: {"txn": TXN, "reason": "done"}),
    Request("verify", (*_LIVE, "stop", "revert"), _nothing),
    Request("close", (*_LIVE, "stop", "revert"), _nothing),
    Request("recover", _LIVE, _nothing),
)
"""Every request of a tree that is part of an experiment; `recover` stands for the way back of a run that was cut."""

Act = Callable[[Scene, Agent, bytes, Request], "Agent | None"]


def _walk_to(scene: Scene, agent: Agent, request: Request) -> None:
    story = Story(scene, agent)
    for name in request.before:
        getattr(story, name)()


def _answer(agent: Agent) -> str:
    try:
        agent.answer()
    except AgentError as error:
        return error.kind
    except AgentEnded:
        return "ended"
    return "ok"


# -- what becomes of a frame -----------------------------------------------------------------------------------------


def cut_before(_scene: Scene, agent: Agent, _frame: bytes, _request: Request) -> None:
    """The connection is closed and the frame never leaves."""
    agent.leave()


def cut_inside(part: float) -> Act:
    """Some bytes of the frame arrive, then the stream ends. `part` 0: within the four bytes of the length."""

    def act(_scene: Scene, agent: Agent, frame: bytes, _request: Request) -> None:
        agent.send(frame[: max(1, min(int(len(frame) * part), len(frame) - 1)) if part else 2])
        agent.leave()

    return act


def silent_inside(_scene: Scene, agent: Agent, frame: bytes, _request: Request) -> Agent:
    """Half a frame, then nothing more, and no end: the agent waits for ever and still holds the lock."""
    agent.send(frame[: len(frame) // 2])
    return agent


def cut_after(_scene: Scene, agent: Agent, frame: bytes, _request: Request) -> None:
    """The whole frame arrives and the stream ends before the reply."""
    agent.send(frame)
    agent.leave()


def killed_after(_scene: Scene, agent: Agent, frame: bytes, _request: Request) -> None:
    """The whole frame is sent and the agent is killed at once."""
    agent.send(frame)
    agent.kill()


def reply_torn(_scene: Scene, agent: Agent, frame: bytes, _request: Request) -> None:
    """Three bytes of the reply arrive, then the connection is gone."""
    agent.send(frame)
    agent.read_some(3)
    agent.leave()


def silent_after(_scene: Scene, agent: Agent, frame: bytes, _request: Request) -> Agent:
    """The wire is cut without a word after the reply left: the agent lives on and waits."""
    agent.send(frame)
    agent.read_some(3)
    return agent


def sent_twice(_scene: Scene, agent: Agent, frame: bytes, request: Request) -> None:
    """The reply was lost and the same request is sent again on the same connection."""
    agent.send(frame)
    first = _answer(agent)
    agent.send(frame)
    second = _answer(agent)
    assert first == "ok", first
    assert second in _ANSWERS_AGAIN[request.do], (request.do, second)
    agent.leave()


_ANSWERS_AGAIN = {
    "open": ("refused",), "snapshot": ("ok",), "apply": ("dirty",), "launch": ("refused",), "inspect": ("ok",),
    "beat": ("ok",), "stop": ("refused",), "revert": ("ok",), "verify": ("ok",), "close": ("refused",),
    "recover": ("ok",),
}  # fmt: skip
"""What the same request may come to the second time: done again without effect, or refused, never done twice."""


def sent_again_later(scene: Scene, agent: Agent, frame: bytes, request: Request) -> None:
    """The reply was lost with the connection; a new one with the token sends the same request."""
    agent.send(frame)
    assert _answer(agent) == "ok"
    agent.kill()
    if request.do == "open":
        return
    later = Agent(scene.base)
    later.call("open", **scene.open_request())
    later.send(later.frame(request.do, request.given(scene)))
    said = _answer(later)
    assert said in ("ok", "dirty", "refused"), said
    later.leave()


def late(scene: Scene, agent: Agent, frame: bytes, request: Request) -> None:
    """The frame arrives after the lease ended: refused, or the guard has ended that agent by then."""
    if request.do == "open":
        agent.send(frame)
        assert _answer(agent) == "ok"
        agent.send(agent.frame("snapshot"))
        assert _answer(agent) == "ok"
    agent.call("beat", lease_s=_SHORT_LEASE_S)
    agent.signal(signal.SIGSTOP)
    _await_end_of_lease(scene, request)
    agent.signal(signal.SIGCONT)
    try:
        agent.send(agent.frame("snapshot") if request.do == "open" else frame)
    except AgentEnded:
        agent.kill()
        return
    said = _answer(agent)
    assert said in ("busy", "ended"), f"a request after the end of the lease was answered {said}"
    agent.kill()


def reply_late(scene: Scene, agent: Agent, frame: bytes, request: Request) -> None:
    """The request is carried out in time, its reply is read after the lease ended."""
    agent.send(frame)
    assert _answer(agent) == "ok"
    if request.do != "close":
        agent.call("beat", lease_s=_SHORT_LEASE_S)
    _await_end_of_lease(scene, request)
    agent.kill()


def _await_end_of_lease(scene: Scene, request: Request) -> None:
    """Until the guard has done its work; where nothing was open, until the deadline is past."""
    if request.do in ("open", "snapshot", "close"):
        pause(_SHORT_LEASE_S + 0.05)
        return
    wait_until(lambda: scene.history().open is None and scene.history().launch is None, "the guard undoes everything")


CUTS: dict[str, Act] = {
    "cut before": cut_before,
    "cut in the length": cut_inside(0),
    "cut in the middle": cut_inside(0.5),
    "cut before the last byte": cut_inside(1.0),
    "silent inside": silent_inside,
    "cut after": cut_after,
    "killed after": killed_after,
    "reply torn": reply_torn,
    "silent after": silent_after,
    "sent twice": sent_twice,
    "sent again later": sent_again_later,
    "late": late,
    "reply late": reply_late,
}


def _cut(base: Path, request: Request, act: Act) -> Verdict:
    scene = Scene(base).plant()
    agent = Agent(base)
    _walk_to(scene, agent, request)
    still_there = act(scene, agent, agent.frame(request.do, request.given(scene)), request)
    if still_there is not None and request.do in ("open", "close"):
        still_there.leave()  # it holds no tree: it goes when the connection is noticed to be dead
    bad = torn(scene)
    verdict = recover(scene)
    if still_there is not None:
        still_there.kill()
    verdict.differs += bad
    return verdict


def frame_cases() -> list[Case]:
    return [Case(f"{request.do}: {name}", _cut, (request, act)) for request in REQUESTS for name, act in CUTS.items()]
