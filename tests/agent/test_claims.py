"""GPUs and ports: one controller each on the machine, whichever tree it holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.agent import claims
from orchestrator.agent.claims import Claims, key_of
from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.lease import Lease
from tests.agent import scene

BOOT = "boot-1"


def lease(token: str, deadline_s: float = 60.0, boot_id: str = BOOT) -> Lease:
    return Lease(token, f"name of {token}", 1, os.getpid(), 0, "agent", 1, boot_id, 1_700_000_000.0, deadline_s)


def take(folder: Path, tree: str, resources: list[str], now_s: float = 0.0, **more: object) -> Claims:
    return Claims.take(Fs(), f"/state/{tree}", lease(tree, **more), resources, now_s, str(folder))  # type: ignore[arg-type]


@pytest.fixture
def gpus(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"nvidia{index}" for index in range(3)]
    for path in paths:
        path.touch()
    return [f"device:{path}" for path in paths]


def test_the_second_is_told_who_holds_what_since_and_until(tmp_path: Path, gpus: list[str]) -> None:
    """Any overlap is busy, and nothing of the second's other resources stays taken."""
    first = take(tmp_path, "a", gpus[:2])
    with pytest.raises(AgentError) as busy:
        take(tmp_path, "b", [gpus[2], gpus[1]])
    facts = busy.value.facts
    assert busy.value.kind == "busy"
    assert (facts["resource"], facts["holder"]) == (gpus[1], "name of a")
    assert {"since", "until", "state_dir"} <= facts.keys()
    third = take(tmp_path, "c", [gpus[2]])
    first.release()
    third.release()


def test_sets_apart_and_other_ports_do_not_disturb_each_other(tmp_path: Path, gpus: list[str]) -> None:
    one = take(tmp_path, "a", [gpus[0], "port:30000"])
    other = take(tmp_path, "b", [gpus[1], "port:30001"])
    one.release()
    other.release()
    assert not [name for name in os.listdir(tmp_path) if name.startswith("orchestrator-")]


def test_a_device_is_known_by_number_whatever_its_name(tmp_path: Path) -> None:
    """Another name of the same device, or of the same file, is the same claim."""
    other = tmp_path / "other"
    os.symlink("/dev/null", other)
    assert key_of("device:/dev/null") == key_of(f"device:{other}") != key_of("device:/dev/zero")
    (tmp_path / "file").touch()
    os.link(tmp_path / "file", tmp_path / "twin")
    assert key_of(f"device:{tmp_path / 'file'}") == key_of(f"device:{tmp_path / 'twin'}")


def test_a_killed_holder_keeps_its_claims_until_its_lease_ends(tmp_path: Path, gpus: list[str]) -> None:
    """Its locks are free and its record is not: its server may still run."""
    take(tmp_path, "a", gpus, deadline_s=60.0).drop()
    with pytest.raises(AgentError):
        take(tmp_path, "b", gpus, now_s=59.0)
    take(tmp_path, "b", gpus, now_s=61.0, deadline_s=120.0).release()


def test_the_same_tree_comes_back_at_once(tmp_path: Path, gpus: list[str]) -> None:
    """Its own record is no hindrance; inherited claims that it does not take again are given back with the others."""
    dead = take(tmp_path, "a", gpus)
    paths = dead.paths
    dead.drop()
    again = take(tmp_path, "a", gpus[:1])
    again.inherit(paths)
    assert again.paths == paths
    again.release()
    take(tmp_path, "b", gpus).release()


def test_a_claim_of_another_boot_is_void(tmp_path: Path, gpus: list[str]) -> None:
    take(tmp_path, "a", gpus, boot_id="boot-0").drop()
    take(tmp_path, "b", gpus).release()


def test_a_link_in_the_way_is_not_followed(tmp_path: Path, gpus: list[str]) -> None:
    """Somebody's link under the name of a claim: an error, and its target keeps its bytes."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    os.symlink(victim, tmp_path / f"orchestrator-{key_of(gpus[0])}")
    with pytest.raises(OSError, match="symbolic links"):
        take(tmp_path, "a", gpus[:1])
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("resource", ["gpu:0", "port:x", "device:relative"])
def test_what_is_no_resource_is_a_usage_error(resource: str) -> None:
    with pytest.raises(AgentError) as usage:
        key_of(resource)
    assert usage.value.kind == "usage"


def test_claims_go_with_the_tree(tmp_path: Path, gpus: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening two trees with one GPU: the second is busy and its tree stays free; after `close` it gets both."""
    monkeypatch.setattr(claims, "folder_for_claims", lambda: str(tmp_path))
    roots = []
    for name in ("one", "two"):
        root = tmp_path / name / "tree"
        root.mkdir(parents=True)
        roots.append(str(root))
    first = scene.take(roots[0], resources=gpus)
    with pytest.raises(AgentError) as busy:
        scene.take(roots[1], holder=scene.OTHER, resources=gpus[:1])
    assert busy.value.facts["holder"] == "anna"
    scene.take(roots[1], holder=scene.OTHER).close()
    first.close()
    scene.take(roots[1], holder=scene.OTHER, resources=gpus).close()
    assert not [name for name in os.listdir(tmp_path) if name.startswith("orchestrator-")]
