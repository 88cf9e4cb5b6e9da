"""What a person may ask of whoever runs experiments, and the record of having asked.

A face writes a request into the ledger; the runner of that host carries it out, or a process that is started for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from orchestrator.core.model import Model
from orchestrator.core.records import Facts, Timestamp

RequestState = Literal["waiting", "taken", "done", "refused", "failed"]
ActionName = Literal["stop", "pause", "resume", "revert", "rerank", "next", "look", "reap", "release"]


class RequestRecord(Model):
    """`answer` is one sentence for people, `result` what the action brought as plain data."""

    id: int
    action: ActionName
    host: str
    run_id: int | None = None
    arguments: Facts = Field(default_factory=dict)
    asked_by: str
    asked_at: Timestamp
    state: RequestState = "waiting"
    taken_by: int | None = Field(None, description="pid of the process that carries it out")
    taken_at: Timestamp | None = None
    ended_at: Timestamp | None = None
    answer: str = ""
    result: Facts = Field(default_factory=dict)


@dataclass(frozen=True)
class Action:
    """`does` is the sentence shown before it is agreed to; `{host}` and `{hypothesis}` are filled in. `needs_run`: it
    means nothing where no runner lives. `changes_host` is refused on a host marked `write: false`."""

    name: ActionName
    area: str
    verb: str
    key: str
    does: str
    needs_run: bool = False
    changes_host: bool = True

    @property
    def title(self) -> str:
        return f"{self.area}: {self.verb}"


ACTIONS: tuple[Action, ...] = (
    Action(
        "stop", "run", "stop", "s",
        "The run on {host} stops at its next safe moment, as by Ctrl-C: the server is ended, every file put back, the "
        "host proved clean. The measurement under way is lost; its hypothesis stays open.",
        needs_run=True,
    ),
    Action(
        "pause", "run", "pause after this phase", "p",
        "The run on {host} ends its present phase and then waits, with lease and server as they are, until it is "
        "told to go on or to stop. Nothing is ended or reverted.",
        needs_run=True, changes_host=False,
    ),
    Action(
        "resume", "run", "go on", "u",
        "The run on {host} that was paused goes on with its next phase.",
        needs_run=True, changes_host=False,
    ),
    Action(
        "revert", "host", "revert now", "v",
        "Whatever of ours is on {host} is taken back now: a run there is broken off and ends; where none lives, a "
        "process is started that ends our server, puts every file back and proves it.",
    ),
    Action(
        "rerank", "todo", "re-rank", "e",
        "The hypotheses that are left are ranked again from what is known by now.",
        changes_host=False,
    ),
    Action(
        "next", "todo", "run next", "n",
        "{hypothesis} is carried out on {host} before all others that are left.",
        changes_host=False,
    ),
    Action(
        "look", "host", "look who holds it", "o",
        "The processes on the GPUs and port of {host} are listed, with what would become of each. Nothing is changed.",
        changes_host=False,
    ),
    Action(
        "reap", "host", "reap", "R",
        "Processes on {host} that its policy in the inventory allows to end are ended (TERM, then KILL), and what dead "
        "processes of ours left is removed. The host screen lists them.",
    ),
    Action(
        "release", "host", "release", "L",
        "The files of {host} as they were found come back, over what lies there now; what is taken out is kept beside "
        "the ledger. Then the host is proved clean and takes work again.",
    ),
)  # fmt: skip

BY_NAME: Mapping[str, Action] = {action.name: action for action in ACTIONS}


def command_line(action: str, host: str, state: str, hypothesis: str | None = None) -> list[str]:
    """The words of the command that asks for it."""
    which = ["--hypothesis", hypothesis] if hypothesis else []
    return ["orchestrator", "request", action, host, *which, "--state", state]
