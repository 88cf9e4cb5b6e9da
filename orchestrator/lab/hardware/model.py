"""What the simulated machine costs: constants, formulas and noise. Pure, standard library only.

This package is copied into every lab, where the lab's own interpreter runs it; a lab reads the values from its
`lab.json`, and the defaults are the ones below. Times are milliseconds. `c` is the cost of one all-reduce of 42 KB.

Marks: S stated by those who ran the campaign, D derived from what they stated, A assumed by us.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any


def constant(default: float | int | str | bool, unit: str, mark: str, says: str) -> Any:  # noqa: ANN401 - as `field`
    """A dataclass field that carries its own documentation."""
    return field(default=default, metadata={"unit": unit, "mark": mark, "says": says})


@dataclass(frozen=True)
class Constants:
    """The cost model: every number a launch's speed depends on, beside what the launch itself reads."""

    plain_compute_ms: float = constant(5.0, "ms", "D", "arithmetic of one plain decoding step (A)")
    verify_compute_ms: float = constant(6.0, "ms", "D", "arithmetic of one verify pass (V)")
    draft_ms: float = constant(0.95, "ms", "D", "the rest of a speculative cycle: drafting and sampling")
    accepted_tokens: float = constant(1.88, "tokens", "D", "tokens a speculative cycle yields on average (L)")
    calls_per_pass: int = constant(122, "calls", "S", "all-reduces of a forward pass, two a layer (n)")
    moe_calls: int = constant(61, "calls", "S", "those of them that belong to the mixture of experts")
    verify_call_factor: float = constant(200 / 59, "ratio", "D", "a call outside the overlap of the CUDA graph (r)")

    nccl_base_ms: float = constant(0.0493, "ms", "A", "Ring LL: the part of c that channels do not change")
    nccl_per_channel_ms: float = constant(0.0005, "ms", "A", "Ring LL: what each further channel adds to c")
    nccl_shared_ms: float = constant(0.0274, "ms", "A", "Ring LL: the part of c that k channels divide by k")
    nccl_default_channels: int = constant(32, "channels", "A", "channels when no variable limits them")
    nccl_tree_ms: float = constant(0.071, "ms", "A", "c of the Tree algorithm, which no CUDA graph can hold")
    custom_pcie_ms: float = constant(0.175, "ms", "D", "c of the custom all-reduce over PCIe, eight GPUs")
    custom_nvlink_ms: float = constant(0.012, "ms", "A", "c of the custom all-reduce, were there NVLink")
    fused_ms: float = constant(0.030, "ms", "A", "c of FlashInfer's fused all-reduce, were it to compile")
    mscclpp_ms: float = constant(0.045, "ms", "A", "c of MSCCL++, were it installed")
    symm_mem_ms: float = constant(0.020, "ms", "A", "c of torch symmetric memory, were there multicast")
    all_to_all_plain_ms: float = constant(0.075, "ms", "A", "one expert-parallel exchange in plain decoding")
    all_to_all_verify_ms: float = constant(0.095, "ms", "A", "one expert-parallel exchange in a verify pass")

    kv_pressure_from_bs: int = constant(128, "requests", "D", "largest --cuda-graph-max-bs that costs no time")
    kv_pressure_to_bs: int = constant(512, "requests", "D", "--cuda-graph-max-bs at which the full price is paid")
    kv_pressure_max: float = constant(0.09, "ratio", "S", "how much longer a step takes there")
    graph_default_max_bs: int = constant(512, "requests", "A", "--cuda-graph-max-bs when the flag is not given")
    eager_ms: float = constant(12.0, "ms", "A", "launch overhead of one pass without CUDA graphs")
    prefill_base_ms: float = constant(4.0, "ms", "A", "a prefill of no tokens")
    prefill_token_ms: float = constant(0.02, "ms", "A", "each prompt token that the cache does not hold")
    batch_ms: float = constant(0.08, "ms", "A", "each further stream that is decoded in the same step")

    token_noise: float = constant(0.03, "ratio", "A", "standard deviation of one step's time")
    launch_noise: float = constant(0.004, "ratio", "A", "standard deviation between launches")
    drift: float = constant(0.003, "ratio", "A", "amplitude of the slow drift that all treatments share")
    drift_period: float = constant(9.0, "launches", "A", "launches of one treatment that the drift takes to return")
    acceptance_noise: float = constant(0.02, "ratio", "A", "standard deviation of L between prompts")

    weights_gib: float = constant(540.0, "GiB", "A", "the model's weights, shared by the ranks")
    kv_kib_per_token: float = constant(69.0, "KiB", "A", "key and value cache of one token on one rank")
    graph_mib_per_bs: float = constant(12.0, "MiB", "A", "memory of one captured batch size on one rank")
    mem_fraction_static: float = constant(0.9, "ratio", "A", "--mem-fraction-static when the flag is not given")

    init_s: float = constant(0.01, "s", "A", "joining the process group")
    load_s: float = constant(0.03, "s", "A", "loading the weights")
    capture_s: float = constant(0.03, "s", "A", "capturing the CUDA graphs")
    drain_s: float = constant(5.0, "s", "A", "how long SIGTERM waits for running requests")
    health_timeout_s: float = constant(2.0, "s", "A", "when /health gives up on a silent rank (SGLang: 20 s)")
    warmup_timeout_s: float = constant(20.0, "s", "A", "when the warm-up request gives up")


