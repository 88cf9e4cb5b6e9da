"""A run on a lab at the far end of a cable that is cut silently in a chosen phase, and what the host looks like then.

`orchestrator run` works in one network namespace, a real sshd with the lab behind it in another. What the host holds is
read on the disk and in /proc, never asked of the agent.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from orchestrator.agent.journal import Record, decode
from orchestrator.lab import Lab, create
from tests import netlab, sshd
from tests.agent.scene import picture
from tests.end_to_end.conftest import processes_of

CHECKOUT = Path(__file__).resolve().parents[2]
LEASE_S = 3.0
SLACK_S = 1.0
ONE_WAY_MS = 100.0
"""Long enough to cut the cable while a reply is on its way."""
KEEPALIVE_S = 0.5
PATIENCE_S = 120.0
HONEST = (0, 3, 7)
"""Exit codes of a run that was cut: it came to its end after all, the host was unreachable, or not proved clean."""
UNMEASURED = ("apply", "loading", "gate", "measuring")
"""Phases after which a run that is cut has no number of the treatment."""
TREATMENT = 2
"""Launches are counted from one; the first is the baseline's."""
EDIT = {"file": "sglang/launch_server.py", "find": "import sys", "replace": "import sys\nimport json", "count": 1}


@dataclass(frozen=True)
class Phase:
    """When to cut: once the treatment's narration has come to `said` and the journal to a record `written`. `fault`
    makes the lab's server behave so that the phase lasts; `word` is what the narration calls its end."""

    name: str
    word: str
    said: str
    written: str | None = None
    fault: dict[str, Any] | None = None


PHASES = (
    Phase("apply", "apply ok", "treatment 1", "INTENT"),
    Phase("loading", "ready ok", "server is at weights", fault={"kind": "hang", "phase": "load"}),
    Phase("gate", "gate ok", "check ok"),
    Phase("measuring", "measure ok", "gate ok"),
    Phase("stopping", "stop ok", "measure ok", "STOP_INTENT", fault={"kind": "ignore_sigterm"}),
    Phase("reverting", "revert ok", "reap_again ok", "REVERT_INTENT"),
)


@dataclass
class Far:
    """The cable and the sshd at its far end."""

    cable: netlab.Cable
    server: sshd.Sshd

    def cut(self) -> None:
        self.cable.say("drop")

    def mend(self) -> None:
        self.cable.say(str(ONE_WAY_MS))

    def listens(self, port: int) -> bool:
        """Whether anything in the far namespace listens on that port."""
        table = Path(f"/proc/{self.server.process.pid}/net/tcp").read_text().splitlines()[1:]
        states = [(line.split()[1].rpartition(":")[2], line.split()[3]) for line in table]
        return (f"{port:04X}", "0A") in states


@contextmanager
def far_host(base: Path) -> Iterator[Far]:
    """Of a whole series: the cable is mended between its cuts."""
    with netlab.cable(ONE_WAY_MS) as cable:
        server = sshd.start_sshd(base, address=netlab.FAR_ADDRESS, prefix=cable.at(cable.far))
        try:
            yield Far(cable, server)
        finally:
            server.stop()


