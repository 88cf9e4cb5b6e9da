"""The whole route, step by step, and what is at its end. Looks, changes nothing, prints nothing."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence

from orchestrator.core.model import Host, Route, Target
from orchestrator.errors import OrchestratorError
from orchestrator.hosts import checks
from orchestrator.hosts.checks import State, Step
from orchestrator.hosts.client import Connection, connect
from orchestrator.hosts.facts import Facts, parse_facts, probe_commands
from orchestrator.hosts.keys import Prompt

__all__ = ["State", "Step", "examine"]

_ROUTE_STEPS = ("name", "tcp", "host key", "authentication")
_END_STEPS = ("agent", "facts")
Environment = Callable[[Mapping[str, str]], Mapping[str, str]]


def examine(
    host: Host,
    target: Target,
    *,
    name: str,
    engine_package: str | None = None,
    packages: Sequence[str] = (),
    environment: Environment | None = None,
    prompt: Prompt | None = None,
) -> tuple[list[Step], Facts | None]:
    """Steps in order, and the facts when the end was reached. After a failure the rest are `skip`.

    `environment` turns the account's environment into the server's; by default the target's `env` is laid over it.
    """
    steps = [] if host.route.is_local else _walk(host.route, prompt)
    if any(step.state == State.FAIL for step in steps):
        return [*steps, *_not_tried(_END_STEPS)], None
    try:
        connection = connect(host.route, name=name, prompt=prompt)
    except OrchestratorError as error:
        return [*steps, _failed("agent", error), *_not_tried(_END_STEPS[1:])], None
    with connection:
        try:
            hello = connection.hello
        except OrchestratorError as error:
            return [*steps, _failed("agent", error), *_not_tried(_END_STEPS[1:])], None
        sentence = f"Python {hello['python']} as {hello['user']} on {hello['hostname']}, in {hello['agent_dir']}"
        steps.append(Step("agent", State.OK, sentence))
        try:
            found, facts = _look_around(connection, host, target, engine_package, packages, environment)
        except OrchestratorError as error:
            return [*steps, _failed("facts", error)], None
        return steps + found, facts


def _failed(name: str, error: OrchestratorError) -> Step:
    evidence = [f"{key}: {error.facts[key]}" for key in ("fingerprint", "tried", "stderr") if key in error.facts]
    return Step(name, State.FAIL, "; ".join([error.what, *evidence]), error.hint)


def _not_tried(names: Sequence[str]) -> list[Step]:
    return [Step(name, State.SKIP, "not tried") for name in names]


def _walk(route: Route, prompt: Prompt | None) -> list[Step]:
    """Logs in, says how far it came for each leg, and hangs up."""
    import getpass

    from orchestrator.hosts.deadline import Deadline
    from orchestrator.hosts.dial import resolve
    from orchestrator.hosts.legs import Leg, configuration_lookup, plan_legs
    from orchestrator.hosts.ssh import open_session

    steps: list[Step] = []
    try:
        legs = plan_legs(route, configuration_lookup(route), getpass.getuser())
        if not legs[0].proxy_command:  # beyond the first leg, names are the jump host's business
            addresses = resolve(legs[0], Deadline(route.connect_timeout))
            steps.append(Step("name", State.OK, f"{legs[0].host} is {addresses[0][1][0]}"))
    except OrchestratorError as error:
        return [_failed("name", error), *_not_tried(_ROUTE_STEPS[1:])]

    said = {"tcp": "{} answers", "host key": "the key of {} is the one on record", "authentication": "logged in to {}"}

    def progress(step: str, leg: Leg) -> None:
        steps.append(Step(step, State.OK, said[step].format(leg)))

    try:
        open_session(route, Deadline(route.connect_timeout * (1 + len(legs))), prompt, progress).close()
    except OrchestratorError as error:
        rest = _ROUTE_STEPS[1:]
        done = len([step for step in steps if step.name != "name"]) % len(rest)
        return [*steps, _failed(rest[done], error), *_not_tried(rest[done + 1 :])]
    return steps


def _look_around(
    connection: Connection,
    host: Host,
    target: Target,
    engine_package: str | None,
    packages: Sequence[str],
    environment: Environment | None,
) -> tuple[list[Step], Facts]:
    hello = connection.hello
    env = (environment or _laid_over(target))(hello.get("environ", {}))
    cwd = target.cwd or hello["home"]
    commands = probe_commands(
        target, engine_package=engine_package, packages=packages, gpu_tool=host.gpu_tool, env=env, cwd=cwd
    )
    facts = parse_facts(connection.call("run", {"commands": commands}, timeout_s=90.0))
    source = target.source or (posixpath.dirname(facts.engine_origin) if facts.engine_origin else None)
    placed = target.model_copy(update={"source": source})
    python = {"python": target.python, "source": source or "/"}
    near = connection.submit("neighbours", python) if source is not None else None
    looks = connection.submit("run", {"commands": checks.check_commands(placed, hello["user"])})
    holders = connection.submit("processes", {"devices": list(host.gpu_devices), "port": target.port, "run_ids": []})
    entry = connection.submit("read", {"paths": [source or "/"], "max_bytes": 0})
    outputs = looks.result(60.0)
    found = entry.result(60.0)[source or "/"]
    kind = found["kind"]
    others = near.result(60.0)["processes"] if near is not None else []
    return [
        *checks.judge_interpreter(facts, target, engine_package),
        *checks.judge_gpus(facts, target),
        *checks.judge_source(facts, placed, outputs, kind),
        *checks.judge_sharing(placed, outputs, found.get("uid"), hello["uid"], others),
        *checks.judge_model(target, outputs),
        checks.judge_port(target, holders.result(60.0)["processes"]),
        *checks.judge_limits(facts),
        checks.judge_logind(outputs, hello["user"], hello["uid"]),
    ], facts


def _laid_over(target: Target) -> Environment:
    def lay_over(base: Mapping[str, str]) -> Mapping[str, str]:
        return {k: v for k, v in {**base, **target.env}.items() if v is not None}

    return lay_over
