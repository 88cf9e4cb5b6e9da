"""Counters, GPUs, records and evidence come from values alone."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core.contamination import doubts_of_arm, doubts_of_pair
from orchestrator.core.measures import Goodput, Guard, Workload
from orchestrator.serving.counters import Counted, counted, parse_counters
from orchestrator.serving.evidence import evidence_of
from orchestrator.serving.gpus import GpuSeries, read_gpus, watch_argvs
from orchestrator.serving.record import Record, accept_length_of, latency_values, rate_values, record_of_probe
from orchestrator.serving.settings import comparable, treated_names

SGLANG = """
sglang:prompt_tokens_total{model_name="a"} %d
sglang:generation_tokens_total{model_name="a"} %d
sglang:num_requests_total{model_name="a"} %d
sglang:gen_throughput{model_name="a"} 12.5
"""


def sample(**values: Any) -> dict[str, Any]:
    base = {"repetition": 0, "stream": 0, "ok": True, "prompt_tokens": 100, "output_tokens": 33, "ttft_s": 0.1}
    timed = {"decode_s": 0.32, "decode_tokens": 32, "total_s": 0.42, "cached_tokens": 0, "finish_reason": "length"}
    return {**base, **timed, **values}


def reply(samples: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    flushes = [{"repetition": 0, "ok": True, "status": 200, "error": None}]
    found = samples if samples is not None else [sample(repetition=i) for i in range(3)]
    return {"samples": found, "flushes": flushes, "sweeps": [0.01, 0.01], "itl": {"p50_s": 0.01, "p99_s": 0.02}, **more}


def record(samples: list[dict[str, Any]] | None = None, counts: Counted | None = None, **observed: Any) -> Record:
    series = read_gpus(observed.pop("gpus", ()), None)
    whole = reply(samples, observed=observed)
    return record_of_probe(whole, counts or Counted(), series, Goodput(), "decode 1")


def doubts(samples: list[dict[str, Any]], found: Record, **workload: Any) -> list[str]:
    shape = Workload(output_tokens=33, prompt_tokens=100, **workload)
    return [d.kind for d in doubts_of_arm(evidence_of("arm", samples, found, shape, {})) if d.blocks]


def test_counters_are_differences_summed_over_their_labels() -> None:
    """Of a server that answered 4 of our requests and one of somebody else's."""
    text = 'vllm:x_total{a="1"} 2\nvllm:x_total{a="2"} 3.5\n# TYPE y\nbroken\n'
    assert parse_counters(text) == {"vllm:x_total": 5.5}
    found = counted({"before": SGLANG % (100, 50, 1), "after": SGLANG % (600, 250, 6)})
    assert (found.requests, found.prompt_tokens, found.output_tokens) == (5, 500, 200)
    assert (found.cache_queries, found.cache_hits) == (500, 0)
    assert counted({"before": None, "after": SGLANG % (1, 1, 1)}) == Counted()


def test_acceptance_of_vllm_counts_the_token_that_every_pass_gives() -> None:
    after = "vllm:spec_decode_num_drafts_total 100\nvllm:spec_decode_num_accepted_tokens_total 188\n"
    assert counted({"before": "", "after": after}).accept_length == pytest.approx(2.88)


def test_gpus_that_idle_between_requests_do_not_count() -> None:
    """Clocks of the looks in which the target's cards worked; the most memory of any look; reasons in words."""
    idle, busy = "0, 180, 31.5, 600, 0, 80000, 0x1\n", "0, 1965, 400.0, 600, 98, 81000, 0x4\n"
    other = "1, 500, 50, 600, 10, 99999, 0x0\n"
    looks = [{"stdout": idle + other}, {"stdout": busy + other}, {"stdout": "No devices were found"}]
    found = read_gpus(looks, [0])
    assert found == GpuSeries((1965.0,), (400.0,), (0.98,), 600.0, 81000.0, ("SwPowerCap",))
    assert read_gpus([{"stdout": "0, [N/A], [N/A], 600, 5, 10, [N/A]\n"}], None).sm_clocks_mhz == ()
    assert read_gpus([], None) == GpuSeries()
    assert ["throttle" in a[1] or "event" in a[1] for a in watch_argvs("nvidia-smi")] == [True, True, False]


