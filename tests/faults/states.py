"""What outlasts a transaction, killed at each of its calls: a change that stays, a copy, claimed GPUs and ports.

Layer 1. The calls are those of one part of the story only; the others are met without it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.faults.agents import Agent, AgentEnded, AgentError
from tests.faults.examining import Verdict, examine
from tests.faults.scenery import NEW_A, OLD_A, Scene, change, look, torn
from tests.faults.table import Case, NotReached
from tests.faults.tracing import Fault, Point, Tracer, has_struck, parse_points, trace_arguments

Steps = Sequence[Callable[[], object]]


@dataclass
class Part:
    """One lasting state of a scene: `before` leads to it, `steps` are killed, `settle` is what a new process does then;
    what it returns is wrong. `done` are the names of the steps that were answered."""

    scene: Scene
    agent: Agent
    done: list[str]

    def __post_init__(self) -> None:
        """Makes what has to lie there before the agent opens anything."""

    def before(self) -> Steps:
        raise NotImplementedError

    def steps(self) -> Steps:
        raise NotImplementedError

    def settle(self, verdict: Verdict) -> None:
        raise NotImplementedError

    def wanted(self, _: Point) -> bool:
        """Whether a call belongs to this part."""
        return True

    def names(self) -> dict[str, str]:
        """What is called differently in each scene, beside its directories: name here → name for all."""
        return {}

    def call(self, do: str, **given: Any) -> Any:
        said = self.agent.call(do, **given)
        self.done.append(do)
        return said


class Kept(Part):
    """A change is kept, and taken back by a person's word."""

    def before(self) -> Steps:
        apply = {"txn": "txn-1", "files": self.scene.changes()}
        return (
            lambda: self.call("open", **self.scene.open_request()),
            lambda: self.call("snapshot"),
            lambda: self.call("apply", **apply),
        )

    def steps(self) -> Steps:
        return lambda: self.call("keep", txn="txn-1"), lambda: self.call("restore_kept"), lambda: self.call("close")

    def settle(self, verdict: Verdict) -> None:
        again = Agent(self.scene.base)
        try:
            again.call("open", **self.scene.open_request())
            said = again.call("recover")
            kept = again.call("verify")["kept"]
            if (
                self.done[-1] == "keep"
                and self.scene.history().open is None
                and not kept
                and not _is_taken_back(self.scene)
            ):
                verdict.lies.append(f"it was said to be kept, and is not: {said}")
            if kept and (self.scene.root / "a.py").read_bytes() != NEW_A:
                verdict.lies.append("it is said to be kept, and is not in place")
            again.call("restore_kept")
            proof = again.call("verify")
            if not proof["clean"] or proof["differences"]:
                verdict.lies.append(f"taken back, but {proof}"[:600])
            again.call("close")
        except (AgentError, AgentEnded) as error:
            verdict.stuck.append(f"{type(error).__name__}: {error}")
        finally:
            again.kill()


def _is_taken_back(scene: Scene) -> bool:
    """Whether the word to take it back had reached the journal: it is the answer that was cut off."""
    return any(record.kind == "REOPENED" for record in scene.records())


class Copied(Part):
    """The tree is a copy: the found one is never written. The home of the copy is there from an earlier run, so that
    what is in it has names that are known beforehand."""

    def __post_init__(self) -> None:
        found = os.fsencode(os.path.realpath(self.scene.root))
        name = f"shadow-{os.path.basename(os.fsdecode(found))}-{hashlib.sha256(found).hexdigest()[:12]}"
        self.home = self.scene.base / "shadows" / name
        self.home.mkdir(parents=True, mode=0o700)

    def names(self) -> dict[str, str]:
        home = os.stat(self.home)
        return {self.home.name: "HOME", f".orchestrator-{home.st_dev:x}-{home.st_ino:x}": "KEPT"}

    def _request(self) -> dict[str, Any]:
        return {**self.scene.open_request(), "shadow": {"dir": str(self.scene.base / "shadows")}}

    def before(self) -> Steps:
        return ()

    def steps(self) -> Steps:
        return (
            lambda: self.call("open", **self._request()),
            lambda: self.call("snapshot"),
            lambda: self.call("apply", txn="txn-1", files=[self._change()]),
            lambda: self.call("revert", txn="txn-1", reason="done"),
            lambda: self.call("close"),
        )

    def _change(self) -> dict[str, Any]:
        return change(self.home / "tree" / "a.py", "replace", OLD_A, NEW_A)

    def settle(self, verdict: Verdict) -> None:
        if look(self.scene.base / "work") != self.scene.before:
            verdict.differs.append("the found tree was written to")
        again = Agent(self.scene.base)
        try:
            again.call("open", **self._request())
            said = again.call("recover")
            if said["state"] != "clean" or (said["verify"] is not None and not said["verify"]["clean"]):
                verdict.stuck.append(f"recovery says {said}"[:600])
            again.call("close")
        except (AgentError, AgentEnded) as error:
            verdict.stuck.append(f"{type(error).__name__}: {error}")
        finally:
            again.kill()
        for home in (self.scene.base / "shadows").glob("shadow-*"):
            left = [name for name in os.listdir(home) if not name.startswith(".orchestrator-")]
            left += [f"stage/{name}" for stage in home.glob(".orchestrator-*/stage") for name in os.listdir(stage)]
            verdict.lies += [f"left of the copy: {name}" for name in left]


