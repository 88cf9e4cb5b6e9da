"""Ways in which a benchmark was confidently wrong, with their numbers, and what is said about each."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from orchestrator.core.contamination import ArmEvidence, Doubt, cache_hits, doubts_of_arm, doubts_of_pair
from orchestrator.core.noise import Noise, between_launch_noise, which_decides_sooner
from orchestrator.core.records import Sample, Verdict
from orchestrator.core.soundness import (
    Point,
    acceptance,
    caveats,
    claim_within_null,
    log_windows,
    quality_difference,
    smoke_tests,
    stream_error,
    sweep_row,
    sweeps_agree,
    too_few_requests,
    uninitialised,
    unverified,
    wrong_order,
)
from orchestrator.core.stats import Judgement, LaunchValue, judge, launch_value

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "fixtures/samples/h200-launches.jsonl").read_text().splitlines()
]


def samples(count: int = 4, **values: Any) -> list[Sample]:
    return [Sample.model_validate({"repetition": i, **values}) for i in range(count)]


def arm(name: str = "treatment", **values: Any) -> ArmEvidence:
    values.setdefault("samples", samples(prompt_tokens=100, output_tokens=128))
    return ArmEvidence(name, **values)


def of_arm(**values: Any) -> dict[str, Doubt]:
    return {doubt.kind: doubt for doubt in doubts_of_arm(arm(**values))}


def of_pair(a: dict[str, Any], b: dict[str, Any], **options: Any) -> dict[str, Doubt]:
    return {doubt.kind: doubt for doubt in doubts_of_pair(arm("baseline", **a), arm(**b), **options)}


def compare(a: list[float], b: list[float], **options: Any) -> Judgement:
    defaults: dict[str, Any] = {"direction": "higher", "min_effect": 0.02, "max_launches": 3}
    arms = [[LaunchValue(value) for value in values] for values in (a, b)]
    return judge(*arms, **{**defaults, **options})


def real(pair: str, name: str, metric: str, most: int = 9) -> list[float]:
    """Values of real launches, each the ratio of sums of its eight samples of 256 tokens."""
    rows = [row for row in ROWS if row["pair"] == pair and row["arm"] == name][:most]
    return [launch_value((256, 256 / rate) for rate in row[metric]).value for row in rows]


def test_an_arm_without_fault_raises_no_doubt() -> None:
    """Nothing is doubted where nothing is wrong, in one arm and between two."""
    assert of_arm(asked_output_tokens=128, cache_queries=400.0, cache_hits=3.0, first_cached_tokens=0) == {}
    assert of_pair({}, {}) == {}


def test_m01_prefix_cache_hits_on_a_random_workload() -> None:
    """Hits beyond one in a hundred block, with their share, unless the workload declares them."""
    said = of_arm(cache_queries=1000.0, cache_hits=460.0)["cache_hits"]
    assert said.blocks
    assert "46% of prompt tokens came from the prefix cache (460 of 1000)" in said.sentence
    assert not of_arm(cache_queries=1000.0, cache_hits=460.0, is_reuse_declared=True)
    assert "cache_hits" in of_arm(samples=samples(prompt_tokens=100, cached_tokens=40, output_tokens=128))
    assert cache_hits(arm(cache_queries=1000.0, cache_hits=9.0)) is None


def test_m02_a_flush_is_verified_by_the_first_request() -> None:
    """Cached tokens in the first request show that the flush did not happen, whatever the command said."""
    assert "the first request found 64 cached tokens" in of_arm(first_cached_tokens=64)["flush"].sentence
    assert not of_arm(first_cached_tokens=0)


def test_m03_settings_are_compared_as_the_servers_resolved_them() -> None:
    """Prefix caching that one server switched off by itself is a difference beyond the treatment."""
    on, off = {"prefix_caching": "on", "dtype": "bf16"}, {"prefix_caching": "off", "dtype": "bf16"}
    said = of_pair({"resolved": on}, {"resolved": off})["settings"].sentence
    assert said == "prefix_caching is on in baseline, off in treatment, beyond the treatment"
    assert not of_pair({"resolved": on}, {"resolved": off}, treated=["prefix_caching"])


def test_m04_the_order_of_measuring_is_recorded_and_judged() -> None:
    """Warm-up, flush, measure; a flush after the warm-up that lets requests race, or none at all, is said."""
    assert wrong_order(["warm-up", "flush", "measure"]) is None
    assert wrong_order(["warm-up", "flush", "prime", "measure"]) is None
    for phases in (["flush", "warm-up", "measure"], ["warm-up", "measure"], []):
        assert wrong_order(phases) is not None


@pytest.mark.parametrize(("gain", "is_rejected"), [(0.22, True), (0.24, True), (0.26, False)])
def test_m05_a_claim_within_the_null_pair_is_rejected(gain: float, is_rejected: bool) -> None:
    """A gain of 21 to 24 % that also shows between equal arms is none; a larger one is not touched."""
    said = claim_within_null(gain, [0.02, -0.24])
    assert (said is not None) is is_rejected


def test_m06_warm_up_goes_on_until_two_sweeps_agree() -> None:
    """581.81, 202.42, 196.46 ms: the second sweep is not enough, the third is."""
    sweeps = [581.81, 202.42, 196.46]
    assert [sweeps_agree(sweeps[:n]) for n in (1, 2, 3)] == [False, False, True]


def test_m07_no_verdict_rests_on_one_request() -> None:
    """39 against 43 tok/s in whole requests is the compiler's time before the first token; decoding is 44.5 in both."""
    tokens = 256.0
    wholes = [launch_value([(tokens, tokens / 44.5 + ttft_s)]).value for ttft_s in (0.81, 0.2)]
    assert wholes == pytest.approx([39.0, 43.0], abs=0.1)
    assert launch_value([(tokens, tokens / 44.5)]).value == pytest.approx(44.5)
    assert too_few_requests(samples(1)) is not None
    assert too_few_requests(samples(2)) is None


