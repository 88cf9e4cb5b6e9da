"""Short logs of many kinds, plain and as collectors deliver them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.core.diagnosis import CATEGORIES, diagnose
from tests.core.diagnosis.kinds import KINDS, Kind

_BAR = "  0%|          | 0/12 [00:00<?, ?it/s]\r"


def _prefixed(prefix: str) -> Callable[[str], str]:
    return lambda text: "\n".join(prefix + line for line in text.split("\n"))


def _coloured(text: str) -> str:
    return "\n".join(f"\x1b[36m{line[:12]}\x1b[0m{line[12:]}\x1b[0m" for line in text.split("\n"))


def _with_bars(text: str) -> str:
    return "\n".join(_BAR + line if line and number % 5 == 2 else line for number, line in enumerate(text.split("\n")))


DELIVERIES: dict[str, Callable[[str], str]] = {
    "docker-compose": _prefixed("sglang  | "),
    "coloured docker-compose": _prefixed("\x1b[36msglang-1  |\x1b[0m "),
    "kubernetes stamps": _prefixed("2026-03-01T10:00:00.123456789Z "),
    "container runtime": _prefixed("2026-03-01T10:00:00.123456789Z stderr F "),
    "journald": _prefixed("Mar  1 10:00:00 node1 vllm[8707]: "),
    "kubectl": _prefixed("[pod/vllm-0/vllm] "),
    "mpirun": _prefixed("[1,0]<stderr>:"),
    "colours": _coloured,
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "progress bars on the same line": _with_bars,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_of_failure_is_named_with_its_line(kind: Kind) -> None:
    """The category fits, and the line named is the one that decides."""
    found = diagnose(kind.text)
    assert (found.category, found.category in CATEGORIES) == (kind.category, True), found.evidence
    assert kind.decides in (found.cause_line or "")
    assert (found.cause_line is None) == (not kind.decides)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_what_collectors_put_in_front_changes_nothing(delivery: str) -> None:
    """Category and line number are the same whatever wraps the lines."""
    for kind in KINDS:
        plain, wrapped = diagnose(kind.text), diagnose(DELIVERIES[delivery](kind.text))
        assert (wrapped.category, wrapped.cause_lineno) == (plain.category, plain.cause_lineno), kind.name


def test_ranks_that_interleave_line_by_line_keep_their_tracebacks() -> None:
    """Two workers print at the same time; the one that is only a victim is not named."""
    root = [
        "Traceback (most recent call last):",
        '  File "/v/model_loader/loader.py", line 7, in load_model',
        "    x()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ]
    victim = [
        "Traceback (most recent call last):",
        '  File "/v/distributed_c10d.py", line 7, in barrier',
        "    x()",
        "RuntimeError: [/p/pair.cc:534] Connection closed by peer [127.0.0.1]:41200",
    ]
    lines = []
    for number, (ours, theirs) in enumerate(zip(root, victim, strict=True)):
        pair = [
            f"(Worker_TP2 pid=13) ERROR 11-20 14:02:11 [multiproc_executor.py:694] {ours}",
            f"(Worker_TP0 pid=11) ERROR 11-20 14:02:12 [multiproc_executor.py:694] {theirs}",
        ]
        lines += pair if number % 2 else reversed(pair)
    found = diagnose("\n".join(lines))
    assert (found.category, found.rank) == ("oom_weights", "TP2")


def test_the_clock_decides_between_writers_not_the_place_in_the_file() -> None:
    """A cause that was flushed late still counts as the earlier one."""
    text = (
        "[2026-03-01 10:00:05 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/v/a.py", line 7, in f\n    x()\n'
        "RuntimeError: CUDA error: an illegal memory access was encountered\n\n"
        "[2026-03-01 10:00:01 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/v/a.py", line 7, in f\n    x()\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n\n'
        "[2026-03-01 10:00:06] SIGQUIT received. signum=None, frame=None. It usually means one child failed."
    )
    found = diagnose(text)
    assert (found.category, found.rank) == ("hardware_fault", "TP1")


def test_memory_that_others_hold_is_blamed_on_them_by_number() -> None:
    """Torch's figures name who holds the card; cause and remedy speak of them, and no allocator setting is accused."""
    found = diagnose(
        "[2026-03-02 10:11:41 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sglang/srt/model_executor/model_runner.py", line 610, in load_model\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 260.00 MiB. GPU 1 has a total capacity of "
        "23.65 GiB of which 130.00 MiB is free. Process 4711 has 19.80 GiB memory in use. Including non-PyTorch "
        "memory, this process has 3.70 GiB memory in use. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n"
    )
    assert found.category == "oom_other_process"
    assert found.cause == "other processes hold the memory of this GPU; torch lists process 4711: 19.80 GiB"
    assert "not this server's" in found.remedy
    assert not any("allocator" in evidence.note for evidence in found.evidence)
