"""Which failures may be gone at the next start: what caused them was beside the server, not in it."""

from __future__ import annotations

from orchestrator.core.diagnosis.model import Diagnosis

PASSING: frozenset[str] = frozenset(
    {
        "port_in_use",  # somebody was quicker, or had not let go yet
        "oom_other_process",
        "host_oom",
        "device_memory_leak",
        "network_setup",
        "nccl_timeout",
        "peer_died",
        "peer_slow",
        "stale_lock",
        "worker_died_silently",
    }
)


def may_pass(diagnosis: Diagnosis | None) -> bool:
    """Whether the very same start can come out otherwise. What is not understood is not tried again: a start takes
    minutes, and its log is the better answer."""
    return diagnosis is not None and diagnosis.is_failure and diagnosis.category in PASSING
