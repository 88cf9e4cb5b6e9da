"""Flags, and what the resolver makes of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lab_hardware import settings

from sglang.srt.utils.common import is_sm90_supported, is_sm100_supported, is_sm120_supported
from sglang.srt.utils.log import log

# flag → type, default. `bool` takes no value. What has no meaning here is accepted, reported and has no effect.
FLAGS: dict[str, tuple[type, Any]] = {
    "host": (str, "127.0.0.1"),
    "port": (int, 30000),
    "nccl-port": (int, None),
    "model-path": (str, None),
    "tokenizer-path": (str, None),
    "served-model-name": (str, None),
    "weight-version": (str, "default"),
    "load-format": (str, "auto"),
    "dtype": (str, "auto"),
    "quantization": (str, None),
    "kv-cache-dtype": (str, "auto"),
    "device": (str, "cuda"),
    "trust-remote-code": (bool, False),
    "context-length": (int, None),
    "api-key": (str, None),
    "log-level": (str, "info"),
    "random-seed": (int, 0),
    "pp-size": (int, 1),
    "dp-size": (int, 1),
    "nnodes": (int, 1),
    "enable-dp-attention": (bool, False),
    "attn-cp-size": (int, 1),
    "mem-fraction-static": (float, None),
    "max-running-requests": (int, None),
    "max-total-tokens": (int, None),
    "chunked-prefill-size": (int, 8192),
    "max-prefill-tokens": (int, 16384),
    "page-size": (int, 1),
    "schedule-policy": (str, "fcfs"),
    "stream-interval": (int, 1),
    "decode-log-interval": (int, 40),
    "attention-backend": (str, None),
    "sampling-backend": (str, None),
    "moe-runner-backend": (str, "auto"),
    "moe-a2a-backend": (str, "none"),
    "cuda-graph-max-bs": (int, None),
    "disable-cuda-graph": (bool, False),
    "disable-piecewise-cuda-graph": (bool, False),
    "disable-radix-cache": (bool, False),
    "disable-overlap-schedule": (bool, False),
    "disable-custom-all-reduce": (bool, False),
    "enable-mscclpp": (bool, False),
    "enable-torch-symm-mem": (bool, False),
    "enable-flashinfer-allreduce-fusion": (bool, False),
    "enforce-disable-flashinfer-allreduce-fusion": (bool, False),
    "enable-metrics": (bool, False),
    "enable-torch-compile": (bool, False),
    "skip-server-warmup": (bool, False),
    "watchdog-timeout": (float, 300.0),
    "speculative-algorithm": (str, None),
    "speculative-draft-model-path": (str, None),
    "speculative-num-steps": (int, None),
    "speculative-eagle-topk": (int, None),
    "speculative-num-draft-tokens": (int, None),
}
ALIASES = {"model-path": ["--model"]}
SPECULATIVE_ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN")
FUSED_ARCHITECTURES = ["DeepseekV3ForCausalLM", "Qwen3MoeForCausalLM", "KimiK25ForConditionalGeneration"]


class ServerArgs:
    """Resolved flags: what the engine goes by, which need not be what was asked for."""

    model_path: str
    host: str
    port: int
    served_model_name: str
    weight_version: str
    tp_size: int
    ep_size: int
    nnodes: int
    attn_cp_size: int
    enable_dp_attention: bool
    moe_a2a_backend: str
    context_length: int | None
    mem_fraction_static: float
    max_total_tokens: int | None
    max_running_requests: int
    chunked_prefill_size: int
    max_prefill_tokens: int
    decode_log_interval: int
    cuda_graph_max_bs: int
    disable_cuda_graph: bool
    disable_radix_cache: bool
    disable_custom_all_reduce: bool
    enable_mscclpp: bool
    enable_torch_symm_mem: bool
    enable_flashinfer_allreduce_fusion: bool
    enforce_disable_flashinfer_allreduce_fusion: bool
    enable_metrics: bool
    skip_server_warmup: bool
    api_key: str | None
    speculative_algorithm: str | None
    speculative_draft_model_path: str | None
    speculative_num_steps: int | None
    speculative_eagle_topk: int | None
    speculative_num_draft_tokens: int | None

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self.model_config = _read_model_config(self.model_path)
        self._handle_defaults()
        self._handle_speculative_decoding()
        self._handle_model_specific_adjustments()

    @property
    def values(self) -> dict[str, Any]:
        """Everything `/server_info` shows."""
        return {k: v for k, v in self.__dict__.items() if k != "model_config"}

    def __repr__(self) -> str:
        return f"ServerArgs({', '.join(f'{k}={v!r}' for k, v in self.values.items())})"

    def _handle_defaults(self) -> None:
        constants = settings().constants
        if self.tp_size > torch.cuda.device_count():
            raise ValueError(f"tp_size {self.tp_size} exceeds the {torch.cuda.device_count()} GPUs that are visible")
        if self.tp_size % self.ep_size:
            raise ValueError(f"tp_size {self.tp_size} must be divisible by ep_size {self.ep_size}")
        if self.moe_a2a_backend != "none" and self.ep_size != self.tp_size:
            log(f"{self.moe_a2a_backend} MoE is enabled. The expert parallel size is adjusted to {self.tp_size}.")
            self.ep_size = self.tp_size
        if self.cuda_graph_max_bs is None:
            self.cuda_graph_max_bs = constants.graph_default_max_bs
        if self.mem_fraction_static is None:
            self.mem_fraction_static = constants.mem_fraction_static
        self.max_running_requests = self.max_running_requests or 2048
        self.served_model_name = self.served_model_name or self.model_path

    def _handle_speculative_decoding(self) -> None:
        if self.speculative_algorithm is None:
            return
        draft = self.speculative_draft_model_path
        if draft is not None:
            _read_model_config(draft)
        self.speculative_num_steps = self.speculative_num_steps or 2
        self.speculative_eagle_topk = self.speculative_eagle_topk or 1
        wanted = self.speculative_num_steps + 1
        if self.speculative_eagle_topk == 1 and self.speculative_num_draft_tokens not in (None, wanted):
            log(f"speculative_num_draft_tokens is adjusted to {wanted} because speculative_eagle_topk is 1")
            self.speculative_num_draft_tokens = wanted
        self.speculative_num_draft_tokens = self.speculative_num_draft_tokens or wanted

    def _handle_model_specific_adjustments(self) -> None:
        model_arch = self.model_config["architectures"][0]
        if is_sm120_supported():
            log("Use triton as the attention backend for MLA models on SM120")
        if (
            not self.enable_flashinfer_allreduce_fusion
            and model_arch in FUSED_ARCHITECTURES
            and (is_sm90_supported() or is_sm100_supported())
            and self.tp_size > 1
            and not self.enable_dp_attention
            and self.nnodes == 1
            and self.moe_a2a_backend == "none"
        ):
            self.enable_flashinfer_allreduce_fusion = True
            log(f"Auto-enabling FlashInfer AllReduce Fusion for {model_arch}")
        if self.enforce_disable_flashinfer_allreduce_fusion:
            self.enable_flashinfer_allreduce_fusion = False


_global_server_args: ServerArgs | None = None


def set_global_server_args(server_args: ServerArgs) -> None:
    """Make the resolved flags known to the layers of this process."""
    global _global_server_args  # one server a process
    _global_server_args = server_args


def get_global_server_args() -> ServerArgs:
    """The resolved flags. Raises RuntimeError before they are known."""
    if _global_server_args is None:
        raise RuntimeError("the server's arguments are not resolved yet")
    return _global_server_args


def prepare_server_args(argv: Sequence[str]) -> ServerArgs:
    """Parse and resolve. Exits with 2 for a flag that does not exist; raises for values that cannot be."""
    parser = argparse.ArgumentParser(prog="launch_server.py")
    for name, (kind, default) in FLAGS.items():
        names = [f"--{name}", *ALIASES.get(name, [])]
        if kind is bool:
            parser.add_argument(*names, action="store_true", default=default)
        else:
            parser.add_argument(*names, type=kind, default=default, required=name == "model-path")
    parser.add_argument("--tp-size", "--tensor-parallel-size", "--tp", type=int, default=1)
    parser.add_argument("--ep-size", "--expert-parallel-size", "--ep", type=int, default=1)
    values = vars(parser.parse_args(list(argv)))
    if values["speculative_algorithm"] not in (None, *SPECULATIVE_ALGORITHMS):
        parser.error(
            f"argument --speculative-algorithm: invalid choice: {values['speculative_algorithm']!r} "
            f"(choose from {', '.join(map(repr, SPECULATIVE_ALGORITHMS))})"
        )
    server_args = ServerArgs(values)
    set_global_server_args(server_args)
    log(f"server_args={server_args!r}")
    return server_args


def _read_model_config(path: str) -> dict[str, Any]:
    """`config.json` of a model. There is no hub behind the lab."""
    file = Path(path) / "config.json"
    if not file.is_file():
        raise OSError(f"{path} is not a local folder with a config.json, and the model hub cannot be reached")
    return dict(json.loads(file.read_text(encoding="utf-8")))


if __name__ == "__main__":
    prepare_server_args(sys.argv[1:])
