"""What an exception is about when its text does not say: the part of the engine that raised it."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (category, re.compile(pattern))
    for category, pattern in (
        ("pd_disaggregation", r"/disaggregation/|/kv_transfer/|mooncake|nixl|kv_connector"),
        ("speculative", r"/speculative/|/spec_decode/|eagle|medusa|draft_worker|multi_step_draft"),
        (
            "argument_error",
            r"server_args\.py|arg_utils\.py|/arg_groups/|argparse\.py|llm_args\.py"
            r"|create_engine_config",
        ),
        ("quantization", r"/quantization/|compressed_tensors|modelopt|bitsandbytes|quanto|/gptq|/awq"),
        ("stale_compile_cache", r"torch_compile_cache|inductor_cache|torchinductor_|aot_compile|codecache\.py"),
        (
            "jit_toolchain",
            r"/jit/|cpp_extension\.py|/triton/(?:runtime|compiler|backends)|deep_gemm/jit"
            r"|_inductor/|nvrtc|tvm_ffi",
        ),
        ("graph_capture", r"cuda_graph_runner|graph_runner\.py|capture_model|/cudagraph|torch/cuda/graphs\.py"),
        (
            "model_files",
            r"/model_loader/|weight_utils|load_weights|configuration_auto|tokenization_|/transformers/"
            r"|huggingface_hub|model_config\.py|hf_transformers_utils|transformers_utils|safetensors",
        ),
        ("network_setup", r"distributed_c10d|init_process_group|/rendezvous|pynccl|parallel_state\.py|/zmq/|/gloo/"),
        ("feature_unsupported", r"/attention/|attention_registry|/moe/|/lora/|multimodal"),
    )
)


def category_by_frames(frames: Sequence[str]) -> str:
    """The category of the innermost frame that belongs to a named part; `patch_error` never, `unknown` if none."""
    for frame in reversed(frames):
        for category, pattern in _PARTS:
            if pattern.search(frame):
                return category
    return "unknown"