@dataclass
class Campaign:
    """One hypothesis on a lab of its own. Playbook, inventory and state lie beside the lab, so that only processes of
    the host name the lab."""

    base: Path
    far: Far
    phase: Phase
    lab: Lab = field(init=False)
    before: dict[str, tuple[Any, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self.lab = create(self.base / "lab")
        inventory = dict(YAML(typ="safe").load(self.lab.hosts_file.read_text()))
        route = self.far.server.route(keepalive=KEEPALIVE_S)
        inventory["hosts"]["lab"]["route"] = route.model_dump(mode="json", exclude_unset=True)
        inventory["targets"]["kimi-lab"]["stop_grace"] = "20s"
        inventory["targets"]["kimi-lab"]["ready"] = {"limit": "60s", "stall": "40s"}
        self.hosts.write_text(json.dumps(inventory))
        playbook = {
            "campaign": "cut",
            "host": "lab",
            "lease": f"{LEASE_S}s",
            "workload": {"prompt_tokens": 8, "output_tokens": 200},
            "measure": {"repetitions": 1, "launches": 1},
            "hypotheses": [{"id": "marker", "claim": "c", "changes": [{"patch": {"edits": [EDIT]}}]}],
        }
        self.playbook.write_text(json.dumps(playbook))
        if self.phase.fault is not None:
            (self.lab.root / "faults.json").write_text(json.dumps([{**self.phase.fault, "launches": [TREATMENT]}]))
        self.before = picture(str(self.lab.source))

    @property
    def hosts(self) -> Path:
        return self.base / "hosts.json"

    @property
    def playbook(self) -> Path:
        return self.base / "cut.json"

    def command(self, *words: str) -> subprocess.Popen[str]:
        """One command in the near namespace."""
        argv = [*self.far.cable.at(self.far.cable.near), sys.executable, "-m", "orchestrator.cli.main", *words]
        env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "HOME": str(self.base)}
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def start(self) -> subprocess.Popen[str]:
        return self.command("run", str(self.playbook), *self._places(), "--json")

    def carry_out(self, *words: str) -> tuple[int, Any]:
        """Exit code and JSON of a command that asks the host."""
        places = self._places() if words[0] == "host" else ["--state", str(self.base / "state")]
        process = self.command(*words, *places, "--json")
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, json.loads(out) if out.strip() else err

    def _places(self) -> list[str]:
        return ["--hosts", str(self.hosts), "--state", str(self.base / "state")]

    # -- what the host holds ---------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """The journal as it lies on the disk."""
        places = list(self.lab.source.parent.glob(".orchestrator-*/journal"))
        raw = places[0].read_bytes() if places else b""
        found: list[Record] = []
        offset = 0
        while (one := decode(raw, offset)) is not None and (not found or one[0].seq == found[-1].seq + 1):
            found.append(one[0])
            offset += one[1]
        return found

    def leftovers(self) -> list[str]:
        """What is left of the run on the host; empty when nothing is."""
        now = picture(str(self.lab.source))
        left = [path for path in sorted(now.keys() | self.before.keys()) if now.get(path) != self.before.get(path)]
        left += [line for line in processes_of(self.lab.root) if "launch_server" in line or "sglang::" in line]
        left += ["the port is taken"] * self.far.listens(self.lab.port)
        return left

    def outcome(self) -> str | None:
        """The record that says how it ended: the guard's word, or the revert of an agent that was doing it already."""
        kinds = [record.kind for record in self.records()]
        ends = {"GUARD_REVERTED", "GUARD_REFUSED", *({"REVERTED"} if self.phase.name == "reverting" else ())}
        return next((kind for kind in reversed(kinds) if kind in ends), None)


@dataclass
class Cut:
    """What one cut came to. `clean_s`: from the cut to a clean host, with the cable still cut."""

    phase: str
    is_killed: bool
    clean_s: float = 0.0
    outcome: str = ""
    run_code: int | None = None
    verdict: str = ""
    recover_code: int = -1
    problems: list[str] = field(default_factory=list)


def cut(base: Path, far: Far, phase: Phase, *, is_killed: bool) -> Cut:
    """Cut the cable in that phase for longer than the lease, look at the host, mend it, and go on as a person would.

    With `is_killed` the controller is killed while the cable is cut; else it may come back by itself.
    """
    base.mkdir(parents=True)
    campaign = Campaign(base, far, phase)
    seen = Cut(phase.name, is_killed)
    narration = Narration(campaign.start())
    try:
        narration.wait_for("treatment 1")
        narration.wait_for(phase.said)
        if phase.written is not None:
            wanted = phase.written
            until(lambda: any(record.kind == wanted for record in campaign.records()), PATIENCE_S, f"no {wanted}")
        far.cut()
        began = time.monotonic()
        late = LEASE_S + SLACK_S + ONE_WAY_MS / 1000
        until(
            lambda: campaign.outcome() is not None and not campaign.leftovers(),
            4 * late,
            lambda: f"outcome {campaign.outcome()}, left {campaign.leftovers()}",
        )
        seen.clean_s, seen.outcome = time.monotonic() - began, str(campaign.outcome())
        if seen.clean_s > late:
            seen.problems.append(f"clean only after {seen.clean_s:.2f} s")
        if phase.word in narration.after("treatment 1"):
            seen.problems.append(f"the cable was not cut in the phase: {phase.word} was told")
        threading.Event().wait(max(0.0, began + LEASE_S + SLACK_S - time.monotonic()))  # longer than the lease
        if is_killed:
            narration.kill()
    finally:
        far.mend()
        if sys.exc_info()[0] is not None:
            narration.kill()
    seen.run_code = None if is_killed else narration.end()
    _go_on(campaign, seen, narration)
    return seen


def _go_on(campaign: Campaign, seen: Cut, narration: Narration) -> None:
    """`host recover`, the proofs, the records, and another run."""
    seen.recover_code, told = campaign.carry_out("host", "recover", "lab")
    if seen.recover_code != 0 or told["state"] != "clean":
        seen.problems.append(f"host recover: {seen.recover_code}: {told}")
    for words in (("host", "verify", "lab"), ("ledger", "check")):
        code, told = campaign.carry_out(*words)
        if code != 0:
            seen.problems.append(f"{' '.join(words)}: {code}: {told}")
    seen.problems += [f"left in the end: {what}" for what in campaign.leftovers()]
    if seen.run_code not in (None, *HONEST):
        seen.problems.append(f"the run ended with {seen.run_code}: {narration.text[-2000:]}")
    _, found = campaign.carry_out("finding", "list")
    seen.verdict = ", ".join(one["verdict"] for one in found["findings"]) or "none"
    if seen.phase in UNMEASURED and any(one["treatment"] is not None for one in found["findings"]):
        seen.problems.append(f"a number was booked: {found['findings']}")


class Narration:
    """The run's standard error, read as it comes, by a thread, so that the run never waits for a reader."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.text = ""
        self.out = ""
        self._came = threading.Condition()
        self._is_over = False
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_out)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._came:
                self.text += line
                self._came.notify_all()
        with self._came:
            self._is_over = True
            self._came.notify_all()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        self.out = self.process.stdout.read()

    def wait_for(self, said: str) -> None:
        """Of what came since `treatment 1`, and all of it until then."""
        with self._came:
            self._came.wait_for(lambda: said in self.after("treatment 1") or self._is_over, PATIENCE_S)
            assert said in self.after("treatment 1"), f"{said!r} never came:\n{self.text}"

    def after(self, said: str) -> str:
        """From the last of these words on; empty before."""
        return self.text[self.text.rfind(said) :] if said in self.text else ""

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.end()

    def end(self) -> int:
        code = self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return code


def until(condition: Callable[[], bool], limit_s: float, what: str | Callable[[], str]) -> None:
    """Poll what no descriptor tells of, with a deadline."""
    deadline = time.monotonic() + limit_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(what if isinstance(what, str) else what())
        pause.wait(0.005)


def why_not() -> str | None:
    return netlab.why_not() or sshd.why_not()
