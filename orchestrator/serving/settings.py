"""Settings as servers report them: which may differ between two launches, and which tell of unequal servers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator.serving.configuration import flag_key

_OF_A_LAUNCH = frozenset(
    {
        "api_key", "admin_api_key", "dist_init_addr", "download_dir", "host", "launch_id", "nccl_port", "port",
        "random_seed", "served_model_name", "start_time", "startup_time", "status", "uptime", "weight_version",
        "last_gen_throughput", "avg_spec_accept_length", "max_total_num_tokens", "log_level",
        "log_level_http", "metrics_port", "crash_dump_folder", "kv_events_config", "decode_log_interval",
    }
)  # fmt: skip
"""Different in every launch, or compared elsewhere with a tolerance of its own (the cache's size)."""
_DERIVED = frozenset(
    {
        "attention_backend", "chunked_prefill_size", "cuda_graph_bs", "cuda_graph_max_bs", "decode_attention_backend",
        "disable_cuda_graph_padding", "disable_overlap_schedule", "max_prefill_tokens", "max_running_requests",
        "mem_fraction_static", "moe_a2a_backend", "moe_runner_backend", "page_size", "prefill_attention_backend",
        "sampling_backend", "schedule_conservativeness", "swa_full_tokens_ratio",
    }
)  # fmt: skip
"""What engines derive from other flags by themselves: with a flag that was changed this is its consequence."""
_SHORTEST_WORD = 4


def comparable(resolved: Mapping[str, Any] | None) -> dict[str, str]:
    """Settings that two launches of one configuration share, as text."""
    return {name: str(value) for name, value in (resolved or {}).items() if name not in _OF_A_LAUNCH}


def treated_names(
    baseline: Mapping[str, str], treatment: Mapping[str, str], flags: Iterable[str], may_differ: Sequence[str]
) -> list[str]:
    """Names that may differ: the flags of the treatment, what shares a word with one, what the playbook allows, and,
    where a flag was changed, what the engine derives."""
    keys = [flag_key(flag) for flag in flags]
    words = {word for key in keys for word in key.split("_") if len(word) >= _SHORTEST_WORD} - _COMMON
    allowed = {*keys, *map(flag_key, may_differ)}
    if keys:
        allowed |= _DERIVED
    allowed |= {name for name in baseline.keys() & treatment.keys() if words & set(name.split("_"))}
    return sorted(allowed)


_COMMON = frozenset(
    {"disable", "enable", "size", "mode", "path", "backend", "type", "dtype", "model", "token", "tokens"}
)
"""Words that settings share without having anything to do with one another."""
