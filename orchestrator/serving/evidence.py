"""What was recorded of one arm, as the rules of contamination take it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.core.contamination import ArmEvidence
from orchestrator.core.records import Sample
from orchestrator.serving.settings import comparable

if TYPE_CHECKING:
    from orchestrator.core.measures import Workload
    from orchestrator.serving.record import Record


def evidence_of(
    name: str,
    samples: Sequence[Mapping[str, Any]],
    record: Record | None,
    workload: Workload,
    resolved: Mapping[str, Any] | None,
    *,
    allowed_error_rate: float = 0.0,
) -> ArmEvidence:
    """`record` None: a launch of an earlier version, of which only the samples are known."""
    measured = [Sample.model_validate(s) for s in samples if s["repetition"] >= 0]
    is_probe = record is None or record.tool == "decode"
    shared: dict[str, Any] = {
        "samples": measured,
        "asked_output_tokens": workload.output_tokens if is_probe else None,
        "asked_prompt_tokens": None if workload.prompt is not None else float(workload.prompt_tokens),
        "is_reuse_declared": workload.reuse or (workload.prompt is not None and workload.concurrency > 1),
        "resolved": comparable(resolved),
        "is_speculative": bool((resolved or {}).get("speculative_algorithm")),
        "allowed_error_rate": allowed_error_rate,
    }
    if record is None:
        return ArmEvidence(name, **shared)
    first = next((s for s in measured if s.repetition == 0 and s.stream == 0 and s.ok), None)
    return ArmEvidence(
        name,
        **shared,
        cache_queries=record.cache_queries,
        cache_hits=record.cache_hits,
        first_cached_tokens=first.cached_tokens if first is not None and record.flushes else None,
        flushes_refused=sum(not is_ok for is_ok in record.flushes),
        own_requests=record.own_requests or None,
        requests_served=None if record.tool == "command" else record.requests_served,
        client=record.client,
        dataset=record.dataset,
        retokenised_output_tokens=record.retokenised_output_tokens,
        sm_clocks_mhz=record.sm_clocks_mhz,
        throttle_reasons=record.throttle_reasons,
        power_w=record.power_w,
        power_limit_w=record.power_limit_w,
        utilisation=record.utilisation,
        accept_length=record.values.get("accept_length"),
        sweeps=record.sweeps,
        client_load=record.client_load,
    )
