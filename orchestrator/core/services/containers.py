"""A container of docker or podman, by `inspect`: asked for single fields, since the whole holds its environment."""

from __future__ import annotations

import json
import re
from typing import Any

from orchestrator.core.services import Absent, Decision, Plan, Refusal, Reply, said

TOOLS = ("docker", "podman")
_SEPARATOR = "\t"
_LABELS = {
    "com.docker.swarm.service.name": "docker swarm",
    "io.kubernetes.pod.name": "kubernetes",
    "PODMAN_SYSTEMD_UNIT": "systemd",
}
_FORMAT = _SEPARATOR.join(
    [
        "{{.Id}}",
        "{{.State.Status}}",
        "{{json .HostConfig.RestartPolicy}}",
        "{{.HostConfig.AutoRemove}}",
        *(f'{{{{with .Config.Labels}}}}{{{{index . "{label}"}}}}{{{{end}}}}' for label in _LABELS),
    ]
)
_RUNS = frozenset({"running", "restarting"})
_DENIED = re.compile(r"permission denied|dial unix|connect to the Docker daemon|must be root", re.IGNORECASE)
_ABSENT = re.compile(r"no such (object|container)|no container with name", re.IGNORECASE)
_UPDATES_SINCE = (5, 1)


def look_commands(name: str) -> list[dict[str, Any]]:
    """For the agent's `run`: both tools, since a person may have either, or the one under the other's name."""
    commands = []
    for tool in TOOLS:
        argv = [tool, "container", "inspect", "--format", _FORMAT, name]
        commands.append({"name": tool, "argv": argv, "timeout_s": 30.0})
        commands.append({"name": f"{tool} version", "argv": [tool, "--version"], "timeout_s": 30.0})
    return commands


def decide(replies: dict[str, Reply], name: str, *, grace_s: float) -> Decision:
    """`replies`: to the commands above, by their names."""
    for tool in TOOLS:
        reply = replies.get(tool)
        if reply is not None and reply.get("rc") == 0:
            version = str((replies.get(f"{tool} version") or {}).get("stdout", ""))
            return _decide(tool, version, str(reply["stdout"]), name, grace_s)
    return _why_unknown(replies, name)


def _why_unknown(replies: dict[str, Reply], name: str) -> Refusal:
    there = {tool: reply for tool in TOOLS if (reply := replies.get(tool)) and not reply.get("error")}
    if not there:
        return Refusal(f"neither docker nor podman is there to tell of {name}", "end the route where they are")
    words = {tool: said(reply) for tool, reply in there.items()}
    denied = next((tool for tool, text in words.items() if _DENIED.search(text)), None)
    if denied is not None:
        hint = f"start {denied} there, put `sudo: true` into the route, or add the account to the group that may use it"
        return Refusal(f"{denied} does not answer this account: {words[denied]}", hint)
    if all(_ABSENT.search(text) for text in words.values()):
        return Refusal(f"there is no container {name}", f"{next(iter(there))} ps --all")
    return Refusal(f"{name} cannot be told of: {'; '.join(words.values())}", f"{next(iter(there))} inspect {name}")


def _decide(tool: str, version: str, stdout: str, name: str, grace_s: float) -> Decision:
    fields = stdout.rstrip("\n").split(_SEPARATOR)
    if len(fields) != 4 + len(_LABELS):
        return Refusal(f"{tool} answers otherwise than is known: {stdout.strip()[:200]}", f"{tool} inspect {name}")
    identity, status, policy_text, removes = fields[:4]
    labels = {label: value for label, value in zip(_LABELS, fields[4:], strict=True) if value not in ("", "<no value>")}
    if status not in _RUNS:
        if status == "paused":
            return Refusal(f"container {name} is paused", f"{tool} unpause {name}")
        return Absent(f"container {name} is {status}")
    if removes == "true":
        what = f"container {name} was made with --rm: stopped, it is gone, and could not be started again"
        return Refusal(what, "make it without --rm, or stop it by hand")
    for label, value in labels.items():
        hint = f"service: {{systemd: {value}}}" if label == "PODMAN_SYSTEMD_UNIT" else "stop it there, by hand"
        return Refusal(f"{_LABELS[label]} runs container {name} as {value}, and would start it again", hint)
    return _plan(tool, version, identity, _policy(policy_text), grace_s)


def _policy(text: str) -> str:
    """As `update --restart` takes it."""
    policy: dict[str, Any] = json.loads(text) or {}
    name, count = str(policy.get("Name") or "no"), int(policy.get("MaximumRetryCount") or 0)
    return f"{name}:{count}" if name == "on-failure" and count else name


def _plan(tool: str, version: str, identity: str, policy: str, grace_s: float) -> Plan:
    """A stopped container stays stopped, but for the policy `always`: the daemon's next start brings it back."""
    stop: list[tuple[str, ...]] = [(tool, "stop", "-t", str(max(round(grace_s), 1)), identity)]
    start: list[tuple[str, ...]] = [(tool, "start", identity)]
    remarks: list[str] = []
    if policy == "always" and may_update(tool, version):
        stop.insert(0, (tool, "update", "--restart=no", identity))
        start.append((tool, "update", f"--restart={policy}", identity))
        remarks.append("its restart policy `always` is `no` meanwhile, and put back")
    elif policy == "always":
        remarks.append(f"its restart policy `always` stays: this {tool} cannot change it; a reboot may bring it back")
    check = (tool, "container", "inspect", "--format", "{{.State.Running}}", identity)
    return Plan(tuple(stop), tuple(start), check, "true", tuple(remarks))


def may_update(tool: str, version: str) -> bool:
    """Whether `update` knows `--restart`: docker since 1.11, podman since 5.1; docker may be podman in disguise."""
    found = re.search(r"(\d+)\.(\d+)", version)
    is_podman = "podman" in version.lower() or tool == "podman"
    return found is not None and (not is_podman or (int(found[1]), int(found[2])) >= _UPDATES_SINCE)
