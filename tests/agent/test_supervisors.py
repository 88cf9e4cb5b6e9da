"""Who belongs to a service, from processes as they were seen: the cases that hosts really have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.supervisors import Chain, Kin, Unclear, is_interactive, trace, unit_of

INIT = Kin(1, 0, 0, "systemd", ["/sbin/init"])
SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"


def chain(*kin: Kin, listeners: set[int] | None = None, own: set[int] = frozenset()) -> Chain | Unclear:  # type: ignore[assignment]
    """`kin` from process 1 down; each is the parent of the next, and the last one listens."""
    table = {INIT.pid: INIT}
    above = 1
    for one in kin:
        table[one.pid] = one._replace(ppid=above)
        above = one.pid
    return trace(listeners or {above}, table, own)


def kin(pid: int, comm: str, *cmdline: str, uid: int = 1000, cgroup: str = SESSION) -> Kin:
    return Kin(pid, 0, uid, comm, list(cmdline) or [comm], cgroup)


SERVER = kin(9, "python", "python", "-m", "sglang.launch_server")
SCRIPT = kin(8, "serve.sh", "/bin/sh", "./serve.sh")


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        ([kin(5, "tmux: server", "tmux", "new"), kin(6, "bash", "-bash"), SCRIPT], [8]),
        ([kin(5, "sshd", "sshd: me@pts/1", uid=0), kin(6, "bash", "-bash"), SCRIPT], [8]),
        ([kin(5, "sshd", "sshd: me@notty"), kin(6, "bash", "bash", "-c", "cd /srv && ./serve.sh"), SCRIPT], [6, 8]),
        ([kin(5, "screen", "SCREEN", "-dmS", "x"), kin(7, "bash", "bash", "outer.sh"), SCRIPT], [7, 8]),
        ([kin(5, "cron", "/usr/sbin/cron", uid=0), kin(7, "sh", "/bin/sh", "-c", "/srv/serve.sh"), SCRIPT], [7, 8]),
        ([SCRIPT], [8]),  # its terminal is long gone
        ([], []),  # nohup python …
        ([kin(5, "sudo", "sudo", "-u", "svc", "bash", "serve.sh", uid=0), SCRIPT], [8]),
    ],
)
def test_what_belongs_to_the_service_ends_at_logins_terminals_and_schedulers(
    above: list[Kin], expected: list[int]
) -> None:
    assert chain(*above, SERVER) == Chain(expected, 9)


@pytest.mark.parametrize(
    ("above", "cgroup", "why", "hint"),
    [
        ([], "0::/system.slice/sglang.service\n", "systemd runs it as sglang.service", "systemd: sglang.service"),
        (
            [SCRIPT],
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service\n",
            "systemd runs it as llm.service",
            "user: true",
        ),
        ([kin(5, "supervisord", "supervisord")], SESSION, "supervisord (pid 5) would start it again", "stop it there"),
        ([kin(5, "runsv", "runsv", "llm", uid=0)], SESSION, "runsv (pid 5)", "stop it there"),
        ([kin(5, "watch.sh", "bash", "watch.sh", uid=0)], SESSION, "belongs to another user", "sudo: true"),
    ],
)
def test_what_another_manager_would_start_again_is_refused_with_the_way_out(
    above: list[Kin], cgroup: str, why: str, hint: str
) -> None:
    told = chain(*(one._replace(cgroup=cgroup) for one in (*above, SERVER)))
    assert isinstance(told, Unclear) and why in told.why and hint in told.hint


def test_a_login_that_systemd_runs_is_not_the_services_own_unit() -> None:
    """An orphan of an ssh connection without logind lies in ssh.service, and is a process all the same."""
    orphan = SERVER._replace(cgroup="0::/system.slice/ssh.service\n")
    assert chain(orphan) == Chain([], 9)
    assert unit_of("12:pids:/system.slice/docker.service\n0::/\n") is None


def test_process_1_of_a_container_is_never_stopped_from_inside() -> None:
    table = {1: Kin(1, 0, 0, "bash", ["bash", "serve.sh"]), 7: Kin(7, 1, 0, "python", ["python"])}
    told = trace({1}, table, set())
    assert isinstance(told, Unclear) and "docker" in told.hint
    told = trace({7}, table, set())
    assert isinstance(told, Unclear) and "the script that runs it" in told.why
    for idle in (["sleep", "infinity"], ["sh", "-c", "sleep infinity"], ["bash"], ["/sbin/tini", "--", "x"]):
        assert trace({7}, {**table, 1: table[1]._replace(cmdline=idle)}, set()) == Chain([], 7)


def test_ancestors_of_ours_are_never_part_of_it() -> None:
    assert chain(kin(5, "pytest", "pytest"), SCRIPT, SERVER, own={5}) == Chain([8], 9)


def test_workers_that_listen_lead_to_the_process_that_made_them() -> None:
    worker = kin(12, "python", "python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork")
    assert chain(SCRIPT, SERVER, worker) == Chain([8], 9)
    assert chain(SCRIPT, SERVER, kin(12, "x", "sglang::worker"), listeners={12}) == Chain([8], 9)
    assert chain(SCRIPT, SERVER, kin(12, "python", "python", "x"), listeners={9, 12}) == Chain([8], 9)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-bash"], True), (["bash"], True), (["/bin/zsh", "-l"], True), (["bash", "--login"], True),
        (["bash", "-c", "x"], False), (["bash", "-lc", "x"], False), (["sh", "serve.sh"], False), (["python"], False),
        ([], False),
    ],
)  # fmt: skip
def test_a_shell_that_a_person_types_into_has_neither_script_nor_command(words: list[str], expected: bool) -> None:
    assert is_interactive(words) is expected


_COMMS = st.sampled_from(["sshd", "bash", "python", "tmux: server", "sudo", "runsv", "systemd", "serve.sh"])


@given(st.lists(st.tuples(_COMMS, st.sampled_from([0, 1000])), max_size=8), st.sets(st.integers(2, 9)))
def test_the_chain_is_unbroken_and_holds_neither_process_1_nor_ours(line: list[tuple[str, int]], own: set[int]) -> None:
    """Whatever lies above: the chain is consecutive, ends at the server, and leaves out process 1 and what is ours."""
    above = [kin(pid, comm, comm, "x", uid=uid) for pid, (comm, uid) in enumerate(line, start=2)]
    told = chain(*above, kin(20, "python", "python", "serve"), own=own)
    if isinstance(told, Chain):
        assert told.main == 20 and 1 not in told.above and not own & set(told.above)
        assert told.above == [one.pid for one in above][len(above) - len(told.above) :]
