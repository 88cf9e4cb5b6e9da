"""A unit of systemd, by `systemctl show`: the same since version 219, new properties come at the end."""

from __future__ import annotations

from typing import Any

from orchestrator.core.services import Absent, Decision, Plan, Refusal, Reply, said

_PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "Restart", "CanStop", "RefuseManualStop",
    "RefuseManualStart", "TriggeredBy", "NeedDaemonReload",
)  # fmt: skip
_RUNS = frozenset({"active", "activating", "reloading", "refreshing", "maintenance"})


def look_commands(unit: str, *, user: bool) -> list[dict[str, Any]]:
    """For the agent's `run`."""
    words = [*_systemctl(user), "show", unit, f"--property={','.join(_PROPERTIES)}", "--no-pager"]
    return [{"name": "show", "argv": words, "timeout_s": 20.0}]


def decide(reply: Reply | None, unit: str, *, user: bool, uid: int) -> Decision:
    """`reply`: to the command above; `uid`: of the account that we are on the host."""
    if reply is None or reply.get("rc") != 0:
        hint = "systemd does not run there, or not for this account" if user else "systemd does not run there"
        return Refusal(f"systemctl cannot tell of {unit}: {said(reply)}", hint)
    facts = _properties(str(reply["stdout"]))
    if facts.get("LoadState", "not-found") != "loaded":
        return Refusal(f"systemd has no unit {unit} ({facts.get('LoadState', 'no answer')})", "systemctl list-units")
    if facts.get("ActiveState") not in _RUNS:
        return Absent(f"{unit} is {facts.get('ActiveState')}")
    refusal = _refusal(facts, unit, user=user, uid=uid)
    if refusal is not None:
        return refusal
    # What triggers it would start it in the middle of a campaign: a socket with the next request, a timer in time.
    units = (*facts.get("TriggeredBy", "").split(), unit)
    control = (*_systemctl(user), "--no-ask-password")
    remarks = []
    if facts.get("NeedDaemonReload") == "yes":
        remarks.append(f"the file of {unit} has changed since systemd read it; it starts as systemd knows it")
    if facts.get("SubState") == "auto-restart":
        remarks.append(f"{unit} was just about to be started again: it does not stay up by itself")
    return Plan(
        stop=((*control, "stop", *units),),
        start=((*control, "start", *units),),
        check=(*_systemctl(user), "is-active", unit),
        expect="active",
        remarks=tuple(remarks),
    )


def _refusal(facts: dict[str, str], unit: str, *, user: bool, uid: int) -> Refusal | None:
    if facts.get("UnitFileState") == "transient":
        what = f"{unit} is transient: stopped, it is gone, and nothing could start it again"
        return Refusal(what, "write a unit file for it, or stop it by hand")
    if "yes" in (facts.get("RefuseManualStop"), facts.get("RefuseManualStart")) or facts.get("CanStop") == "no":
        return Refusal(f"{unit} refuses to be stopped or started by hand", "stop what it depends on by hand")
    if not user and uid != 0:
        what = f"stopping {unit} needs root"
        return Refusal(what, f"put `sudo: true` into the route, or run: sudo systemctl stop {unit}")
    return None


def _systemctl(user: bool) -> tuple[str, ...]:
    return ("systemctl", "--user") if user else ("systemctl",)


def _properties(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, mark, value in pairs if mark}
