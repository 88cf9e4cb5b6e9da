"""What a diagnosis says, as values: outcome, category, the deciding line and who is suspected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["failed", "hung", "healthy", "degraded", "wrong_output", "unknown"]
Certainty = Literal["certain", "likely", "possible"]
Phase = Literal["import", "args", "dist", "weights", "kv", "graphs", "warmup", "ready"]

OUTCOMES_THAT_ARE_CATEGORIES: tuple[Outcome, ...] = ("healthy", "degraded", "wrong_output", "unknown")

CATEGORIES: tuple[str, ...] = (
    "unsupported_arch",
    "feature_unsupported",
    "jit_toolchain",
    "oom_weights",
    "oom_kv_cache",
    "oom_graph_capture",
    "oom_other_process",
    "oom_runtime",
    "host_oom",
    "shm",
    "ulimit",
    "port_in_use",
    "network_setup",
    "nccl_p2p",
    "nccl_timeout",
    "peer_died",
    "peer_slow",
    "hang",
    "watchdog",
    "worker_died_silently",
    "stale_lock",
    "stale_compile_cache",
    "hardware_fault",
    "driver_mismatch",
    "illegal_memory_access",
    "device_assert",
    "graph_capture",
    "abi_mismatch",
    "model_files",
    "quantization",
    "argument_error",
    "speculative",
    "env_config",
    "pd_disaggregation",
    "process_start_method",
    "device_memory_leak",
    "disk_full",
    "patch_error",
    "healthy",
    "degraded",
    "wrong_output",
    "unknown",
)
"""Every name a diagnosis can carry."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line that speaks for or beside the verdict: its 1-based number, its text, and why it counts."""

    lineno: int
    line: str
    note: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict on one log.

    `cause_line` is part of line `cause_lineno` (1-based, lines end at a newline); both are None where no single
    line decides. `rank` is the label of the writer of that line, such as "TP1" or "rank5". `suspects` are the ids
    of changes whose files or names the cause touches. `last_phase` is the last start-up phase the log shows.
    """

    outcome: Outcome
    category: str
    cause_line: str | None = None
    cause_lineno: int | None = None
    rank: str | None = None
    certainty: Certainty = "possible"
    cause: str = ""
    remedy: str = ""
    suspects: tuple[str, ...] = ()
    last_phase: Phase | None = None
    signature: str | None = None
    evidence: tuple[Evidence, ...] = ()

    @property
    def is_failure(self) -> bool:
        """Whether the server is lost or stuck."""
        return self.outcome in ("failed", "hung")

    def to_json(self, file: str) -> dict[str, Any]:
        """The stable form for machine readers, under the name of the log that was read."""
        return {
            "file": file,
            "outcome": self.outcome,
            "category": self.category,
            "cause_line": self.cause_line,
            "cause_lineno": self.cause_lineno,
            "rank": self.rank,
            "certainty": self.certainty,
            "remedy": self.remedy,
            "suspects": list(self.suspects),
        }
