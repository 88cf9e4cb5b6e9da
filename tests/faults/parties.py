"""Third parties: somebody edits, replaces, deletes or re-links while we are at work. Part of layer 5."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.agents import Agent, AgentError
from tests.faults.calls import run_faulty
from tests.faults.examining import Story, Verdict, ask_to_recover, examine_held, lost
from tests.faults.scenery import Scene, differences
from tests.faults.table import Case
from tests.faults.tracing import Fault, Point

THEIRS = b"# written by somebody else\n"


Deed = Callable[[Path], "dict[str, bytes]"]


def _edit(path: Path) -> dict[str, bytes]:
    with path.open("ab") as file:
        file.write(THEIRS)
    return {str(path): path.read_bytes()}


def _replace(path: Path) -> dict[str, bytes]:
    fresh = path.with_name("fresh")
    fresh.write_bytes(THEIRS)
    fresh.replace(path)
    return {str(path): THEIRS}


def _delete(path: Path) -> dict[str, bytes]:
    path.unlink()
    return {}


def _truncate(path: Path) -> dict[str, bytes]:
    path.write_bytes(b"")
    return {str(path): b""}


def _chmod(path: Path) -> dict[str, bytes]:
    path.chmod(0o604)
    return {}


def _chown(path: Path) -> dict[str, bytes]:
    os.chown(path, 77, 78)
    return {}


def _attribute(path: Path) -> dict[str, bytes]:
    os.setxattr(path, "user.theirs", b"1")
    return {}


def _touch(path: Path) -> dict[str, bytes]:
    os.utime(path, ns=(1_650_000_000_000_000_000, 1_650_000_000_000_000_000))
    return {}


def _second_name(path: Path) -> dict[str, bytes]:
    os.link(path, path.with_name("their name"))
    return {}


def _relink(path: Path) -> dict[str, bytes]:
    path.unlink()
    path.symlink_to("/dev/null")
    return {}


def _add_beside(path: Path) -> dict[str, bytes]:
    added = path.with_name("their file.py")
    added.write_bytes(THEIRS)
    return {str(added): THEIRS}


def _create(path: Path) -> dict[str, bytes]:
    path.write_bytes(THEIRS)
    return {str(path): THEIRS}


DEEDS: dict[str, Deed] = {
    "edits": _edit, "replaces": _replace, "deletes": _delete, "truncates": _truncate, "chmods": _chmod,
    "chowns": _chown, "sets an attribute of": _attribute, "touches": _touch, "adds a name to": _second_name,
    "re-links": _relink, "adds a file beside": _add_beside,
}  # fmt: skip
PATHS = ("a.py", "pkg/b.py", "new/sub/made.py", "pkg/__init__.py")
_HARMLESS = ("touches", "adds a file beside", "adds a name to")
"""Deeds after which our version may still be swapped out: its bytes and rights are as we left them."""


def meddle(base: Path, name: str, deed: Deed, verb: str, moment: str) -> Verdict:
    """Somebody has a hand in the tree while it is changed. What they did must survive, whatever is said."""
    scene = Scene(base).plant()
    agent = Agent(base)
    story = Story(scene, agent, with_launch=False)
    try:
        for step in (story.open, story.snapshot, story.apply):
            step()
        if moment == "agent killed":
            agent.kill()
        path = scene.root / name
        theirs = deed(path)
        report: list[dict[str, Any]] = []
        if moment == "agent killed":
            stuck = ask_to_recover(scene, Agent(base), report=report)
        else:
            stuck = _revert(story, report)
    finally:
        agent.kill()
    if report:
        return examine_held(scene, report, theirs, Verdict())
    is_ours = name != "pkg/__init__.py"
    verdict = Verdict(stuck=stuck, differs=lost(scene, theirs))
    if is_ours and verb not in _HARMLESS and (verb, name) != ("deletes", "new/sub/made.py"):
        verdict.lies.append(f"somebody {verb} {name}, and it was reverted as if nobody had")
    verdict.differs += _beyond(scene, path)
    return verdict


def _revert(story: Story, report: list[dict[str, Any]]) -> list[str]:
    """As a controller does that knows of nothing."""
    try:
        story.revert()
        said = story.agent.call("verify")
        story.agent.call("close")
    except AgentError as error:
        if error.kind != "dirty":
            return [str(error)]
        held = story.agent.call("recover")
        report += held["report"]
        return [] if held["state"] == "held" else [f"refused to revert and then recovered: {held}"]
    return [] if said["clean"] else [f"not clean: {said['differences']}"[:600]]


def _beyond(scene: Scene, path: Path) -> list[str]:
    """Differences that nobody but us can have made."""
    theirs = {str(path), str(path.with_name("their name")), str(path.with_name("their file.py"))}
    above = {str(folder) for folder in path.parents}
    return [line for line in differences(scene.before, scene.picture()) if line.split(": ")[0] not in theirs | above]


def meddle_cases() -> list[Case]:
    cases = [
        Case(
            f"somebody {verb} {name}, {moment}",
            meddle,
            (name, deed, verb, moment),
        )
        for moment in ("then revert", "agent killed")
        for name in PATHS
        for verb, deed in DEEDS.items()
    ]
    for moment in ("then revert", "agent killed"):
        name = "pkg/gone.py"
        cases.append(
            Case(
                f"somebody makes {name} anew, {moment}",
                meddle,
                ("pkg/gone.py", _create, "makes anew", moment),
            )
        )
    return cases


_AT_LAST = """
from orchestrator.agent import fs as _fs
_calls = 0
def _late(call):
    def act(self, *names):
        global _calls
        _calls += any(name.endswith({name!r}) for name in names)
        if _calls == {at} and any(name.endswith({name!r}) for name in names):
            with open([name for name in names if name.endswith({name!r})][0], "ab") as _file:
                _file.write({theirs!r})
        return call(self, *names)
    return act