@dataclass(frozen=True)
class Machine:
    """The simulated GPUs, as `nvidia-smi` and torch describe them."""

    gpu_count: int = constant(8, "GPUs", "S", "how many there are")
    gpu_name: str = constant("NVIDIA RTX PRO 6000 Blackwell Server Edition", "text", "S", "what they are")
    compute_capability: str = constant("12.0", "version", "S", "the architecture, SM120")
    gpu_memory_mib: int = constant(97887, "MiB", "A", "memory of each; the data sheet says 96 GB")
    idle_memory_mib: int = constant(0, "MiB", "A", "memory in use when nobody holds the GPU")
    stranger_memory_mib: int = constant(1024, "MiB", "A", "memory ascribed to a holder that registered none")
    driver_version: str = constant("580.95.05", "version", "A", "the driver")
    cuda_version: str = constant("12.9", "version", "A", "the toolkit torch was built with")
    nvlink: bool = constant(False, "flag", "S", "the links are PCIe Gen5 only")


@dataclass(frozen=True)
class Setup:
    """What a launch resolved to: the choices the formulas need. `call_ms` is c of the communicator that won."""

    call_ms: float
    speculative: bool = False
    draft_tokens: int = 3
    expert_parallel: bool = False
    under_graph: bool = True
    graph_max_bs: int = 128
    tp_size: int = 8


@dataclass(frozen=True)
class Step:
    """One decoding step: how long it takes and how many tokens come out."""

    ms: float
    tokens: int


def nccl_ring_ms(constants: Constants, channels: int) -> float:
    """c of NCCL's Ring with the LL protocol over `channels` channels."""
    return constants.nccl_base_ms + constants.nccl_per_channel_ms * channels + constants.nccl_shared_ms / channels


def communication_ms(constants: Constants, setup: Setup) -> float:
    """All collectives of one forward pass, the plain one or the verify pass."""
    if setup.tp_size == 1:
        return 0.0
    outside_overlap = setup.speculative or not setup.under_graph
    call_ms = setup.call_ms * (constants.verify_call_factor if outside_overlap else 1.0)
    if not setup.expert_parallel:
        return constants.calls_per_pass * call_ms
    exchange_ms = constants.all_to_all_verify_ms if setup.speculative else constants.all_to_all_plain_ms
    return (constants.calls_per_pass - constants.moe_calls) * call_ms + constants.moe_calls * exchange_ms


def pressure(constants: Constants, graph_max_bs: int) -> float:
    """Factor on the step time: captured graphs take memory from the KV cache."""
    span = constants.kv_pressure_to_bs - constants.kv_pressure_from_bs
    share = (graph_max_bs - constants.kv_pressure_from_bs) / span
    return 1.0 + constants.kv_pressure_max * min(1.0, max(0.0, share))


