"""What the world does between two steps: full and read-only disks, a reboot, a second controller.

Layer 5.
"""

from __future__ import annotations

import signal
import subprocess
import uuid
from pathlib import Path

from tests.faults import disks, table
from tests.faults.agents import Agent, AgentEnded, AgentError, pause, processes_of, wait_until
from tests.faults.calls import run_faulty
from tests.faults.examining import Story, Verdict, ask_to_recover, examine, recover
from tests.faults.guards import STATES, await_guard, lease_of
from tests.faults.scenery import Scene, change
from tests.faults.table import Case
from tests.faults.tracing import Fault, Point

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


def aborted(base: Path, after: str) -> Verdict:
    """The kernel makes the disk read-only under a living agent, as after an error: it may not say that it is clean.
    What was not synced is lost; mounted again, all is recovered."""
    with disks.disk("ext4", base) as made:
        (base / "work").symlink_to(made.point)
        scene = Scene(base).plant()
        made.settle()
        agent = Agent(base)
        story = Story(scene, agent)
        for name in STATES[: STATES.index(after) + 1]:
            getattr(story, name)()
        made.abort()
        said = "unknown"
        try:
            said = story.retreat()
        except AgentEnded as error:
            story.errors.append(str(error))
        agent.kill()
        _end_all(scene)
        verdict = Verdict(lies=["it says clean on a disk that takes nothing"] if said == "clean" else [])
        made.unmount()
        made.mount()
        verdict.stuck += ask_to_recover(scene, Agent(base), token="after the repair")
        if after == "open":
            scene.forgive_time_above()
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
        Case(f"{kind} full before {step}", full_disk, (kind, step))
        for kind in kinds
        for step in ("snapshot", "apply", "launch", "stop", "revert", "verify")
    ]
    frozen = [
        Case(f"{kind} read-only after {state}", read_only, (kind, state))
        for kind in kinds
        if kind not in ("overlay", "tmpfs")
        for state in STATES
    ]
    return [*full, *frozen, *(Case(f"ext4 aborted after {state}", aborted, (state,)) for state in STATES)]


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
        *(Case(f"reboot after {state}", reboot_after, (state,)) for state in STATES),
        *(Case(f"reboot at {point}", reboot_at, (point,)) for point in points),
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
    if first_is == "dead":
        first.kill()  # the lock is free: the lease alone must hold the second one back
    second = Agent(base)
    try:
        second.call("open", **scene.open_request(token="second"))
        verdict.lies.append("two controllers were given one tree")
    except AgentError as error:
        if error.kind != "busy" or not {"holder", "since", "until"} <= error.facts.keys():
            verdict.lies.append(f"the second one was not told who holds the tree: {error}")
    finally:
        second.kill()
    if first_is == "dead":
        first = Agent(base)
        first.call("open", **scene.open_request())
    first.call("beat", lease_s=0.3)
    if first_is != "late":
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
        Case(f"second controller after {state}, first {what}", second_controller, (state, what))
        for state in STATES
        for what in ("killed", "dead", "late")
    ]
    return turned + [Case(f"race of four, {number}", race) for number in range(5)]
