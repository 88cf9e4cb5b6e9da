"""Whether a tree is ours alone to change, and what else can be done: pure judgements of what an agent saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SUGGESTION = "`tree: shadow` in the target runs from a copy, and never writes the tree"


@dataclass(frozen=True)
class Neighbour:
    """A living process that would load our change when it starts again."""

    pid: int
    user: str
    why: str
    command: str

    def __str__(self) -> str:
        return f"pid {self.pid} of {self.user}: {self.why}: {self.command}"


def as_neighbours(seen: Sequence[Mapping[str, Any]]) -> list[Neighbour]:
    """From the agent's reply to `neighbours`: those that live and are not of our own launches."""
    return [
        Neighbour(p["pid"], p["user"], p["why"], " ".join(p["cmdline"])[:120])
        for p in seen
        if not p["descends_from_guard"] and not p["is_ancestor_of_agent"] and p["state"] != "Z"
    ]


def advise(
    tree: str, near: Sequence[Neighbour], *, is_writable: bool, owner_uid: int | None, our_uid: int
) -> list[str]:
    """Why a copy would be better, one sentence a reason. Empty where there is none, or a copy is used already."""
    if tree == "shadow":
        return []
    reasons = []
    if not is_writable:
        reasons.append("the tree is not writable for the agent")
    if owner_uid is not None and owner_uid != our_uid:
        reasons.append(f"the tree belongs to uid {owner_uid}, and we are uid {our_uid}")
    return reasons + [f"another process runs from it: {neighbour}" for neighbour in near]
