"""A name that nobody knows is refused before the host is touched."""

from __future__ import annotations

from tests.end_to_end.conftest import Bench


def test_an_unknown_hypothesis_leaves_no_trace(bench: Bench) -> None:
    """`run --only` with a misspelled name suggests the right one, opens nothing on the host and begins no run."""
    playbook = bench.write_playbook([{"id": "channels", "changes": [{"env": {"NCCL_MAX_NCHANNELS": "2"}}]}])
    code, said = bench.run("run", str(playbook), "--only", "chanels")
    assert code == 2
    assert said["error"]["problems"][0]["hint"] == "did you mean 'channels'?"
    assert not list(bench.lab.source.parent.glob(".orchestrator-*"))
    assert bench.run("todo", "list")[0] == 2  # no campaign was begun
