"""From a server that was launched to one that may be measured: ready, warm, with the baseline's room, and live."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.controller.dialogue import ArmFailed, Dialogue
from orchestrator.core.records import LaunchOutcome
from orchestrator.errors import Unreachable
from orchestrator.serving import caches
from orchestrator.serving.http import get, json_body
from orchestrator.serving.warm import capacity_of, capacity_problem, long_prompt_tokens

if TYPE_CHECKING:
    from orchestrator.controller.arm import ArmResult
    from orchestrator.controller.session import HostSession
    from orchestrator.controller.treatment import Treatment
    from orchestrator.core.model import Workload
    from orchestrator.serving.engine import LaunchPlan


def own_caches(session: HostSession, treatment: Treatment) -> caches.Choice:
    """Variables of compiled caches that this launch does not share; what the treatment sets itself stays as it is."""
    asked = treatment.expectation
    return caches.choose(
        treatment.caches,
        files={edit.path: edit.after for edit in treatment.files},
        flags=asked.flags,
        env=[*asked.environ, *asked.python_environ],
        configured=treatment.configuration.flags,
        engine=session.engine.name,
    )


def await_ready(session: HostSession, dialogue: Dialogue, plan: LaunchPlan, result: ArmResult) -> None:
    """Raises `ArmFailed`, named after how the server did not come up."""
    from orchestrator.hosts.gputool import memory_command

    spec = dict(plan.ready)
    if session.facts.gpus:
        spec["memory_argv"] = memory_command(session.host.gpu_tool)["argv"]
    request = {"launch_id": plan.launch_id, "spec": spec}
    reply = dialogue.ask("await_ready", request, timeout_s=float(plan.ready["limit_s"]) + 60.0)
    result.ready_s = reply.get("seconds")
    state, facts = str(reply["state"]), reply.get("facts", {})
    if state != "ready":
        result.seen["not_ready"] = {"state": state, **facts}
        dialogue.fail(state, facts)


def warm_up(session: HostSession, dialogue: Dialogue, workload: Workload, result: ArmResult, log: list[str]) -> None:
    """What the server says of itself, and one long prompt. Raises `ArmFailed` when it does not survive that."""
    info_path = session.engine.info_path()
    info = None
    if info_path is not None:
        try:
            info = json_body(dialogue.ask("http", get(session.target, info_path), timeout_s=60.0))
        except Unreachable as error:
            dialogue.fall_silent(error, {"path": info_path})
    result.resolved = session.engine.resolved(info) if info is not None else None
    result.told_environ = session.engine.told_environ(info) if info is not None else {}
    tokens = long_prompt_tokens(workload, info)
    if tokens is not None:
        _send_long_prompt(session, dialogue, tokens, result)
    result.capacity = capacity_of(info, log)
    result.seen["capacity_tokens"] = result.capacity


def _send_long_prompt(session: HostSession, dialogue: Dialogue, tokens: int, result: ArmResult) -> None:
    """A server that refuses it (4xx) lives and says why; one that fails or falls silent is not ready."""
    stall_s = session.target.ready.stall
    request = {**session.engine.long_request(session.target, tokens, dialogue.launch_id), "timeout_s": stall_s}
    try:
        reply = dialogue.ask("http", request, timeout_s=stall_s + 30.0)
    except Unreachable as error:
        dialogue.fall_silent(error, {"prompt_tokens": tokens})
    status = int(reply.get("status", 0))
    result.seen["long_prompt"] = {"tokens": tokens, "status": status}
    if status >= 500:
        body = str(reply.get("body", ""))[:300]
        dialogue.fail("generation_failed", {"prompt_tokens": tokens, "status": status, "body": body})


def compare_capacity(baseline: int | None, treatment: Treatment, result: ArmResult) -> None:
    """Raises `ArmFailed` as invalid where the cache differs and nothing that was changed explains it."""
    expected = treatment.expectation
    problem = capacity_problem(
        baseline,
        result.capacity,
        flags=expected.flags,
        names=(*expected.environ, *expected.python_environ),
        paths=[path for paths in treatment.changed_paths.values() for path in paths],
    )
    if problem is not None:
        raise ArmFailed(LaunchOutcome.invalid, problem)


def note_process(result: ArmResult, inspected: Mapping[str, Any]) -> None:
    """What the server's own process was started with and may use."""
    result.seen["limits"] = inspected.get("limits", {})
    result.seen["cmdline"] = inspected.get("cmdline", [])
