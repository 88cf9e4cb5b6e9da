"""What is done about a unit or a container, from what systemctl, docker and podman print."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core.services import Absent, Plan, Refusal, containers, systemd

SHOWN_219 = (
    "Id=llm.service\nLoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\nRestart=always\n"
)
SHOWN_252 = SHOWN_219 + "CanStop=yes\nRefuseManualStop=no\nRefuseManualStart=no\nTriggeredBy=\nNeedDaemonReload=no\n"
SHOWN_257 = SHOWN_252.replace("TriggeredBy=\n", "TriggeredBy=llm.socket llm.timer\n")


def shown(text: str, rc: int = 0, stderr: str = "") -> dict[str, Any]:
    return {"rc": rc, "stdout": text, "stderr": stderr, "timed_out": False}


def decide_unit(text: str, *, user: bool = False, uid: int = 0, **more: Any) -> Any:
    return systemd.decide(shown(text, **more), "llm.service", user=user, uid=uid)


@pytest.mark.parametrize("text", [SHOWN_219, SHOWN_252])
def test_a_running_unit_is_stopped_and_started_by_systemctl(text: str) -> None:
    """`Restart=always` does not bring back what systemctl stopped; what an old systemd lacks is no matter."""
    plan = decide_unit(text)
    assert isinstance(plan, Plan)
    assert plan.stop == (("systemctl", "--no-ask-password", "stop", "llm.service"),)
    assert plan.start == (("systemctl", "--no-ask-password", "start", "llm.service"),)
    assert (plan.check, plan.expect) == (("systemctl", "is-active", "llm.service"), "active")


def test_sockets_and_timers_that_would_start_it_again_are_stopped_before_it() -> None:
    plan = decide_unit(SHOWN_257)
    assert isinstance(plan, Plan)
    assert plan.stop[0][3:] == plan.start[0][3:] == ("llm.socket", "llm.timer", "llm.service")


def test_a_unit_of_the_account_needs_no_root() -> None:
    plan = decide_unit(SHOWN_252, user=True, uid=1000)
    assert isinstance(plan, Plan) and plan.stop[0][:3] == ("systemctl", "--user", "--no-ask-password")
    refused = decide_unit(SHOWN_252, uid=1000)
    assert isinstance(refused, Refusal) and "sudo systemctl stop llm.service" in refused.hint


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (SHOWN_252.replace("ActiveState=active", "ActiveState=inactive"), Absent, "is inactive"),
        (SHOWN_252.replace("ActiveState=active", "ActiveState=failed"), Absent, "is failed"),
        (SHOWN_252.replace("LoadState=loaded", "LoadState=not-found"), Refusal, "has no unit"),
        (SHOWN_252.replace("LoadState=loaded", "LoadState=masked"), Refusal, "masked"),
        (SHOWN_252.replace("UnitFileState=enabled", "UnitFileState=transient"), Refusal, "could start it again"),
        (SHOWN_252.replace("RefuseManualStop=no", "RefuseManualStop=yes"), Refusal, "refuses to be stopped"),
        (SHOWN_252.replace("CanStop=yes", "CanStop=no"), Refusal, "refuses to be stopped"),
    ],
)
def test_what_does_not_run_is_left_and_what_cannot_come_back_is_refused(
    text: str, kind: type[Absent] | type[Refusal], words: str
) -> None:
    told = decide_unit(text)
    assert isinstance(told, kind) and words in told.why


def test_what_a_person_should_know_is_said() -> None:
    text = SHOWN_252.replace("NeedDaemonReload=no", "NeedDaemonReload=yes").replace("running", "auto-restart")
    plan = decide_unit(text)
    assert isinstance(plan, Plan) and len(plan.remarks) == 2


@pytest.mark.parametrize(
    "stderr",
    [
        "System has not been booted with systemd as init system (PID 1). Can't operate.\nFailed to connect to bus",
        "Failed to connect to bus: No medium found",
    ],
)
def test_without_systemd_it_says_so(stderr: str) -> None:
    told = decide_unit("", rc=1, stderr=stderr)
    assert isinstance(told, Refusal) and stderr in told.why
    missing = systemd.decide({"rc": None, "error": "No such file or directory"}, "x", user=False, uid=0)
    assert isinstance(missing, Refusal) and "No such file" in missing.why


ID = "3f4e" * 16
NO_TOOL = {"rc": None, "stdout": "", "stderr": "", "timed_out": False, "error": "No such file or directory"}
DOCKER_28 = shown("Docker version 28.2.2, build e6534b4\n")
PODMAN_4 = shown("podman version 4.3.1\n")
PODMAN_5 = shown("podman version 5.4.2\n")


def inspected(
    status: str = "running", policy: str = '{"Name":"no","MaximumRetryCount":0}', rm: str = "false", *labels: str
) -> dict[str, Any]:
    return shown("\t".join([ID, status, policy, rm, *(labels or ("", "", ""))]) + "\n")


def decide_container(**replies: Any) -> Any:
    known = {"docker": NO_TOOL, "docker version": NO_TOOL, "podman": NO_TOOL, "podman version": NO_TOOL}
    return containers.decide({**known, **{k.replace("_", " "): v for k, v in replies.items()}}, "llm", grace_s=10.0)


ALWAYS = '{"Name":"always","MaximumRetryCount":0}'


@pytest.mark.parametrize("policy", ["no", "unless-stopped", "on-failure", ""])
def test_a_policy_that_respects_a_stop_is_left_alone(policy: str) -> None:
    told = f'{{"Name":"{policy}","MaximumRetryCount":3}}'
    plan = decide_container(docker=inspected(policy=told), docker_version=DOCKER_28)
    assert isinstance(plan, Plan)
    assert plan.stop == (("docker", "stop", "-t", "10", ID),) and plan.start == (("docker", "start", ID),)


def test_a_policy_that_outlives_a_reboot_is_recorded_and_put_back() -> None:
    plan = decide_container(docker=inspected(policy=ALWAYS), docker_version=DOCKER_28)
    assert isinstance(plan, Plan)
    assert plan.stop == (("docker", "update", "--restart=no", ID), ("docker", "stop", "-t", "10", ID))
    assert plan.start == (("docker", "start", ID), ("docker", "update", "--restart=always", ID))


@pytest.mark.parametrize(
    ("tool", "version", "updates"),
    [
        ("podman", PODMAN_4, False), ("podman", PODMAN_5, True),
        ("docker", shown("podman version 4.9.3\n"), False),  # podman-docker
        ("docker", shown("Docker version 20.10.24+dfsg1, build 297e128\n"), True),
    ],
)  # fmt: skip
def test_an_update_is_asked_only_of_what_knows_it(tool: str, version: dict[str, Any], updates: bool) -> None:
    plan = decide_container(**{tool: inspected(policy=ALWAYS), f"{tool}_version": version})
    assert isinstance(plan, Plan)
    assert any("update" in words for words in plan.stop) is updates and len(plan.remarks) == 1


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (inspected("exited"), Absent, "is exited"),
        (inspected("created"), Absent, "is created"),
        (inspected("paused"), Refusal, "is paused"),
        (inspected(rm="true"), Refusal, "--rm"),
        (inspected("running", ALWAYS, "false", "llm_web", "", ""), Refusal, "docker swarm"),
        (inspected("running", ALWAYS, "false", "", "llm-0", ""), Refusal, "kubernetes"),
        (inspected("running", ALWAYS, "false", "", "", "llm.service"), Refusal, "systemd"),
        (shown("something else"), Refusal, "otherwise than is known"),
        (shown("", 1, "Error response from daemon: No such container: llm"), Refusal, "there is no container"),
        (shown("", 125, 'Error: no container with name or ID "llm" found'), Refusal, "there is no container"),
        (
            shown("", 1, "permission denied while trying to connect to the Docker daemon socket"),
            Refusal,
            "this account",
        ),
        (NO_TOOL, Refusal, "neither docker nor podman"),
    ],
)
def test_what_is_not_to_be_stopped_is_said_with_the_way_out(
    reply: dict[str, Any], kind: type[Absent] | type[Refusal], words: str
) -> None:
    told = decide_container(docker=reply, docker_version=DOCKER_28)
    assert isinstance(told, kind) and words in told.why
    assert not isinstance(told, Refusal) or told.hint


def test_its_environment_is_never_asked_for() -> None:
    asked = str(containers.look_commands("llm")) + str(systemd.look_commands("llm.service", user=False))
    assert "Env" not in asked and "{{json .Config}}" not in asked
