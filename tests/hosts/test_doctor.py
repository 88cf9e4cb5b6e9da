"""The doctor: a route step by step, and judgements about its end."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.model import Host, Route, Target
from orchestrator.hosts.checks import State, judge_filesystem, judge_logind, judge_port
from orchestrator.hosts.doctor import examine
from tests.hosts.test_facts import ABSENT, recorded, said
from tests.sshd import Sshd


def target(tmp_path: Path, **changes: Any) -> Target:
    fields = {"engine": "command", "launch": ["x"], "python": sys.executable, "source": str(tmp_path), **changes}
    return Target.model_validate(fields)


def walk(route: Route, aim: Target) -> tuple[dict[str, State], dict[str, str], bool]:
    """Step → state, step → sentence, and whether there are facts."""
    steps, facts = examine(Host(route=route, target=aim), aim, name="gpu1")
    return {s.name: s.state for s in steps}, {s.name: s.sentence for s in steps}, facts is not None


def test_a_good_route_is_ok_at_every_step(sshd: Sshd, tmp_path: Path) -> None:
    """Name, TCP, host key, login, agent, and the looks at its end."""
    states, _, has_facts = walk(sshd.route(), target(tmp_path))
    route = ("name", "tcp", "host key", "authentication", "agent", "server python", "source", "port")
    assert [states[name] for name in route] == [State.OK] * len(route)
    assert has_facts


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({"ssh": "root@nowhere.invalid"}, "name"),
        ({"port": 1}, "tcp"),
        ({"known_hosts": "/nowhere"}, "host key"),
        ({"key": "/nowhere"}, "authentication"),
        ({"python": "python9"}, "agent"),
    ],
)
def test_what_follows_a_failure_is_not_tried(sshd: Sshd, tmp_path: Path, changes: dict[str, Any], failing: str) -> None:
    """The first failing step has the sentence; those before are ok, those after are `skip`."""
    order = ("name", "tcp", "host key", "authentication", "agent", "facts")
    states, sentences, has_facts = walk(sshd.route(**changes), target(tmp_path))
    at = order.index(failing)
    assert [states[name] for name in order] == [State.OK] * at + [State.FAIL] + [State.SKIP] * (len(order) - at - 1)
    assert sentences[failing] and not has_facts


def test_a_missing_source_model_and_a_taken_port(tmp_path: Path) -> None:
    """Each is found at the end of a local route, with the pid that holds the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        aim = target(tmp_path, source="/nowhere", model="/no/model", port=server.getsockname()[1])
        states, sentences, _ = walk(Route(), aim)
    assert (states["source"], states["model"], states["port"]) == (State.FAIL, State.FAIL, State.WARN)
    assert "taken by pid" in sentences["port"]


@pytest.mark.parametrize(
    ("logind", "linger", "user", "uid", "expected"),
    [
        ("logind-kills", "Linger=no", "me", 1000, State.FAIL),
        ("logind-kills", "Linger=yes", "me", 1000, State.OK),
        ("logind-kills", "Linger=no", "root", 0, State.OK),
        ("logind-keeps", "Linger=no", "me", 1000, State.OK),
    ],
)
def test_whether_a_server_outlives_the_login(logind: str, linger: str, user: str, uid: int, expected: State) -> None:
    """KillUserProcesses without lingering ends our guard at logout; root is excluded by default."""
    outputs = {"logind": said(recorded(logind)), "linger": said(linger)}
    assert judge_logind(outputs, user, uid).state == expected


def test_no_logind_kills_nobody() -> None:
    """A container without systemd has nothing that ends processes at logout."""
    assert judge_logind({"logind": ABSENT, "linger": ABSENT}, "me", 1000).state == State.OK


@pytest.mark.parametrize(("kind", "expected"), [("ext2/ext3", State.OK), ("nfs", State.WARN), ("", State.WARN)])
def test_filesystems(kind: str, expected: State) -> None:
    """Known good ones are ok; those that cannot swap, and unknown ones, are told."""
    assert judge_filesystem(kind).state == expected


def test_a_port_is_judged_by_its_listener() -> None:
    """A process that holds something else does not take the port."""
    other = {"pid": 1, "listens": [8000], "cmdline": ["x"]}
    assert judge_port(Target(port=30000), [other]).state == State.OK
    assert judge_port(Target(port=8000), [other]).state == State.WARN
