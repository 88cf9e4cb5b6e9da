"""What the world does between two steps: third parties, full and read-only disks, a reboot, a second controller.

Layer 5.
"""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults import disks, table
from tests.faults.agents import Agent, AgentEnded, AgentError, pause, processes_of, wait_until
from tests.faults.calls import run_faulty
from tests.faults.examining import Story, Verdict, ask_to_recover, examine, examine_held, lost, recover
from tests.faults.guards import STATES, await_guard, lease_of
from tests.faults.scenery import Scene, change, differences
from tests.faults.table import Case
from tests.faults.tracing import Fault, Point

THEIRS = b"# written by somebody else\n"

# -- third parties -------------------------------------------------------------------------------------------------

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
    gone = [line for line in differences(scene.before, scene.picture()) if line.split(": ")[0] not in theirs | above]
    return gone


def meddle_cases() -> list[Case]:
    cases = [
        Case(
            f"somebody {verb} {name}, {moment}",
            lambda base, name=name, deed=deed, verb=verb, moment=moment: meddle(base, name, deed, verb, moment),  # type: ignore[misc]
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
                lambda base, moment=moment: meddle(base, "pkg/gone.py", _create, "makes anew", moment),  # type: ignore[misc]
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
             lambda base, name=name, at=at: meddle_at_last(base, name, at))  # type: ignore[misc]
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
        Case(f"{point}, then somebody {verb} a.py", lambda base, point=point, verb=verb: meddle_at(base, point, verb))  # type: ignore[misc]
        for verb in ("edits", "replaces")
        for point in points[first:]
    ]


# -- disks ---------------------------------------------------------------------------------------------------------


def full_disk(base: Path, kind: str, before: str) -> Verdict:
    """Not one byte is free from the moment before this step on, until all is recovered."""
    with disks.any_disk(kind, base) as point:
        (base / "work").symlink_to(point)
        scene = Scene(base).plant()
        agent = Agent(base)
        story = Story(scene, agent)
        try:
            for name in ("open", "snapshot", "apply", "launch", "stop", "revert", "verify"):
                if name == before:
                    disks.fill(point)
                getattr(story, name)()
        except (AgentError, AgentEnded) as error:  # AgentEnded: the server could not write its log
            story.errors.append(str(error))
        finally:
            agent.kill()
        verdict = Verdict()
        stuck = ask_to_recover(scene, Agent(base))
        (point / "ballast").unlink()
        if stuck and kind == "btrfs":  # with its metadata used up even a rename may fail: refused, then repeated
            verdict.outcome = "refused"
            stuck = ask_to_recover(scene, Agent(base))
        verdict.stuck += stuck
        scene.forgive_time_above()  # the ballast came and went there
        examine(scene, verdict)
        _end_all(scene)
    return verdict


def read_only(base: Path, kind: str, after: str) -> Verdict:
    """Mounted read-only after a kill: recovery refuses, and goes through when the disk can be written again."""
    with disks.any_disk(kind, base) as point:
        (base / "work").symlink_to(point)
        scene = Scene(base).plant()
        agent = Agent(base)
        story = Story(scene, agent)
        for name in STATES[: STATES.index(after) + 1]:
            getattr(story, name)()
        _end_all(scene)
        agent.kill()
        subprocess.run(["mount", "-o", "remount,ro", str(point)], check=True)
        first = ask_to_recover(scene, Agent(base))
        verdict = Verdict(lies=[] if first else ["recovered, it says, on a disk that cannot be written"])
        subprocess.run(["mount", "-o", "remount,rw", str(point)], check=True)
        verdict.stuck += ask_to_recover(scene, Agent(base))
        examine(scene, verdict)
        _end_all(scene)
    return verdict


def _end_all(scene: Scene) -> None:
    def all_gone() -> bool:
        found = processes_of(str(scene.base))
        for pid in found:
            table.end(pid)
        return not found

    wait_until(all_gone, "every process is ended")


def disk_cases(kinds: tuple[str, ...]) -> list[Case]:
    full = [
        Case(f"{kind} full before {step}", lambda base, kind=kind, step=step: full_disk(base, kind, step))  # type: ignore[misc]
        for kind in kinds
        for step in ("snapshot", "apply", "launch", "stop", "revert", "verify")
    ]
    frozen = [
        Case(f"{kind} read-only after {state}", lambda base, kind=kind, state=state: read_only(base, kind, state))  # type: ignore[misc]
        for kind in kinds
        if kind not in ("overlay", "tmpfs")
        for state in ("apply", "launch", "stop")
    ]
    return full + frozen


