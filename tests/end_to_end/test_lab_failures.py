"""Servers that fail in every way the lab knows: the verdict, and a host as it was."""

from __future__ import annotations

import pytest

from tests.end_to_end.conftest import Bench, processes_of

CASES = {
    "crash_at_load": ("crashed", "ECC"),
    "crash_mid_benchmark:5": ("crashed", ""),
    "hang:load": ("hung", "hung in phase"),
    "hang:warmup": ("hung", ""),
    "hang:serve": ("hung", "hung"),
    "early_healthy": ("measured", ""),
    "orphan": ("measured", ""),
    "ignore_sigterm": ("measured", ""),
}


@pytest.mark.parametrize("fault", CASES)
def test_a_failing_server_gets_its_verdict_and_leaves_nothing(bench: Bench, fault: str) -> None:
    """Each failure is named for what it is; afterwards every byte is back and no process of the lab lives."""
    verdict, cause = CASES[fault]
    inventory = bench.inventory()
    inventory["targets"]["kimi-lab"]["ready"] = {"limit": "20s", "stall": "2s"}
    bench.write_inventory(inventory)
    before = bench.tree()
    row = {"id": "faulty", "changes": [{"env": {"LAB_FAULT": fault}}]}
    code, summary = bench.run("run", str(bench.write_playbook([row])))
    assert code == 0, summary
    finding = summary["findings"][0]
    if verdict == "measured":
        assert finding["verdict"] in ("no_effect", "inconclusive"), finding
    else:
        assert finding["verdict"] == verdict, finding
        assert finding["effect"] is None
        assert cause in (finding["cause"] or ""), finding
    assert summary["host_state"] == "clean"
    assert bench.tree() == before
    assert processes_of(bench.lab.root) == []


def test_a_server_that_demands_a_key_is_given_it(bench: Bench) -> None:
    """With `--api-key` in the target every request carries the key, and the key is nowhere in what is kept."""
    inventory = bench.inventory()
    inventory["targets"]["kimi-lab"]["args"]["api-key"] = "sk-very-secret-key"
    bench.write_inventory(inventory)
    row = {"id": "nothing", "changes": [{"env": {"OMP_NUM_THREADS": "1"}}]}
    code, summary = bench.run("run", str(bench.write_playbook([row])))
    assert code == 0, summary
    assert summary["findings"][0]["verdict"] in ("no_effect", "inconclusive")
    kept = b"".join(p.read_bytes() for p in bench.state.rglob("*") if p.is_file())
    assert b"sk-very-secret-key" not in kept