def verify_ms(constants: Constants, setup: Setup) -> float:
    """One verify pass, before memory pressure."""
    return constants.verify_compute_ms + communication_ms(constants, setup)


def step_ms(constants: Constants, setup: Setup) -> float:
    """One plain token, or one speculative cycle, without noise."""
    if setup.speculative:
        ms = verify_ms(constants, setup) + constants.draft_ms
    else:
        ms = constants.plain_compute_ms + communication_ms(constants, setup)
    if not setup.under_graph:
        ms += constants.eager_ms
    return ms * pressure(constants, setup.graph_max_bs)


def expected_tps(constants: Constants, setup: Setup) -> float:
    """Output tokens per second of one stream, without noise."""
    tokens = min(constants.accepted_tokens, setup.draft_tokens + 1) if setup.speculative else 1.0
    return 1000.0 * tokens / step_ms(constants, setup)


class Noise:
    """Everything random about one launch. The same seed, treatment and repetition give the same noise.

    `repetition` counts the completed launches with this treatment, from 0. The drift depends on seed and repetition
    alone, so that launches which alternate between two treatments see the same drift.
    """

    def __init__(self, constants: Constants, *, seed: int, treatment: str, repetition: int) -> None:
        self._constants = constants
        self._key = f"{seed}/{treatment}/{repetition}"
        phase = Random(f"{seed}/drift").random()  # noqa: S311 - a simulation, seeded on purpose
        wave = math.sin(2 * math.pi * (repetition / constants.drift_period + phase))
        self.launch_factor = 1.0 + constants.drift * wave + constants.launch_noise * _bounded(Random(self._key))  # noqa: S311

    def step_factors(self, prompt: str, nth: int) -> Iterator[float]:
        """A factor for each step of the `nth` request with this prompt."""
        random = Random(f"{self._key}/{prompt}/{nth}")  # noqa: S311
        while True:
            yield self.launch_factor * (1.0 + self._constants.token_noise * _bounded(random))


def acceptance(constants: Constants, setup: Setup, prompt: str) -> float:
    """Tokens a cycle on average for this prompt. Greedy decoding makes it a property of the text alone."""
    z = _bounded(Random(f"acceptance/{prompt}"))  # noqa: S311
    mean = constants.accepted_tokens * (1.0 + constants.acceptance_noise * z)
    return min(setup.draft_tokens + 1.0, max(1.0, mean))


def steps(constants: Constants, setup: Setup, noise: Noise, prompt: str, nth: int) -> Iterator[Step]:
    """The decoding steps of one request, without end; the caller stops when it has its tokens."""
    base_ms = step_ms(constants, setup)
    mean = acceptance(constants, setup, prompt) if setup.speculative else 1.0
    owed = Random(f"offset/{prompt}").random() if setup.speculative else 0.0  # noqa: S311
    for factor in noise.step_factors(prompt, nth):
        owed += mean
        tokens = math.floor(owed)
        owed -= tokens
        yield Step(base_ms * factor, tokens)


def prefill_ms(constants: Constants, new_tokens: int) -> float:
    """From the request to its first token."""
    return constants.prefill_base_ms + constants.prefill_token_ms * new_tokens


def _bounded(random: Random) -> float:
    """A standard normal value, cut at three deviations."""
    return max(-3.0, min(3.0, random.gauss(0.0, 1.0)))


def describe(record: Constants | Machine) -> dict[str, dict[str, Any]]:
    """name → value, unit, mark and meaning: the form in which `lab.json` holds them."""
    return {f.name: {"value": getattr(record, f.name), **f.metadata} for f in fields(record)}


def read_values(written: Mapping[str, Any]) -> dict[str, Any]:
    """The values of what `describe` wrote; bare values are accepted as well."""
    return {name: entry["value"] if isinstance(entry, Mapping) else entry for name, entry in written.items()}
