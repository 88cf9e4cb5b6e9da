"""The command that takes a guard out of its login: run before anything is changed, or nothing goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.agent import scene
from tests.agent.client import AgentClient, AgentReply, is_running


def opened(tmp_path: Path, escape: list[str]) -> tuple[AgentClient, str]:
    root = str(tmp_path / "tree")
    os.makedirs(root)
    scene.plant(root)
    client = AgentClient(tmp_path)
    client.call("open", root=root, guarded=[], holder=scene.HOLDER, lease_s=30.0, escape=escape)
    client.call("snapshot")
    return client, root


def test_the_guard_is_moved_before_the_first_change(tmp_path: Path) -> None:
    """The command gets the pid of the guard that then watches."""
    client, root = opened(tmp_path, ["sh", "-c", f"echo moved $0 > {tmp_path}/told", "{pid}"])
    client.call("apply", txn="1", files=scene.three_changes(root))
    told = (tmp_path / "told").read_text().split()
    assert told[0] == "moved"
    assert is_running(int(told[1]))
    assert Path(f"/proc/{told[1]}/comm").read_text().startswith("orc-guard")
    client.call("revert", txn="1", reason="test")
    client.call("close")
    client.close()


@pytest.mark.parametrize("command", [["false"], ["no-such-command-of-ours"]])
def test_a_guard_that_cannot_leave_is_ended_and_nothing_is_changed(tmp_path: Path, command: list[str]) -> None:
    """Refused with what the command said; the tree is as found."""
    client, root = opened(tmp_path, command)
    before = scene.picture(root)
    with pytest.raises(AgentReply) as refused:
        client.call("apply", txn="1", files=scene.three_changes(root))
    assert refused.value.kind == "refused"
    assert command[0] in refused.value.facts["command"]
    assert not is_running(int(refused.value.facts["pid"]))
    assert scene.picture(root) == before
    client.call("close")
    client.close()