def test_m08_falling_clocks_make_a_measurement_invalid() -> None:
    """1965 → 1580 MHz within a window is throttling; arms at clocks more than 2 % apart do not compare."""
    falling = [1965.0 - 385.0 * min(i, 20) / 20 for i in range(40)]
    said = of_arm(sm_clocks_mhz=falling, throttle_reasons=["SwPowerCap"])["throttling"]
    assert said.blocks
    assert "to 1580 MHz" in said.sentence
    assert "SwPowerCap" in said.sentence
    steady = {"sm_clocks_mhz": [1965.0] * 8}
    assert "(-3.1%)" in of_pair(steady, {"sm_clocks_mhz": [1905.0] * 8})["clocks"].sentence
    assert not of_pair(steady, {"sm_clocks_mhz": [1950.0] * 8})


def test_m09_no_valid_sample_is_an_end_of_its_own() -> None:
    """A rule that discards everything leaves no number, no zero and no win."""
    said = of_arm(samples=samples(3, ok=False, error="throttled"))
    assert "no valid sample among 3" in said["no_samples"].sentence
    nothing = compare([], [100.0])
    assert (nothing.verdict, nothing.effect) == (Verdict.inconclusive, None)


def test_m10_busy_at_little_power_is_flagged() -> None:
    """98 % busy at 270 of 575 W is a fallback and is said; 95 % at 460 W is not. Neither blocks."""
    said = of_arm(utilisation=[0.98] * 5, power_w=[270.0] * 5, power_limit_w=575.0)["power_mismatch"]
    assert not said.blocks
    assert "98% busy at 270 of 575 W" in said.sentence
    assert not of_arm(utilisation=[0.95] * 5, power_w=[460.0] * 5, power_limit_w=575.0)


def test_m11_a_client_that_cannot_keep_up_is_found_by_the_server() -> None:
    """44 tok/s at the client where the server made 486 is a measurement of the client."""
    assert "(-91%)" in of_arm(client_tps=44.0, server_tps=486.0)["client_bound"].sentence
    assert not of_arm(client_tps=470.0, server_tps=486.0)


def test_m12_only_results_of_the_same_client_compare() -> None:
    """The client and its version are named, and two different ones block."""
    said = of_pair({"client": "decode 1"}, {"client": "openai 2.1"})["clients"].sentence
    assert said == "measured by different clients: baseline by decode 1, treatment by openai 2.1"


