"""Which out-of-memory it was: the phase and the frames tell what was being allocated, the figures tell by whom."""

from __future__ import annotations

import re

from orchestrator.core.diagnosis.model import Phase
from orchestrator.core.diagnosis.reading import Hit, Reading

_GRAPH = re.compile(
    r"cuda_graph_runner|graph_runner\.py|capture_model|cudagraph|capture_one_batch"
    r"|init_cuda_graphs|init_device_graphs|CUDAGraph|graph_capture"
)
_KV = re.compile(
    r"memory_pool|kv_cache_mixin|init_memory_pool|_allocate_kv_cache|initialize_kv_cache|allocate_kv|cache_engine"
    r"|kv_cache_configurator|initialize_from_config|initialize_cache|kvCacheManager|KVCacheManager|kv_cache_manager"
)
_WEIGHTS = re.compile(
    r"model_loader|load_model|load_weights|build_model|initialize_model|create_weights|process_weights_after_loading"
    r"|weight_utils|from_pretrained|modeling_utils|modelLoader"
)
_RUNTIME = re.compile(
    r"event_loop|execute_model|run_busy_loop|forward_batch_generation|profile_run|_dummy_\w*run|warm_up|determine_available_memory"
    r"|run_batch|sample_tokens|warmup"
)
_BY_PHASE: dict[Phase | None, str] = {
    None: "oom_runtime",
    "import": "oom_other_process",
    "args": "oom_other_process",
    "dist": "oom_other_process",
    "weights": "oom_weights",
    "kv": "oom_kv_cache",
    "graphs": "oom_graph_capture",
    "warmup": "oom_runtime",
    "ready": "oom_runtime",
}
_TOTAL = re.compile(r"total capacity of ([\d.]+) ([GM])iB of which ([\d.]+) ([GM])iB is free")
_OWN = re.compile(r"this process has ([\d.]+) ([GM])iB memory in use")
_OTHERS = re.compile(r"Process (\d+) has ([\d.]+) ([GM])iB memory in use")
_REMEDIES: dict[str, tuple[str, str]] = {
    "oom_other_process": (
        "other processes hold the memory of this GPU",
        "end those that are not this server's, or give it other GPUs",
    ),
    "oom_weights": ("the weights do not fit into the GPU", "spread them over more GPUs, or quantise them"),
    "oom_kv_cache": ("the KV pool does not fit beside the weights", "lower the memory fraction or the longest length"),
    "oom_graph_capture": (
        "the capture of CUDA graphs found too little memory left",
        "capture smaller batches (SGLang: --cuda-graph-max-bs), or lower the memory fraction",
    ),
    "oom_runtime": (
        "a request or the warm-up found too little memory left",
        "lower the memory fraction, the running requests or the prefill chunk",
    ),
}
_ALLOCATED = re.compile(r"Of the allocated memory ([\d.]+) ([GM])iB is allocated by PyTorch")


def _gib(amount: str, unit: str) -> float:
    return float(amount) / (1024 if unit == "M" else 1)


def is_held_by_others(message: str) -> bool:
    """Whether the figures in torch's message leave more than a quarter of the card to other processes."""
    total = _TOTAL.search(message)
    if total is None:
        return False
    capacity, free = _gib(total[1], total[2]), _gib(total[3], total[4])
    own, allocated = _OWN.search(message), _ALLOCATED.search(message)
    if own is None and allocated is None:
        return False
    # Inside a container torch cannot tell its own process from the others; what its allocator holds is surely its own.
    listed = sum(_gib(a, u) for _, a, u in _OTHERS.findall(message))
    mine = _gib(own[1], own[2]) if own else _gib(allocated[1], allocated[2]) if allocated else capacity
    foreign = capacity - free - mine
    if own is None:
        foreign = min(foreign, listed - mine)
    return foreign > capacity / 4


def oom_category(reading: Reading, hit: Hit) -> str:
    """The out-of-memory category of a hit: others on the card, else by frames, else by phase."""
    message = hit.line.text
    if is_held_by_others(message):
        return "oom_other_process"
    if "Capture cuda graph failed" in message or ("capture" in message.lower() and "graph" in message.lower()):
        return "oom_graph_capture"
    frames = "\n".join(reading.frames(hit.block)) if hit.block else ""
    phase = reading.phase_at(hit.number)
    if _GRAPH.search(frames):
        return "oom_graph_capture"
    if _KV.search(frames):
        return "oom_kv_cache"
    if _WEIGHTS.search(frames) and phase != "ready":
        return "oom_weights"
    if _RUNTIME.search(frames):
        return "oom_runtime"
    return _BY_PHASE[phase]


def oom_explanation(category: str, message: str) -> tuple[str, str]:
    """Cause and remedy of an out-of-memory category, with the holders that torch's message names."""
    cause, remedy = _REMEDIES[category]
    if category != "oom_other_process":
        return cause, remedy
    held = ", ".join(f"process {pid}: {amount} {unit}iB" for pid, amount, unit in _OTHERS.findall(message))
    return (f"{cause}; torch lists {held}" if held else cause), remedy


def killed_category(reading: Reading, hit: Hit) -> str:
    """A process killed while host memory was filling was most likely killed for that; later, nobody can tell."""
    return "host_oom" if reading.phase_at(hit.number) == "weights" else "worker_died_silently"