def test_a_record_holds_rates_times_and_totals_of_good_requests() -> None:
    """A failed one counts in the error rate and nowhere else; percentiles are values that were seen."""
    samples = [sample(), sample(repetition=1, ttft_s=0.3), sample(repetition=2, ok=False, error="x", ttft_s=None)]
    found = record(samples)
    assert (found.requests, found.failed, found.prompt_tokens, found.output_tokens) == (3, 1, 200, 66)
    assert found.values["output_tps"] == pytest.approx(100.0)
    assert found.values["error_rate"] == pytest.approx(1 / 3)
    assert found.values["ttft_ms"] == pytest.approx(200.0) and found.values["ttft_p99_ms"] == pytest.approx(300.0)
    assert found.values["itl_p99_ms"] == pytest.approx(20.0)
    assert Record.from_json(found.to_json()) == found


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    """Of four requests in two seconds one is late, one slow and one failed: half a request a second is good."""
    samples = [sample(), sample(ttft_s=0.6), sample(decode_s=3.2), sample(ok=False)]
    found = rate_values(samples, 2.0, Goodput(ttft_ms=500, itl_ms=50))
    assert found["goodput_per_s"] == pytest.approx(0.5)
    assert "goodput_per_s" not in rate_values(samples, 2.0, Goodput())


def test_acceptance_is_a_ratio_of_sums() -> None:
    """Ten tokens at 1.0 and ninety at 3.0 are 2.5 tokens a pass, not 2.0."""
    samples = [sample(output_tokens=10, accept_length=1.0), sample(output_tokens=90, accept_length=3.0)]
    assert accept_length_of(samples) == pytest.approx(2.5)
    assert accept_length_of([sample()]) is None
    assert latency_values([], {}) == {}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"ok": False, "error": "error in the stream: CUDA error"}, "failures"),
        ({"output_tokens": 20}, "early_ends"),
        ({"output_tokens": 0}, "empty_outputs"),
        ({"cached_tokens": 90}, "cache_hits"),
    ],
)
def test_a_launch_is_invalid_for_what_one_of_its_requests_shows(change: dict[str, Any], kind: str) -> None:
    samples = [sample(), sample(repetition=1, **change)]
    assert kind in doubts(samples, record(samples))


def test_an_unfailing_launch_is_believed() -> None:
    samples = reply()["samples"]
    assert doubts(samples, record(samples, requests_logged=3)) == []


def test_requests_of_others_are_seen_in_counter_or_log() -> None:
    """The server's own counter decides where there is one; a log that does not show even ours tells nothing."""
    samples = reply()["samples"]
    assert doubts(samples, record(samples, requests_logged=4)) == ["foreign_requests"]
    assert doubts(samples, record(samples, Counted(requests=5.0), requests_logged=3)) == ["foreign_requests"]
    assert doubts(samples, record(samples, requests_logged=0)) == []


def test_a_flush_that_did_not_happen_is_found_by_the_first_request() -> None:
    samples = [sample(cached_tokens=99), sample(repetition=1), sample(repetition=2)]
    assert "flush" in doubts(samples, record(samples))
    assert doubts(samples, record(samples), reuse=True) == []


def test_tokens_that_every_prompt_begins_with_are_no_cache_hits() -> None:
    """The one that a model puts before every prompt is cached in all but the first stream."""
    samples = [sample(prompt_tokens=20, cached_tokens=1, stream=i) for i in range(1, 4)]
    assert doubts(samples, record(samples), concurrency=3) == []


def test_falling_clocks_make_a_launch_invalid() -> None:
    looks = [{"stdout": f"0, {clock}, 400, 600, 97, 9, 0x4\n"} for clock in (1965, 1960, 1700, 1650, 1600, 1580)]
    samples = reply()["samples"]
    assert doubts(samples, record(samples, gpus=looks)) == ["throttling"]


