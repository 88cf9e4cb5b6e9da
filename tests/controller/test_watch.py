"""What a server's events come to."""

from __future__ import annotations

from orchestrator.controller.watch import ServerWatch
from orchestrator.core.diagnosis import diagnose

VICTIM = [
    "[2026-11-29 15:49:34 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/x/torch/distributed/distributed_c10d.py", line 2700, in all_reduce',
    "    work.wait()",
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:15084: "
    "Connection reset by peer. This may be due to a remote worker crashing",
]


def watch_with(*events: tuple[str, dict[str, object]]) -> tuple[ServerWatch, list[str]]:
    told: list[str] = []
    watch = ServerWatch("l1", lambda _: None, told.append)
    for name, data in events:
        watch(name, {"launch_id": "l1", **data})
    return watch, told


def test_a_rank_that_ended_without_a_word_is_the_cause_and_not_its_victim() -> None:
    """The log holds only the complaint of the one that talked to it; the event says who went first."""
    rank = {"pid": 77, "title": "sglang::scheduler_TP1"}
    watch, told = watch_with(("rank_exit", rank), ("log", {"lines": VICTIM}))
    cause = watch.cause_of(diagnose(watch.text))
    assert cause is not None and cause.startswith(
        "sglang::scheduler_TP1 (pid 77) ended without a word; then: RuntimeError"
    )
    assert told == ["sglang::scheduler_TP1 (pid 77) ended"]


def test_a_rank_that_said_why_keeps_its_own_words() -> None:
    """An exception of its own is the cause, whoever ended first."""
    own = [VICTIM[0], '  File "/x/a.py", line 3, in f', "    g()", "NameError: name 'g' is not defined"]
    watch, _ = watch_with(("log", {"lines": own}), ("rank_exit", {"pid": 77, "title": "sglang::scheduler_TP0"}))
    assert watch.cause_of(diagnose(watch.text)) == "NameError: name 'g' is not defined"


def test_a_loss_is_told_once_and_never_while_we_end_it_ourselves() -> None:
    """Another launch's events are nobody's, and an end that we asked for is no loss."""
    watch, told = watch_with(("exit", {"exit_code": 0, "signal": None}), ("exit", {"exit_code": 1}))
    assert told == ["the server ended with exit code 0"] and watch.is_lost and watch.await_loss(0)
    quiet, told = watch_with()
    quiet.is_ending = True
    quiet("exit", {"launch_id": "l1", "exit_code": -9, "signal": 9})
    quiet("exit", {"launch_id": "other"})
    assert told == [] and quiet.is_lost


def test_a_broken_collective_is_blamed_on_one_that_took_part_in_it() -> None:
    """All of them end at once: neither the one that complains nor the detokenizer broke it, whoever was seen first."""
    complains = ("rank_exit", {"pid": 75, "title": "sglang::scheduler_TP0"})
    beside = ("rank_exit", {"pid": 78, "title": "sglang::detokenizer"})
    watch, _ = watch_with(beside, complains, ("log", {"lines": VICTIM}))
    assert str(watch.cause_of(diagnose(watch.text))).startswith("a peer of TP0 ended without a word; then: Runtime")
    watch("rank_exit", {"launch_id": "l1", "pid": 77, "title": "sglang::scheduler_TP1"})
    assert str(watch.cause_of(diagnose(watch.text))).startswith("sglang::scheduler_TP1 (pid 77) ended without a word")