def test_m13_an_error_inside_a_stream_is_a_failure() -> None:
    """Three tokens, then an error, then [DONE]: not a completed request, however short."""
    token = 'data: {"choices": [{"text": "x"}]}'
    stream = [token] * 3 + ['data: {"error": {"message": "KV cache pool is full", "code": 503}}', "data: [DONE]"]
    assert stream_error(stream) == "KV cache pool is full"
    assert stream_error([*[token] * 3, "", ": ping", "data: [DONE]"]) is None
    assert stream_error(['data: {"error": "out of memory"}']) == "out of memory"
    assert stream_error(["data: {broken"]) == "unreadable event '{broken'"


def test_m14_a_server_that_refuses_work_is_not_faster() -> None:
    """Failures are counted with the total, block their arm, and keep it from winning on latency."""
    some = [*samples(6, output_tokens=128), *samples(2, ok=False, error="HTTP 429")]
    assert "6/8 requests succeeded; 2 × HTTP 429" in of_arm(samples=some)["failures"].sentence
    assert "baseline 4/4, treatment 6/8" in of_pair({}, {"samples": some})["unequal_failures"].sentence
    assert "unequal_failures" in of_pair({"samples": some}, {"samples": some}, is_latency=True)


def test_m15_outputs_of_either_128_or_0_tokens_fail() -> None:
    """Aggregates over answers and non-answers are refused, with the spread of the counts."""
    mixed = [*samples(5, output_tokens=128), *samples(3, output_tokens=0)]
    said = of_arm(samples=mixed)["empty_outputs"].sentence
    assert "3 of 8 answers are empty (output tokens min 0, median 128, max 128)" in said


def test_m16_text_that_holds_far_fewer_tokens_than_counted_is_invalid() -> None:
    """6400 tokens by the server, 32 in the text: the output was buffered."""
    counted = samples(50, output_tokens=128)
    said = of_arm(samples=counted, retokenised_output_tokens=32)["retokenised"].sentence
    assert "the server counted 6400 output tokens, the text holds 32" in said
    assert not of_arm(samples=counted, retokenised_output_tokens=6350)


def test_m17_a_launch_is_a_ratio_of_sums() -> None:
    """100 tokens in 1 s and 100 in 3 s are 50 tok/s, not the mean of 100 and 33."""
    assert launch_value([(100, 1), (100, 3)]).value == 50


def test_m18_half_the_input_work_blocks() -> None:
    """Lengths sampled from 0 to 1024 against lengths of 1024: measured means of 512 and 1024 tokens do not compare."""
    ranged = [Sample(repetition=i, prompt_tokens=i + 12, output_tokens=128) for i in range(1000)]
    said = of_pair({"samples": ranged}, {"samples": samples(1000, prompt_tokens=1024, output_tokens=128)})
    assert fmean(s.prompt_tokens or 0 for s in ranged) == pytest.approx(512, abs=1)
    assert "511.5 prompt tokens a request in baseline, 1024 in treatment (+100.2%)" in said["unequal_work"].sentence


def test_m19_measured_lengths_are_compared_never_nominal_ones() -> None:
    """A prompt of 4096 tokens that holds 801 is said with both numbers; two arms of 801 still compare."""
    short = samples(prompt_tokens=801, output_tokens=128)
    said = of_arm(samples=short, asked_prompt_tokens=4096)["nominal_lengths"]
    assert "prompts hold 801 tokens, 4096 were asked for (-80%)" in said.sentence
    assert not said.blocks
    assert not of_pair({"samples": short}, {"samples": short})


def test_m20_an_arm_whose_answers_end_early_cannot_win() -> None:
    """The output length is a maximum: early ends are counted, and unequal totals block."""
    early = samples(prompt_tokens=100, output_tokens=90)
    assert (
        "4 of 4 answers ended early: 90 of 128 tokens"
        in of_arm(samples=early, asked_output_tokens=128)["early_ends"].sentence
    )
    assert "unequal_work" in of_pair({}, {"samples": early})


def test_m21_measured_input_is_recorded_beside_what_was_asked() -> None:
    """10000 tokens asked, 5827.5 sent: said; and more than 1 % between the arms blocks."""
    sent = [Sample(repetition=i, prompt_tokens=5827 + i % 2, output_tokens=128) for i in range(4)]
    assert (
        "5827.5 tokens, 10000 were asked" in of_arm(samples=sent, asked_prompt_tokens=10000)["nominal_lengths"].sentence
    )
    near, far = (samples(prompt_tokens=n, output_tokens=128) for n in (5800, 5700))
    assert "unequal_work" not in of_pair({"samples": sent}, {"samples": near})
    assert "unequal_work" in of_pair({"samples": sent}, {"samples": far})


