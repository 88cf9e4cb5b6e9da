"""Only what is proved to be ours, or was named by a person, is ended; every decision carries its reason."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.reaping import Decision, Identity, Kind, Ours, Policy, Process, absent, decide

PYTHON = "/opt/venv/bin/python"
OURS = Ours(
    run_ids=frozenset({"run-7"}),
    identities=frozenset({Identity(500, 9000)}),
    sessions={600: 9100},
    agent_pid=42,
    guard_pid=43,
)
ENGINE = Policy("engine", interpreters=frozenset({PYTHON, "/usr/bin/python3.11"}), port=30000)


def process(pid: int, **fields: Any) -> Process:
    defaults: dict[str, Any] = {"ppid": 1, "start_ticks": 9500, "sid": pid, "uid": 0, "state": "S"}
    return Process(pid, **{**defaults, **fields})


def decide_one(
    it: Process, policy: Policy | None = None, others: tuple[Process, ...] = (), ours: Ours = OURS
) -> Decision:
    return decide([it, *others], ours, policy or Policy())[0]


@pytest.mark.parametrize(
    ("fields", "end", "kind", "why"),
    [
        ({"descends_from_guard": True}, True, Kind.OURS, "descends from our guard"),
        ({"pid": 500, "start_ticks": 9000}, True, Kind.OURS, "identity is in our journal"),
        ({"pid": 500, "start_ticks": 9001}, False, Kind.FOREIGN, "nothing shows that it is ours"),
        ({"run_id": "run-7"}, True, Kind.OURS, "carries our run id run-7"),
        ({"run_id": "run-8"}, False, Kind.FOREIGN, "nothing shows"),
        ({"sid": 600}, True, Kind.OURS, "in session 600 of our launch"),
        ({"sid": 600, "start_ticks": 9000}, False, Kind.FOREIGN, "nothing shows"),
        ({"descends_from_guard": True, "state": "Z"}, False, Kind.DEFUNCT, "its parent 1 has to collect it"),
        ({"descends_from_guard": True, "state": "D"}, False, Kind.STUCK, "no signal reaches it"),
        ({"descends_from_guard": True, "is_ancestor_of_agent": True}, False, Kind.ANCESTOR, "the agent runs below"),
        ({"pid": 1, "run_id": "run-7"}, False, Kind.ANCESTOR, "the agent runs below"),
        ({"pid": 43, "run_id": "run-7"}, False, Kind.ANCESTOR, "our guard"),
        ({"pid": 42, "run_id": "run-7"}, False, Kind.ANCESTOR, "the agent runs below"),
        (
            {"environ_readable": False, "uid": 1000},
            False,
            Kind.UNKNOWN,
            "environment cannot be read: unknown, not free",
        ),
        ({"fds_readable": False, "user": "eve"}, False, Kind.UNKNOWN, "of eve; its open files cannot be read"),
        ({"devices": ("/dev/nvidia0",), "user": "eve", "age_s": 90.0}, False, Kind.FOREIGN, "of eve, for 90 s, holds"),
        ({"devices": ("/dev/nvidia0",), "state": "D"}, False, Kind.FOREIGN, "uninterruptible in the kernel"),
        ({"devices": ("/dev/nvidia0",), "ppid": 42, "exe": PYTHON}, False, Kind.AGENT, "our agent asks"),
        ({"devices": ("/dev/nvidia0",), "exe": "/usr/bin/nvidia-smi"}, False, Kind.MONITOR, "in nobody's way"),
        (
            {"devices": ("/dev/nvidia0",), "cmdline": (PYTHON, "/usr/bin/nvitop")},
            False,
            Kind.MONITOR,
            "watches the cards",
        ),
        ({"listens": (30000,), "exe": "/usr/bin/dcgm-exporter"}, False, Kind.FOREIGN, "holds port 30000"),
    ],
)
def test_each_kind_of_process_has_its_decision_and_sentence(
    fields: dict[str, Any], end: bool, kind: Kind, why: str
) -> None:
    """Under the policy `ours` only proof ends a process; defunct, stuck, unknown and foreign ones are named as such."""
    said = decide_one(process(fields.pop("pid", 700), **fields))
    assert (said.end, said.kind) == (end, kind)
    assert why in said.why


def test_the_chain_above_the_agent_is_safe_however_it_looks() -> None:
    """Parents of the agent survive although they carry our run id, hold a GPU and are listed by a person."""
    chain = [
        process(42, ppid=41),
        process(41, ppid=40, run_id="run-7", devices=("/dev/nvidia0",), exe=PYTHON),
        process(40, ppid=1, sid=600, descends_from_guard=True),
    ]
    policy = replace(ENGINE, listed=(Identity(40), Identity(41, 9500)))
    assert {d.kind for d in decide(chain, OURS, policy)} == {Kind.ANCESTOR}


def test_a_defunct_process_names_the_parent_that_must_collect_it() -> None:
    """A zombie is not signalled; its parent is shown by pid and command line."""
    parent = process(800, cmdline=("bash", "start.sh"))
    said = decide_one(process(700, ppid=800, state="Z", run_id="run-7"), others=(parent,))
    assert said.why.endswith("its parent 800 (bash start.sh) has to collect it")


def test_a_session_number_that_came_round_again_is_not_ours() -> None:
    """A session whose leader has another start time than our launch belongs to somebody else."""
    member = process(700, sid=600)
    assert decide_one(member, others=(process(600, start_ticks=9100),)).kind is Kind.OURS
    assert decide_one(member, others=(process(600, start_ticks=9400),)).kind is Kind.FOREIGN


def test_somebody_elses_process_is_not_signalled_without_the_right_to() -> None:
    """An agent that is not root says that a process of ours under another user cannot be ended."""
    said = decide_one(process(700, uid=0, user="root", run_id="run-7"), ours=replace(OURS, agent_uid=1000))
    assert (said.end, said.kind) == (False, Kind.OURS)
    assert said.why.endswith("but it belongs to root")


def test_engine_ends_what_serves_and_nothing_that_only_looks_like_it() -> None:
    """`sglang serve` on the port and its renamed workers end; a test runner below a path with sglang survives."""
    table = [
        process(900, exe="/usr/bin/python3.11", cmdline=(PYTHON, "/usr/local/bin/sglang", "serve"), listens=(30000,)),
        process(901, ppid=900, cmdline=("sglang::detokenizer",)),
        process(902, ppid=77, exe="/usr/bin/python3.11", cmdline=("sglang::scheduler",), devices=("/dev/nvidia1",)),
        process(903, exe="/usr/bin/python3.11", cmdline=("python3", "/x/sglang/test/run_suite.py")),
        process(904, exe="/usr/bin/python3.12", cmdline=("sglang::scheduler",), devices=("/dev/nvidia1",)),
        process(905, exe="/usr/bin/python3.11", listens=(8888,)),
    ]
    said = decide(table, OURS, ENGINE)
    assert [d.end for d in said] == [True, True, True, False, False, False]
    assert said[0].why == "runs the target's interpreter and listens on port 30000"
    assert said[1].why.startswith("descends from 900, which runs the target's interpreter")
    assert said[2].why.endswith("holds /dev/nvidia1")
    assert not any(d.end for d in decide(table, OURS, Policy()))


def test_an_engine_above_the_agent_does_not_make_its_children_engine() -> None:
    """Where the agent itself runs below a process that serves, neither that nor the agent's siblings are ended."""
    table = [
        process(900, exe=PYTHON, listens=(30000,)),
        process(42, ppid=900),
        process(901, ppid=900, cmdline=("sh",)),
    ]
    assert not any(d.end for d in decide(table, OURS, ENGINE))


