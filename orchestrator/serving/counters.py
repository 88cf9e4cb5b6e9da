"""What a server counts of itself, read before and after a measurement. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COUNTERS_PATH = "/metrics"

_LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(\{.*\})?\s+(\S+)")
_NAMES: Mapping[str, tuple[str, ...]] = {
    "requests": ("sglang:num_requests_total", "vllm:request_success_total"),
    "prompt_tokens": ("sglang:prompt_tokens_total", "vllm:prompt_tokens_total"),
    "output_tokens": ("sglang:generation_tokens_total", "vllm:generation_tokens_total"),
    "cache_queries": ("vllm:prefix_cache_queries_total", "sglang:prompt_tokens_total"),
    "cache_hits": ("vllm:prefix_cache_hits_total", "sglang:cached_tokens_total"),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
}
"""What is counted → the counter of each engine that knows it."""


@dataclass(frozen=True)
class Counted:
    """Differences over a measurement; None where the server has no such counter. `cache_hits` of `cache_queries`
    prompt tokens were in the prefix cache."""

    requests: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    cache_queries: float | None = None
    cache_hits: float | None = None
    drafts: float | None = None
    accepted_tokens: float | None = None

    @property
    def accept_length(self) -> float | None:
        """Tokens of a verify pass over all requests: the accepted ones and the one that every pass gives."""
        if not self.drafts or self.accepted_tokens is None:
            return None
        return 1 + self.accepted_tokens / self.drafts


def parse_counters(text: str) -> dict[str, float]:
    """Prometheus' text → name → sum over all labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        found[match[1]] = found.get(match[1], 0.0) + value
    return found


def counted(counters: Mapping[str, Any]) -> Counted:
    """`counters` of the agent's `Observed`. A counter that appears only afterwards began at zero."""
    before, after = counters.get("before"), counters.get("after")
    if before is None or after is None:
        return Counted()
    first, last = parse_counters(str(before)), parse_counters(str(after))
    values: dict[str, float | None] = {}
    for what, names in _NAMES.items():
        name = next((n for n in names if n in last), None)
        values[what] = None if name is None else last[name] - first.get(name, 0.0)
    if values["cache_hits"] is None and values["cache_queries"] is not None and "sglang:prompt_tokens_total" in last:
        values["cache_hits"] = 0.0  # the counter of hits is made by the first of them
    return Counted(**values)