# -- a reboot ------------------------------------------------------------------------------------------------------


def _booted_anew(base: Path) -> tuple[str, ...]:
    """An argument vector that runs a program on a machine with another boot id."""
    path = base / "boot_id"
    path.write_text(f"{uuid.uuid4()}\n")
    script = f'mount --bind "{path}" /proc/sys/kernel/random/boot_id && exec "$@"'
    return ("unshare", "-m", "sh", "-c", script, "sh")


def reboot_after(base: Path, state: str) -> Verdict:
    """Every process is gone, the lease of the old boot counts for nothing, whoever comes recovers at once."""
    scene = Scene(base).plant()
    agent = Agent(base)
    story = Story(scene, agent)
    for name in STATES[: STATES.index(state) + 1]:
        getattr(story, name)()
    _end_all(scene)
    agent.kill()
    return recover(scene, token="somebody else", agent=Agent(base, prefix=_booted_anew(base)))


def reboot_at(base: Path, point: Point) -> Verdict:
    """The same in the middle of a step."""
    scene = Scene(base).plant()
    fault = Fault(point, "KILL")
    run_faulty(scene, fault)
    if point.is_time_above:
        scene.forgive_time_above()
    _end_all(scene)
    return recover(scene, token="somebody else", agent=Agent(base, prefix=_booted_anew(base)))


def reboot_cases(points: list[Point]) -> list[Case]:
    return [
        *(Case(f"reboot after {state}", lambda base, state=state: reboot_after(base, state)) for state in STATES),  # type: ignore[misc]
        *(Case(f"reboot at {point}", lambda base, point=point: reboot_at(base, point)) for point in points),  # type: ignore[misc]
    ]


# -- a second controller -------------------------------------------------------------------------------------------


def second_controller(base: Path, state: str, first_is: str) -> Verdict:
    """Turned away while the lease runs, let in afterwards; the first one may not write any more."""
    scene = Scene(base).plant()
    first = Agent(base)
    story = Story(scene, first)
    for name in STATES[: STATES.index(state) + 1]:
        getattr(story, name)()
    verdict = Verdict()
    second = Agent(base)
    try:
        second.call("open", **scene.open_request(token="second"))
        verdict.lies.append("two controllers were given one tree")
    except AgentError as error:
        if error.kind != "busy" or not {"holder", "since", "until"} <= error.facts.keys():
            verdict.lies.append(f"the second one was not told who holds the tree: {error}")
    finally:
        second.kill()
    first.call("beat", lease_s=0.3)
    if first_is == "killed":
        first.kill()
    lease = lease_of(scene)
    assert lease is not None
    wait_until(lambda: lease.is_over, "the lease ends")
    if STATES.index(state) >= STATES.index("apply"):
        await_guard(scene)
    if first_is == "late":
        verdict.lies += _write_late(scene, first)
    first.kill()
    found = recover(scene, token="second")
    return Verdict(found.outcome, [*verdict.lies, *found.lies], found.differs, found.orphans, found.stuck)


def _write_late(scene: Scene, first: Agent) -> list[str]:
    """A request of an epoch that is over: refused, or its agent has been ended."""
    files = [change(scene.root / "late.py", "create", None, b"late\n")]
    try:
        first.call("apply", txn="late", files=files)
    except AgentError as error:
        return [] if error.kind == "busy" else [f"a late write was answered {error}"]
    except AgentEnded:
        return []
    return ["a write after the end of the lease was carried out"]


def race(base: Path) -> Verdict:
    """Several controllers at the same moment: one gets the tree."""
    scene = Scene(base).plant()
    agents = [Agent(base) for _ in range(4)]
    for agent in agents:
        agent.call("hello")
    for number, agent in enumerate(agents):
        agent.send(agent.frame("open", scene.open_request(token=f"racer {number}")))
    won = []
    for number, agent in enumerate(agents):
        try:
            agent.answer()
            won.append(number)
        except AgentError as error:
            assert error.kind == "busy", error
    verdict = Verdict(lies=[] if len(won) == 1 else [f"{len(won)} controllers were given one tree"])
    for number in won:
        agents[number].call("snapshot")
        agents[number].call("close")
    for agent in agents:
        agent.signal(signal.SIGTERM)
        agent.kill()
    pause(0)
    return examine(scene, verdict)


def second_cases() -> list[Case]:
    turned = [
        Case(f"second controller after {state}, first {what}", lambda base, s=state, w=what: second_controller(base, s, w))  # type: ignore[misc]
        for state in STATES
        for what in ("killed", "late")
    ]
    return turned + [Case(f"race of four, {number}", race) for number in range(5)]