def test_a_person_names_a_process_not_a_number() -> None:
    """A listed pid ends its process; when the pid went to another process that one survives, and is reported."""
    table = [process(700), process(701)]
    listed = (Identity(700, 9500), Identity(701, 1), Identity(702))
    assert [d.end for d in decide(table, OURS, Policy(listed=listed))] == [True, False]
    assert absent(table, listed) == [
        "process 701 is another one than was named: it started at 9500 ticks",
        "process 702 is not there",
    ]


def test_the_agents_own_object_is_read_as_it_is_sent() -> None:
    """Unknown keys are left out, lists become tuples, null means none."""
    seen = {
        "pid": 7,
        "ppid": 1,
        "sid": 7,
        "start_ticks": 5,
        "uid": 0,
        "user": "root",
        "state": "S",
        "age_s": 1.5,
        "cmdline": ["a", "b"],
        "exe": None,
        "run_id": None,
        "environ_readable": True,
        "devices": None,
        "listens": [30000],
        "descends_from_guard": False,
        "is_ancestor_of_agent": False,
        "rss_kib": 9,
    }
    it = Process.from_agent(seen)
    assert (it.cmdline, it.devices, it.listens, it.identity) == (("a", "b"), (), (30000,), Identity(7, 5))


PIDS = st.integers(2, 60)
NAMES = st.sampled_from(["sglang::scheduler", "python3", PYTHON, "VLLM::EngineCore", "bash", "orchestrator"])
DECOY = st.builds(
    Process,
    pid=PIDS,
    ppid=st.integers(0, 60),
    start_ticks=st.integers(0, 8999),
    sid=st.integers(2, 60),
    uid=st.integers(0, 2),
    state=st.sampled_from(["S", "R", "D", "Z", "T"]),
    cmdline=st.lists(NAMES, max_size=3).map(tuple),
    exe=st.sampled_from([None, PYTHON, "/usr/bin/python3.11"]),
    run_id=st.sampled_from([None, "run-8", "run-77", ""]),
    environ_readable=st.booleans(),
    fds_readable=st.booleans(),
    devices=st.sampled_from([(), ("/dev/nvidia0",)]),
    listens=st.sampled_from([(), (30000,)]),
)
TABLE = st.lists(DECOY, max_size=25, unique_by=lambda p: p.pid)


