"""The cost model against the figures of the campaign, and the noise against its seed."""

from __future__ import annotations

import dataclasses
import itertools
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.lab.hardware import model
from orchestrator.lab.hardware.model import Constants, Noise, Setup

C = Constants()
RING_16 = model.nccl_ring_ms(C, 16)
PLAIN = Setup(call_ms=RING_16)
SPECULATIVE = Setup(call_ms=RING_16, speculative=True)
CALL_MS = st.floats(0.001, 1.0)


def tps(setup: Setup) -> float:
    return model.expected_tps(C, setup)


def test_plain_decoding_gives_82_tokens_a_second() -> None:
    """The known-good configuration decodes at 82 tok/s without a draft model."""
    assert tps(PLAIN) == pytest.approx(82, abs=0.1)


def test_speculation_is_slower_than_plain_decoding() -> None:
    """EAGLE-3 gives 54 to 60 tok/s with either set of channels: the bottleneck of the campaign."""
    assert tps(SPECULATIVE) == pytest.approx(60, abs=0.1)
    assert 54 <= tps(dataclasses.replace(SPECULATIVE, call_ms=model.nccl_ring_ms(C, 2))) <= 60


def test_the_verify_pass_waits_24_ms_for_its_calls() -> None:
    """122 calls of 200 µs make the verify pass 97 % of the cycle."""
    assert model.communication_ms(C, SPECULATIVE) == pytest.approx(24.4, abs=0.1)
    assert model.verify_ms(C, SPECULATIVE) / model.step_ms(C, SPECULATIVE) == pytest.approx(0.97, abs=0.005)


def test_custom_all_reduce_over_pcie_gives_38_tokens_a_second() -> None:
    """All-to-all traffic over PCIe halves the speed."""
    assert tps(Setup(call_ms=C.custom_pcie_ms)) == pytest.approx(38, abs=0.1)


def test_two_channels_are_slower_than_sixteen() -> None:
    """ "Fewer channels" costs about 5 % in plain decoding."""
    assert tps(Setup(call_ms=model.nccl_ring_ms(C, 2))) / tps(PLAIN) - 1 == pytest.approx(-0.048, abs=0.003)


def test_the_best_number_of_channels_is_near_eight() -> None:
    """The curve over the channels has its minimum at 7 or 8."""
    assert min(range(1, 65), key=lambda k: model.nccl_ring_ms(C, k)) in (7, 8)


def test_expert_parallelism_helps_speculation_and_not_plain_decoding() -> None:
    """Fewer calls pay where each call is dear."""
    expert = dataclasses.replace(SPECULATIVE, expert_parallel=True)
    assert tps(expert) / tps(SPECULATIVE) - 1 == pytest.approx(0.257, abs=0.01)
    assert model.verify_ms(C, expert) == pytest.approx(24, abs=0.1)
    assert tps(dataclasses.replace(PLAIN, expert_parallel=True)) < tps(PLAIN)


def test_a_graph_of_512_costs_nine_percent() -> None:
    """--cuda-graph-max-bs 512 → 128 was worth 9 %."""
    assert tps(PLAIN) / tps(dataclasses.replace(PLAIN, graph_max_bs=512)) == pytest.approx(1.09)


def test_one_rank_reduces_nothing() -> None:
    """Without tensor parallelism there is nothing to add up."""
    assert model.step_ms(C, Setup(call_ms=RING_16, tp_size=1)) == C.plain_compute_ms


@given(CALL_MS, CALL_MS, st.booleans(), st.booleans())
def test_a_dearer_call_never_makes_a_step_faster(a: float, b: float, speculative: bool, graph: bool) -> None:
    """The step time grows with c, in both contexts, with and without graphs."""
    low, high = sorted((a, b))
    cheap = Setup(call_ms=low, speculative=speculative, under_graph=graph)
    assert model.step_ms(C, cheap) <= model.step_ms(C, dataclasses.replace(cheap, call_ms=high))


@given(st.integers(1, 4096), st.integers(1, 4096))
def test_memory_pressure_grows_and_has_an_end(a: int, b: int) -> None:
    """A larger graph is never cheaper, and never dearer than the whole price."""
    low, high = sorted((a, b))
    assert 1.0 <= model.pressure(C, low) <= model.pressure(C, high) <= 1 + C.kv_pressure_max


@given(st.integers(0, 2**32), st.text(max_size=20), st.integers(0, 50))
def test_noise_is_a_function_of_seed_treatment_and_repetition(seed: int, treatment: str, repetition: int) -> None:
    """The same launch in two processes takes the same times; nothing comes from a clock."""
    one, two = (Noise(C, seed=seed, treatment=treatment, repetition=repetition) for _ in range(2))
    first, second = (list(itertools.islice(model.steps(C, SPECULATIVE, n, "prompt", 1), 20)) for n in (one, two))
    assert first == second


def test_noise_differs_between_seeds_treatments_repetitions_and_requests() -> None:
    """Each of the four has a noise of its own."""
    base = {"seed": 1, "treatment": "a", "repetition": 0}
    launches = [base, base | {"seed": 2}, base | {"treatment": "b"}, base | {"repetition": 1}]
    factors = {Noise(C, **launch).launch_factor for launch in launches}  # type: ignore[arg-type]
    noise = Noise(C, seed=1, treatment="a", repetition=0)
    firsts = {next(noise.step_factors(prompt, nth)) for prompt in ("p", "q") for nth in (0, 1)}
    assert (len(factors), len(firsts)) == (4, 4)


def test_noise_averages_out() -> None:
    """Over many steps and launches the mean is the formula's."""
    means = []
    for repetition in range(60):
        noise = Noise(C, seed=3, treatment="t", repetition=repetition)
        means.append(fmean(step.ms for step in itertools.islice(model.steps(C, PLAIN, noise, "p", 0), 200)))
    assert fmean(means) == pytest.approx(model.step_ms(C, PLAIN), rel=0.003)
    assert 0.001 < (max(means) - min(means)) / fmean(means) < 0.04


def test_the_drift_is_shared_by_treatments() -> None:
    """Without launch noise two treatments see the same factor at the same repetition, and it moves."""
    quiet = dataclasses.replace(C, launch_noise=0.0)
    factors = [[Noise(quiet, seed=5, treatment=t, repetition=r).launch_factor for r in range(9)] for t in ("a", "b")]
    assert factors[0] == factors[1]
    assert len(set(factors[0])) == 9


@given(st.text(min_size=1, max_size=30))
def test_a_cycle_yields_its_mean_of_tokens(prompt: str) -> None:
    """Tokens a cycle average to the prompt's acceptance, and are the same in every launch."""
    runs = [
        [s.tokens for s in itertools.islice(model.steps(C, SPECULATIVE, noise, prompt, 0), 400)]
        for noise in (Noise(C, seed=1, treatment="a", repetition=0), Noise(C, seed=2, treatment="b", repetition=4))
    ]
    assert runs[0] == runs[1]
    assert fmean(runs[0]) == pytest.approx(model.acceptance(C, SPECULATIVE, prompt), abs=0.01)


def test_every_constant_says_what_it_is() -> None:
    """Unit, mark and meaning stand beside each value in lab.json."""
    for entry in (model.describe(C) | model.describe(model.Machine())).values():
        assert entry["unit"] and entry["mark"] in "SDA" and len(entry["says"]) > 5


def test_lab_json_holds_values_bare_or_described() -> None:
    """A person may write a bare number in place of the description."""
    assert model.read_values({"drift": 0.1, "batch_ms": {"value": 2, "unit": "ms"}}) == {"drift": 0.1, "batch_ms": 2}
