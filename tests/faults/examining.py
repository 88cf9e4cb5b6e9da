"""What must hold after recovery, checked from outside: by stat and /proc, never by the agent's own word."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.agents import Agent, AgentEnded, AgentError, TooLate, processes_of, wait_until
from tests.faults.scenery import LAUNCH_ID, TOKEN, Scene, differences

_GONE_S = 5.0


@dataclass
class Verdict:
    """Of one point. `outcome`: clean, held or refused, as the tool said it. Every list must be empty: `lies` are dirty
    hosts that were said to be clean, `differs` differences and losses, `stuck` what recovery did not end."""

    outcome: str = "clean"
    lies: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        return [*self.lies, *self.differs, *self.orphans, *self.stuck]


def examine(scene: Scene, verdict: Verdict) -> Verdict:
    """After the tool said that the host is clean."""
    differs = differences(scene.before, scene.picture())
    verdict.differs += differs
    verdict.lies += [f"said to be clean, but differs: {line}" for line in differs[:3]]
    verdict.lies += _remains(scene)
    verdict.orphans += _left_running(scene)
    return verdict


def examine_held(scene: Scene, report: Sequence[dict[str, Any]], theirs: dict[str, bytes], verdict: Verdict) -> Verdict:
    """After the tool said that the host is held: both versions of each held file are on the disk and named.

    `theirs`: path → content that somebody else wrote and that must still be somewhere.
    """
    verdict.outcome = "held"
    for held in report:
        before = scene.before.get(held["path"])
        original = held["found_at"]
        if before is not None and before[-1] is not None:
            places = [place for place in (original, held["stage"], held["path"]) if place]
            if not any(_content(place) == before[-1] for place in places) and held["path"] not in theirs:
                verdict.differs.append(f"the original of {held['path']} is not where the report says: {held}")
        if not held["why"]:
            verdict.lies.append(f"no reason is given for {held['path']}")
    verdict.differs += lost(scene, theirs)
    verdict.orphans += _left_running(scene, may_hold=True)
    return verdict


def lost(scene: Scene, theirs: dict[str, bytes]) -> list[str]:
    """Bytes of a third party that are no longer at their path or anywhere in what we keep."""
    state_dir = scene.state_dir
    kept = [path for path in state_dir.rglob("*") if path.is_file()] if state_dir is not None else []
    gone = []
    for path, content in theirs.items():
        places = [Path(path), *kept]
        if not any(place.is_file() and place.read_bytes() == content for place in places):
            gone.append(f"what somebody else wrote to {path} is lost")
    return gone


def _content(path: str) -> bytes | None:
    return Path(path).read_bytes() if os.path.isfile(path) else None


def _remains(scene: Scene) -> list[str]:
    """Names of ours in tree, stage and prefix, an open transaction or launch, a lease that still holds."""
    found = []
    state_dir = scene.state_dir
    if state_dir is not None and state_dir.is_dir():
        stage = state_dir / "stage"
        found += [f"left in the stage: {name}" for name in (os.listdir(stage) if stage.is_dir() else [])]
        compiled = [
            str(p) for p in (state_dir / "pycache").rglob("*.pyc") if p.name.split(".")[0] in ("a", "b", "made")
        ]
        found += [f"left below the bytecode prefix: {path}" for path in compiled]
        history = scene.history()
        if history.open is not None:
            found.append(f"the journal has an open transaction: {history.state}")
        if history.launch is not None:
            found.append("the journal has an open launch")
    found += [f"left: {tmp}" for tmp in temporary_of(scene) - scene.told if os.path.lexists(tmp)]
    if scene.port and _listens(scene.port):
        found.append(f"something listens on port {scene.port}")
    return found


def temporary_of(scene: Scene) -> set[str]:
    """Temporary directories of launches that the journal names."""
    return {str(record.data["tmp"]) for record in scene.records() if record.data.get("tmp")}


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        sock.settimeout(1.0)
        return sock.connect_ex(("127.0.0.1", port)) == 0


def _left_running(scene: Scene, *, may_hold: bool = False) -> list[str]:
    """Processes of this scene that do not go by themselves within seconds. A held tree may keep its guard."""

    def left() -> dict[int, str]:
        found = processes_of(f"{scene.base}")
        return {pid: words for pid, words in found.items() if not (may_hold and _is_guard(pid))}

    try:
        wait_until(lambda: not left(), "every process is gone", _GONE_S)
    except TooLate:
        return [f"still running: {pid} {words}" for pid, words in left().items()]
    return []


def _is_guard(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "orc-guard"
    except OSError:
        return False


def imports_old_code(scene: Scene) -> bool:
    """What a fresh interpreter makes of `a.py`, with the tree's own compiled files and with our prefix."""
    state_dir = scene.state_dir
    prefixes = [None, str(state_dir / "pycache")] if state_dir is not None else [None]
    said = set()
    for prefix in prefixes:
        env = {"PYTHONDONTWRITEBYTECODE": "1", **({"PYTHONPYCACHEPREFIX": prefix} if prefix else {})}
        code = f"import sys; sys.path.insert(0, {str(scene.root)!r}); import a; print(a.which())"
        said.add(subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True).stdout)
    return said == {"old\n"}