@given(TABLE)
def test_no_decoy_is_ever_ended(table: list[Process]) -> None:
    """Whatever its name, interpreter, GPU or port: without proof a process survives the policy `ours`."""
    assert not any(d.end for d in decide(table, OURS, Policy(interpreters=ENGINE.interpreters, port=30000)))


@given(TABLE, st.booleans())
def test_names_decide_nothing(table: list[Process], is_engine: bool) -> None:
    """Renaming every process (as the engines do) changes no decision, save for the interpreter's own path."""
    policy = ENGINE if is_engine else Policy()
    renamed = [replace(p, cmdline=(p.cmdline[0], "sglang") if p.cmdline[:1] == (PYTHON,) else ("x",)) for p in table]
    before, after = decide(table, OURS, policy), decide(renamed, OURS, policy)
    assert [(d.end, d.kind) for d in before] == [(d.end, d.kind) for d in after]


@given(TABLE, PIDS, st.sets(PIDS))
def test_no_ancestor_of_ours_is_ever_ended(table: list[Process], agent: int, listed: set[int]) -> None:
    """Under every policy, whoever stands above the agent survives, and so do defunct and uninterruptible processes."""
    ours = replace(OURS, agent_pid=agent, run_ids=frozenset({"run-8"}))
    policy = replace(ENGINE, listed=tuple(Identity(pid) for pid in listed))
    parents = {p.pid: p.ppid for p in table}
    above, at = set(), agent
    while at in parents and at not in above:
        above.add(at)
        at = parents[at]
    ended = {d.pid for d in decide(table, ours, policy) if d.end}
    assert not ended & (above | {1, ours.guard_pid})
    assert all(p.state not in ("Z", "D") for p in table if p.pid in ended)


@given(TABLE)
def test_every_decision_has_a_sentence(table: list[Process]) -> None:
    """One decision per process, in order, each with words in it."""
    said = decide(table, OURS, ENGINE)
    assert [d.pid for d in said] == [p.pid for p in table]
    assert all(re.search(r"[a-z]{3}", d.why) for d in said)
