"""What stands between a server and its port, judged from what the agent saw."""

from __future__ import annotations

from orchestrator.controller.reap import port_problem

FREE = {"listeners": [], "states": {}, "refused_plain": None, "refused_reuse": None}
WAITING = {"listeners": [], "states": {"TIME_WAIT": 2}, "refused_plain": "EADDRINUSE", "refused_reuse": None}


def test_time_wait_holds_up_only_a_server_that_cannot_reuse_the_address() -> None:
    """S12: it passes by itself, and there is no process to look for."""
    assert port_problem(FREE, reuses_address=False) is None
    assert port_problem(WAITING, reuses_address=True) is None
    problem = port_problem(WAITING, reuses_address=False)
    assert problem is not None and problem.may_pass and "TIME_WAIT" in problem.sentence


def test_a_listener_that_cannot_be_seen_is_a_refusal() -> None:
    """Another container's or another user's: nobody to name, and nothing to wait for."""
    unseen = {**FREE, "listeners": [{"address": "0.0.0.0", "pids": []}], "refused_reuse": "EADDRINUSE"}
    problem = port_problem(unseen, reuses_address=True)
    assert problem is not None and not problem.may_pass and "cannot be seen" in problem.sentence
    elsewhere = {**FREE, "listeners": [{"address": "10.1.2.3", "pids": []}]}
    assert port_problem(elsewhere, reuses_address=True) is None


def test_a_port_that_may_not_be_bound_is_a_refusal_and_one_in_use_passes() -> None:
    """Privileged ports, and an outgoing connection that happens to have the number."""
    problem = port_problem({**FREE, "refused_reuse": "EACCES"}, reuses_address=True)
    assert problem is not None and not problem.may_pass and "EACCES" in problem.sentence
    taken = {**FREE, "states": {"ESTABLISHED": 1}, "refused_reuse": "EADDRINUSE"}
    problem = port_problem(taken, reuses_address=True)
    assert problem is not None and problem.may_pass and "1 ESTABLISHED" in problem.sentence