# -- recovery ----------------------------------------------------------------------------------------------------


def recover(
    scene: Scene, *, token: str = TOKEN, agent: Agent | None = None, theirs: dict[str, bytes] | None = None
) -> Verdict:
    """A new agent, as a new controller would use it: open, recover, verify, close; then the tool's word is checked."""
    verdict = Verdict()
    report: list[dict[str, Any]] = []
    verdict.stuck += ask_to_recover(scene, agent or Agent(scene.base), token=token, report=report)
    if report:
        return examine_held(scene, report, theirs or {}, verdict)
    if verdict.stuck:
        verdict.outcome = "refused"
    verdict.differs += lost(scene, theirs or {})
    return examine(scene, verdict)


def ask_to_recover(
    scene: Scene, agent: Agent, *, token: str = TOKEN, report: list[dict[str, Any]] | None = None
) -> list[str]:
    """What keeps the agent from saying that all is clean; nothing when it says so, or when it says what is held."""
    try:
        agent.call("open", **scene.open_request(token=token))
        said = agent.call("recover")
        if said["state"] == "held" and report is not None:
            report += said["report"]
            return []
        proof = said["verify"]
        if said["state"] != "clean" or said["survivors"] or (proof is not None and not proof["clean"]):
            return [f"recovery says {said}"[:900]]
        agent.call("close")
    except (AgentError, AgentEnded, TooLate) as error:
        return [f"recovery ended with {type(error).__name__}: {error}"]
    finally:
        agent.kill()
    return []


# -- the story ---------------------------------------------------------------------------------------------------


class Story:
    """What a controller asks for in one experiment, and what it does when an answer is an error."""

    def __init__(self, scene: Scene, agent: Agent, *, with_launch: bool = True) -> None:
        self.scene, self.agent, self.with_launch = scene, agent, with_launch
        self.errors: list[str] = []
        self.done: list[str] = []

    def run(self) -> str:
        """`clean` when the agent says that the tree is as it was found, else `unknown`; never raises for an error that
        the agent answered. `AgentEnded` when it is dead."""
        try:
            for step in self.steps():
                step()
        except AgentError as error:
            self.errors.append(str(error))
            return self.retreat()
        return "clean"

    def steps(self) -> list[Any]:
        launch = [self.launch, self.stop] if self.with_launch else []
        return [self.snapshot, self.apply, *launch, self.revert, self.verify, self.close]

    def open(self, **given: Any) -> None:
        self.agent.call("open", **self.scene.open_request(**given))

    def snapshot(self) -> None:
        self.agent.call("snapshot")

    def apply(self) -> None:
        self.agent.call("apply", **self.apply_request())

    def apply_request(self) -> dict[str, Any]:
        return {"txn": "txn-1", "files": self.scene.changes()}

    def launch(self, source: str | None = None) -> None:
        request = self.scene.launch_request() if source is None else self.scene.launch_request(source)
        self.agent.call("launch", **request)
        self.agent.wait_log("serving new")

    def stop(self) -> None:
        said = self.agent.call("stop", launch_id=LAUNCH_ID, grace_s=0.0)
        assert not said["survivors"], said
        self.scene.told.update(said["leftovers"]["kept"])

    def revert(self) -> None:
        self.agent.call("revert", txn="txn-1", reason="done")

    def verify(self) -> None:
        said = self.agent.call("verify")
        assert said["clean"], said

    def close(self) -> None:
        self.agent.call("close")

    def retreat(self) -> str:
        """Recovery by the same agent, with the fault still there when it is one that stays."""
        try:
            said = self.agent.call("recover")
            proof = said["verify"] or self.agent.call("verify")
            self.agent.call("close")
        except AgentError as error:
            self.errors.append(str(error))
            return "unknown"
        is_clean = said["state"] == "clean" and proof["clean"] and not said["survivors"]
        return "clean" if is_clean else "unknown"
