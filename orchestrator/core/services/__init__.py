"""How a service with a manager of its own is stopped and started: decided from what the manager says of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Reply = Mapping[str, Any]
"""What the agent's `run` says of one command: rc, stdout, stderr, error."""


@dataclass(frozen=True)
class Plan:
    """Commands that stop it for good and that bring it back, run in order to their ends; each may be repeated. `check`
    prints `expect` when it runs."""

    stop: tuple[tuple[str, ...], ...]
    start: tuple[tuple[str, ...], ...]
    check: tuple[str, ...]
    expect: str
    remarks: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Absent:
    """It does not run: nothing is to be stopped, and nothing will be started."""

    why: str


@dataclass(frozen=True)
class Refusal:
    """It is not to be stopped from here; `hint` is the way out."""

    why: str
    hint: str


Decision = Plan | Absent | Refusal


def said(reply: Reply | None) -> str:
    """The words of a command that failed, for a person."""
    if reply is None:
        return "it was not asked"
    if reply.get("error"):
        return str(reply["error"])
    if reply.get("timed_out"):
        return "it did not answer in time"
    return str(reply.get("stderr") or reply.get("stdout") or f"exit code {reply.get('rc')}").strip()[-300:]