def test_m22_a_token_cap_that_hits_one_arm_blocks() -> None:
    """33.4 % of answers cut off against 0 %: the arms are not comparable; five points or less pass."""

    def reasons(cut: int) -> list[Sample]:
        return [
            Sample(repetition=i, prompt_tokens=9, output_tokens=9, finish_reason="length" if i < cut else "stop")
            for i in range(1000)
        ]

    said = of_pair({"samples": reasons(334)}, {"samples": reasons(0)})["cap_hits"].sentence
    assert "33.4 % of answers cut off in baseline, 0.0 % in treatment" in said
    assert not of_pair({"samples": reasons(40)}, {"samples": reasons(0)})


def test_m23_speculation_that_accepts_nothing_is_ineffective() -> None:
    """An acceptance length of exactly 1.00 fails the arm; 1.9 does not, and without speculation nothing is asked."""
    said = of_arm(is_speculative=True, accept_length=1.0)["speculation"]
    assert said.blocks
    assert "speculation is ineffective, acceptance length 1.00" in said.sentence
    assert not of_arm(is_speculative=True, accept_length=1.9)
    assert not of_arm(is_speculative=False, accept_length=1.0)


def test_m24_acceptance_is_said_with_its_estimator() -> None:
    """The same requests give 72.70 % by tokens and 66.39 % by requests: both are shown, each with its name."""
    said = acceptance([(7901, 10000), (5377, 10000), (8532, 10000)])
    assert said.token_weighted == pytest.approx(said.request_weighted)
    weighted = acceptance([(7585, 10000), (1139, 2000)])
    assert weighted.sentence == "acceptance 72.70% token-weighted, 66.40% request-weighted"
    with pytest.raises(ValueError, match="nothing was drafted"):
        acceptance([(0, 0)])


def test_m25_speculation_is_not_judged_on_random_tokens() -> None:
    """No draft predicts random tokens: such a workload blocks a verdict on speculation, and only that."""
    assert "random tokens" in of_arm(is_speculative=True, accept_length=1.4, dataset="random")["speculation"].sentence
    assert not of_arm(is_speculative=False, dataset="random")


@pytest.mark.parametrize(("has_passed", "word"), [(False, "failed"), (None, "was not made")])
def test_m26_faster_but_wrong_is_no_win(has_passed: bool | None, word: str) -> None:
    """Speed counts only beside a passed check of the outputs."""
    said = unverified(has_passed)
    assert said is not None
    assert said.blocks
    assert word in said.sentence


def test_m27_parity_that_was_never_checked_is_unverified() -> None:
    """77.7 tok/s without a check stays `unverified`; with a passed one nothing is said."""
    said = unverified(None)
    assert said is not None
    assert said.kind == "unverified"
    assert unverified(True) is None


def test_m28_a_quality_difference_below_the_null_floor_is_none() -> None:
    """Equal weights differ by 0.33 points between passes: as much is no difference, three times as much is one."""
    assert quality_difference(87.10, 86.77, 0.34) is None
    said = quality_difference(87.10, 86.10, 0.33)
    assert said is not None
    assert "equal passes differ by 0.33" in said.sentence


def test_m29_weights_that_were_not_loaded_are_a_failed_precondition() -> None:
    """The only trace of fluent nonsense is a line of the log, and it blocks."""
    line = "Some weights are not initialized from checkpoint: layers.0.mlp.experts.w13_weight_scale"
    said = uninitialised(["Loading safetensors: 100%", line])
    assert said is not None
    assert "w13_weight_scale" in said.sentence
    assert uninitialised(["Loading weights took 12 s"]) is None


def test_m30_three_launches_under_17_percent_of_noise_conclude_nothing() -> None:
    """11042, 11077, 14775 tok/s (CV 17.4 %) and 10 % more: no conclusion. The row with CV 3.5 % does tell 15 %."""
    wild = [11042.0, 11077.0, 14775.0]
    assert fmean(wild) == pytest.approx(12298, abs=1)
    for factor in (0.9, 1.1):
        said = compare(wild, [v * factor for v in wild])
        assert said.verdict is Verdict.inconclusive
        assert said.more_launches is not None
        assert said.more_launches > 10
    calm = [96.5, 100.0, 103.5]
    assert compare(calm, [v * 1.15 for v in calm]).verdict is Verdict.improved
    assert log_windows("log", 3) is not None
    assert log_windows("requests", 3) is None


