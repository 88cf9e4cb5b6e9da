"""A thousand reaps among processes that only look like ours: decided on what /proc says of real ones."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.reaping import Identity, Ours, Policy, Process, decide
from tests.agent.client import AgentClient
from tests.agent.conftest import connect
from tests.state_cases.farm import SLEEP, Farm, is_alive, planted

__all__ = ["connect"]
REAPS, SNAPSHOTS, SIGNALLED = 1000, 40, 10


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    with planted(tmp_path / "farm") as planted_farm:
        yield planted_farm


def snapshot(client: AgentClient, farm: Farm, chance: random.Random, *more: int) -> list[Process]:
    """What the agent sees when it is asked for GPU, port, and some of the farm by number."""
    named = [pid for pid in farm.decoys.values() if chance.random() < 0.8]
    named += [os.getpid(), os.getppid(), client.process.pid, *more]
    port = farm.port if chance.random() < 0.8 else None
    devices = [farm.device] if chance.random() < 0.8 else []
    seen = client.call("processes", devices=devices, port=port, run_ids=["orc-ours-1"], pids=named)
    return [Process.from_agent(one) for one in seen["processes"]]


def journal(table: list[Process], chance: random.Random, agent: int) -> Ours:
    """A journal of ours that is as misleading as one can be: pids of the farm with other start times, sessions whose
    number went to somebody else, run ids that nearly fit."""
    stale = {Identity(p.pid, p.start_ticks - chance.randint(1, 10**6)) for p in table if chance.random() < 0.5}
    leaders = [p for p in table if p.sid == p.pid]
    sessions = {p.pid: p.start_ticks - chance.randint(1, 1000) for p in leaders if chance.random() < 0.5}
    return Ours(
        run_ids=frozenset({"orc-ours-1", f"orc-ours-{chance.randint(11, 99)}"}),
        identities=frozenset(stale),
        sessions=sessions,
        agent_pid=agent,
        agent_uid=os.getuid(),
    )


def test_a_thousand_reaps_under_ours_end_no_decoy(farm: Farm, connect: Callable[..., AgentClient]) -> None:
    """Paths, titles, arguments, GPU, port, tree, near run ids and stale journals: nothing of it makes a process ours;
    nor is anybody above the agent ever ended."""
    client, chance = connect(), random.Random(7031)
    tables = [snapshot(client, farm, chance) for _ in range(SNAPSHOTS)]
    assert any(p.devices for table in tables for p in table) and any(p.listens for table in tables for p in table)
    for _ in range(REAPS):
        table = chance.choice(tables)
        shown = chance.sample(table, chance.randint(1, len(table)))
        ours = journal(shown, chance, client.process.pid)
        doomed = [d for d in decide(shown, ours, Policy(port=farm.port)) if d.end]
        assert doomed == [], doomed


def test_under_engine_only_the_old_server_ends(farm: Farm, connect: Callable[..., AgentClient]) -> None:
    """It runs from the target's interpreter and holds its GPU and port; its rank descends from it. The notebook of the
    same interpreter and the holder of the same GPU stay."""
    client, chance = connect(), random.Random(2219)
    policy = Policy("engine", interpreters=frozenset({farm.python}), port=farm.port)
    for _ in range(SNAPSHOTS):
        named = list(farm.decoys.values())
        chance.shuffle(named)
        seen = client.call("processes", devices=[farm.device], port=farm.port, run_ids=[], pids=named)
        table = [Process.from_agent(one) for one in seen["processes"]]
        ours = journal(table, chance, client.process.pid)
        assert sorted(d.pid for d in decide(table, ours, policy) if d.end) == sorted(farm.old_server)


def test_reaps_that_are_carried_out_end_ours_and_leave_the_farm(
    farm: Farm, connect: Callable[..., AgentClient]
) -> None:
    """Signals are really sent: a process of ours among the decoys ends each time, then the old server under `engine`,
    and everybody else lives to the end."""
    client, chance = connect(), random.Random(4)
    boot = client.call("hello")["boot_id"]

    def carry_out(policy: Policy, *more: int) -> list[int]:
        table = snapshot(client, farm, chance, *farm.decoys.values(), *more)
        doomed = [d for d in decide(table, journal(table, chance, client.process.pid), policy) if d.end]
        identities = [{"pid": d.pid, "start_ticks": d.start_ticks, "boot_id": boot} for d in doomed]
        reply: dict[str, Any] = client.call("end_processes", identities=identities, term_s=2.0, kill_s=5.0)
        assert reply["survivors"] == []
        return sorted(reply["ended"])

    env = {**os.environ, "ORC_RUN_ID": "orc-ours-1"}
    for _ in range(SIGNALLED):
        with subprocess.Popen(
            [sys.executable, "-c", SLEEP], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as mine:
            assert mine.stdout is not None
            mine.stdout.readline()
            assert carry_out(Policy(port=farm.port)) == [mine.pid]
            mine.wait(10)
    assert all(is_alive(pid) for pid in farm.decoys.values())
    engine = Policy("engine", interpreters=frozenset({farm.python}), port=farm.port)
    while farm.old_server[0] in (alive := [p for p in farm.old_server if is_alive(p)]):
        assert set(carry_out(engine)) <= set(farm.old_server), alive
    others = set(farm.decoys.values()) - set(farm.old_server)
    assert all(is_alive(pid) for pid in others)