class Claimed(Part):
    """A port and a device are claimed with the tree, and another tree wants them too."""

    @property
    def _resources(self) -> list[str]:
        device = self.scene.base / "device"
        device.touch()
        return [f"device:{device}", f"port:{self.scene.port}"]

    def names(self) -> dict[str, str]:
        (self.scene.base / "device").touch()
        found = os.stat(self.scene.base / "device")
        return {f"-file-{found.st_dev:x}-{found.st_ino:x}": "-FILE", f"-{self.scene.port}": "-PORT"}

    def _files(self) -> list[str]:
        names = tuple(self.names())
        folders = (Path("/run/lock"), Path("/tmp"))  # where claims lie
        claims = [path for folder in folders if folder.is_dir() for path in folder.glob("orchestrator-*")]
        return [str(path) for path in claims if path.name.endswith(names)]

    def wanted(self, point: Point) -> bool:
        return "/orchestrator-" in point.shown or "/orchestrator-" in (point.path or "")

    def before(self) -> Steps:
        return ()

    def steps(self) -> Steps:
        return (
            lambda: self.call("open", **self.scene.open_request(), resources=self._resources),
            lambda: self.call("snapshot"),
            lambda: self.call("close"),
        )

    def settle(self, verdict: Verdict) -> None:
        other = Scene(self.scene.base / "other").plant()
        is_given = "open" in self.done and "close" not in self.done
        if is_given and self.scene.records()[-1].kind != "CLOSED" and self._take(other) != "busy":
            verdict.lies.append("what a silent holder had claimed was given to another tree")
        again = Agent(self.scene.base)
        try:
            again.call("open", **self.scene.open_request(), resources=self._resources)
            again.call("recover")
            if self._take(other) != "busy":
                verdict.lies.append("what is claimed was given to another tree")
            again.call("close")
        except (AgentError, AgentEnded) as error:
            verdict.stuck.append(f"{type(error).__name__}: {error}")
        finally:
            again.kill()
        verdict.lies += [f"left of a claim: {path}" for path in self._files()]
        said = self._take(other)
        if said != "taken":
            verdict.stuck.append(f"what was given back cannot be taken: {said}")

    def _take(self, other: Scene) -> str:
        agent = Agent(other.base)
        try:
            agent.call("open", **other.open_request(token="another tree"), resources=self._resources)
            agent.call("snapshot")
            agent.call("close")
        except AgentError as error:
            return error.kind
        finally:
            agent.kill()
        return "taken"


PARTS: tuple[type[Part], ...] = (Kept, Copied, Claimed)


def trace_part(base: Path, kind: type[Part]) -> list[Point]:
    """Every call of the part that changes something, without a fault."""
    base.mkdir(parents=True, exist_ok=True)
    scene = Scene(base).plant()
    part = kind(scene, Agent(base), [])
    _said, text = _play(part, trace_arguments())
    assert _said == "answered", _said
    verdict = Verdict()
    part.settle(verdict)
    problems = examine(scene, verdict).problems
    assert not problems, problems
    return [_renamed(point, part.names()) for point in parse_points(text, base) if part.wanted(point)]


def _renamed(point: Point, names: dict[str, str]) -> Point:
    path = point.path
    for old, new in names.items():
        path = path.replace(old, new) if path is not None else None
    return replace(point, path=path)


def kill_part(base: Path, kind: type[Part], point: Point) -> Verdict:
    scene = Scene(base).plant()
    part = kind(scene, Agent(base), [])
    fault = Fault(_renamed(point, {general: own for own, general in part.names().items()}), "KILL")
    _said, text = _play(part, fault.arguments(base))
    if not has_struck(text, fault):
        raise NotReached(text[-200:])
    if point.is_time_above:
        scene.forgive_time_above()
    verdict = Verdict(differs=torn(scene))
    part.settle(verdict)
    return examine(scene, verdict)


def _play(part: Part, arguments: Sequence[str]) -> tuple[str, str]:
    """What became of it, and what strace wrote."""
    thread = part.agent.line_thread()
    for step in part.before():
        step()
    tracer = Tracer(thread, part.scene.base / "strace", arguments)
    said = "answered"
    try:
        for step in part.steps():
            step()
        part.agent.leave()
    except AgentEnded:
        said = "killed"
    finally:
        part.agent.kill()
        text = tracer.detach()
    return said, text


def state_cases(points: dict[type[Part], list[Point]]) -> list[Case]:
    return [
        Case(f"{kind.__name__.lower()}: KILL at {point}", kill_part, (kind, point))
        for kind, found in points.items()
        for point in found
    ]