_fs.Fs.exchange, _fs.Fs.rename_noreplace = _late(_fs.Fs.exchange), _late(_fs.Fs.rename_noreplace)
"""


def meddle_at_last(base: Path, name: str, at: int) -> Verdict:
    """Somebody writes between the agent's last look at a file and its swap: in apply (1) or in revert (2)."""
    scene = Scene(base).plant()
    agent = Agent(base, shim=_AT_LAST.format(name=name, at=at, theirs=THEIRS))
    story = Story(scene, agent, with_launch=False)
    path = scene.root / name
    story.open()
    story.snapshot()
    try:
        story.apply()
        assert at == 2, "apply did not see what came out"
        story.revert()
    except AgentError as error:
        story.errors.append(str(error))
    else:
        return Verdict(lies=[f"{name} was edited in the last moment, and nobody saw it"])
    finally:
        agent.kill()
    report: list[dict[str, Any]] = []
    stuck = ask_to_recover(scene, Agent(base), report=report)
    kept = [file for file in scene.base.rglob("*") if file.is_file() and THEIRS in file.read_bytes()]
    verdict = Verdict(stuck=stuck, differs=[] if kept else ["what somebody else wrote is lost"])
    if report:
        return examine_held(scene, report, {str(path): path.read_bytes() if path.exists() else b""}, verdict)
    verdict.differs += _beyond(scene, path)
    return verdict


def at_last_cases() -> list[Case]:
    wanted = [("a.py", 1), ("a.py", 2), ("pkg/b.py", 1), ("pkg/b.py", 2), ("new/sub/made.py", 2), ("pkg/gone.py", 1)]
    return [
        Case(f"somebody edits {name} at the last moment of {'apply' if at == 1 else 'revert'}",
             meddle_at_last, (name, at))
        for name, at in wanted
    ]  # fmt: skip


def meddle_at(base: Path, point: Point, verb: str) -> Verdict:
    """The agent is killed half-way and somebody edits the patched file before recovery."""
    scene = Scene(base).plant()
    run_faulty(scene, Fault(point, "KILL"), _walk_files)
    path = scene.root / "a.py"
    was_ours = path.read_bytes() != scene.before[str(path)][-1]
    theirs = DEEDS[verb](path)
    report: list[dict[str, Any]] = []
    stuck = ask_to_recover(scene, Agent(base), report=report)
    if report:
        return examine_held(scene, report, theirs, Verdict())
    verdict = Verdict(stuck=stuck, differs=[*lost(scene, theirs), *_beyond(scene, path)])
    if was_ours and theirs and path.read_bytes() == scene.before[str(path)][-1]:
        verdict.lies.append(f"somebody {verb} our version, and the original took its place without a word")
    return verdict


def _walk_files(scene: Scene, agent: Agent) -> str:
    story = Story(scene, agent, with_launch=False)
    story.open()
    return story.run()


def meddle_at_cases(points: list[Point]) -> list[Case]:
    """At each call between the first staged file and the end of the revert."""
    first = next(index for index, point in enumerate(points) if "stage/" in point.shown and point.call == "write")
    return [
        Case(f"{point}, then somebody {verb} a.py", meddle_at, (point, verb))
        for verb in ("edits", "replaces")
        for point in points[first:]
    ]