def test_a_guarded_error_rate_lets_few_failures_pass() -> None:
    """What the playbook allows is a caveat in both arms, and no reason to discard."""
    samples = [sample(repetition=i, ok=i > 0, error=None if i else "refused") for i in range(100)]
    evidence = [
        evidence_of(name, samples, None, Workload(output_tokens=33), {}, allowed_error_rate=0.02) for name in "ab"
    ]
    assert not [d for d in doubts_of_arm(evidence[0]) if d.blocks]
    assert not [d for d in doubts_of_pair(*evidence, is_latency=True) if d.blocks]


def test_settings_beyond_the_treatment_block_and_its_consequences_do_not() -> None:
    """An environment variable explains no setting; a flag explains itself, its kin, and what the engine derives."""
    base = {"disable_radix_cache": "False", "cuda_graph_bs": "[1]", "cuda_graph_max_bs": "8", "dtype": "auto"}
    now = {"disable_radix_cache": "True", "cuda_graph_bs": "[1, 2]", "cuda_graph_max_bs": "16", "dtype": "auto"}

    def kinds(flags: list[str], may: tuple[str, ...] = ()) -> list[str]:
        shape = Workload()
        a, b = (evidence_of(n, [], None, shape, r) for n, r in (("baseline", base), ("treatment", now)))
        found = doubts_of_pair(a, b, treated=treated_names(a.resolved, b.resolved, flags, may))
        return [d.sentence.split(" ")[0] for d in found if d.kind == "settings"]

    assert kinds([]) == ["cuda_graph_bs", "cuda_graph_max_bs", "disable_radix_cache"]
    assert kinds(["cuda-graph-max-bs"]) == ["disable_radix_cache"]
    assert kinds(["cuda-graph-max-bs"], ("disable_radix_cache",)) == []
    assert comparable({"port": 1, "random_seed": 7, "weight_version": "x", "tp_size": 2}) == {"tp_size": "2"}


def test_a_guardrail_is_a_number_a_percentage_or_a_mapping() -> None:
    from orchestrator.core.model import Playbook

    hypotheses = [{"id": "a", "claim": "c", "changes": [{"env": {"A": "1"}}]}]
    rails = {"ttft_p99_ms": 500, "itl_p99_ms": "10%", "memory_mib": {"limit": 90000}}
    found = Playbook.model_validate({"campaign": "c", "hypotheses": hypotheses, "guardrails": rails}).guardrails
    assert found == {
        "ttft_p99_ms": Guard(limit=500), "itl_p99_ms": Guard(worse=0.1), "memory_mib": Guard(limit=90000)
    }  # fmt: skip


def test_findings_depend_on_the_client_and_on_limits_but_not_on_what_is_measured_beside() -> None:
    """Another client or guardrail reopens; a ladder, or more patience while warming up, does not; and a playbook that
    says nothing of them has the facts it always had."""
    from orchestrator.controller.changesets import setting_facts
    from orchestrator.core.model import Playbook, Target

    def facts(**more: Any) -> dict[str, str]:
        hypotheses = [{"id": "a", "claim": "c", "changes": [{"env": {"A": "1"}}]}]
        playbook = Playbook.model_validate({"campaign": "c", "hypotheses": hypotheses, **more})
        return setting_facts(playbook, Target())

    usual = facts()
    assert usual["workload"] == '{"concurrency": 1, "output_tokens": 256, "prompt_tokens": 128, "warmup": 1}'
    assert usual["measure"] == '{"direction": "higher", "metric": "output_tps", "min_effect": "2%"}'
    assert facts(workload={"ladder": [2, 4], "warmup_most": 9}) == usual
    assert facts(workload={"reuse": True}) != usual
    assert "sglang" in facts(measure={"benchmark": {"tool": "sglang"}})["measure"]
    assert "ttft_p99_ms" in facts(guardrails={"ttft_p99_ms": 500})["measure"]