def test_m31_a_sound_gain_is_kept_with_its_caveats() -> None:
    """171.8 against 182.8 with 1 % of stored noise is +6.4 %; the order and the pools are said beside it."""
    said = compare([171.8], [182.8], stored=Noise(0.01, 10))
    assert (said.verdict, said.screened) == (Verdict.improved, True)
    assert said.effect_pct == pytest.approx(6.4, abs=0.05)
    beside = caveats(["A", "A", "A", "B", "B", "B"], (412_000, 409_500))
    assert [d.kind for d in beside] == ["not_interleaved", "kv_pool"]
    assert not any(d.blocks for d in beside)
    assert caveats(["A", "B", "B", "A"], (412_000, 412_000)) == []


def test_m32_a_smoke_test_holds_the_largest_point_and_a_crash_stays_one() -> None:
    """The widest and the longest point of a sweep are tried first; a crash is a row of its own, not 0 tok/s."""
    sweep = [Point(1, 128), Point(2, 128), Point(64, 128), Point(8, 8192)]
    assert smoke_tests(sweep) == [Point(64, 128), Point(8, 8192)]
    assert smoke_tests([]) == []
    assert sweep_row(Point(2, 128), None, "illegal memory access") == "2 × 128 tokens: CRASH: illegal memory access"
    assert sweep_row(Point(2, 128), None, None).endswith("no valid samples")
    assert sweep_row(Point(1, 128), 44.46, None).endswith("44.5")


@pytest.mark.parametrize(("metric", "effect_pct"), [("whole", -3.9), ("streamed", -4.6)])
def test_m33_fewer_channels_regress_by_either_metric(metric: str, effect_pct: float) -> None:
    """Real launches: both metrics come out as regressions."""
    said = compare(real("channels", "A", metric), real("channels", "B", metric))
    assert said.verdict is Verdict.regressed
    assert said.effect_pct == pytest.approx(effect_pct, abs=0.1)


def test_m33_the_quieter_metric_is_named_and_decides_sooner() -> None:
    """One launch of each decides by `streamed`, two by `whole`; which of them is quicker is said beforehand."""
    noises = {m: between_launch_noise(real("channels", "A", m)) for m in ("whole", "streamed")}
    sooner, sentence = which_decides_sooner(noises, 0.04)
    assert sooner == "streamed"
    assert sentence.startswith("streamed decides sooner: for an effect of 4.0% streamed 2 launches of each arm")
    decided = {
        metric: next(
            n
            for n in (1, 2, 3)
            if compare(
                real("channels", "A", metric, n), real("channels", "B", metric, n), stored=noises[metric]
            ).verdict
            is Verdict.regressed
        )
        for metric in noises
    }
    assert decided == {"streamed": 1, "whole": 2}


@pytest.mark.parametrize("metric", ["whole", "streamed"])
def test_m34_levels_that_switch_within_a_launch_do_not_make_it_surer(metric: str) -> None:
    """Without overlap the arm varies 4 % between launches: its own noise makes the interval, not its 24 samples."""
    a, b = real("overlap", "A", metric), real("overlap", "B", metric)
    said = compare(a, b)
    assert said.verdict is Verdict.regressed
    assert said.effect_pct is not None
    assert said.ci_low_pct is not None
    assert said.ci_high_pct is not None
    assert said.ci_high_pct - said.ci_low_pct > 8
    again = compare(b, b[::-1])
    assert again.verdict in (Verdict.inconclusive, Verdict.no_effect)


@pytest.mark.parametrize(("a", "b"), list(itertools.permutations([468.0, 474.0, 489.0], 2)))
def test_m35_one_launch_of_each_cannot_tell_four_percent_from_nothing(a: float, b: float) -> None:
    """468, 474 and 489 tok/s are one server: never improved, with nothing stored and with its own noise stored."""
    for stored in (None, between_launch_noise([468.0, 474.0, 489.0])):
        said = compare([a], [b], stored=stored)
        assert said.verdict in (Verdict.inconclusive, Verdict.no_effect)


def test_foreign_requests_block() -> None:
    """The server answered more than was asked by us: somebody else was there."""
    assert "2 requests that were not ours" in of_arm(requests_served=6)["foreign_requests"].sentence
