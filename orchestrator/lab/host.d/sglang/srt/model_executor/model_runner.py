"""One rank: joins the group, loads its share of the weights, captures its graphs, and knows what a pass costs."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from lab_hardware import settings
from lab_hardware.faults import Faults
from lab_hardware.gpu import Device
from lab_hardware.model import Setup

from sglang.srt.distributed.parallel_state import GroupCoordinator
from sglang.srt.layers.communicator import LayerCommunicator
from sglang.srt.model_executor.cuda_graph_runner import capture
from sglang.srt.models.kimi_k25 import KimiK25ForConditionalGeneration
from sglang.srt.server_args import ServerArgs
from sglang.srt.utils.log import bare, log

MIB_PER_GIB = 1024


@dataclass(frozen=True)
class Memory:
    """Where one GPU's memory goes, in MiB."""

    free: float
    weights: float
    static: float

    @property
    def cache(self) -> float:
        """What is left for keys and values."""
        return self.static - self.weights


class ModelRunner:
    """Raises what the gates and the machine raise; `setup` is what the passes cost."""

    def __init__(self, server_args: ServerArgs, rank: int, *, gpu: int, used_mib: float, faults: Faults) -> None:
        self.server_args = server_args
        self.rank = rank
        self._faults = faults
        self._free_mib = settings().machine.gpu_memory_mib - used_mib
        self._hang("init")
        self.communicator = self._init_torch_distributed()
        self.device = Device(settings().root, gpu)
        self.memory = self._load_model()
        self.model = KimiK25ForConditionalGeneration()
        self.max_total_num_tokens = self._init_memory_pool()
        self.call_ms = self._init_cuda_graphs()
        self.device.allocate(self.memory.static + self._graph_mib)

    @property
    def setup(self) -> Setup:
        """What the cost model needs to know of this launch."""
        args = self.server_args
        return Setup(
            call_ms=self.call_ms,
            speculative=args.speculative_algorithm is not None,
            draft_tokens=args.speculative_num_draft_tokens or 0,
            expert_parallel=args.ep_size > 1,
            under_graph=not args.disable_cuda_graph,
            graph_max_bs=0 if args.disable_cuda_graph else args.cuda_graph_max_bs,
            tp_size=args.tp_size,
        )

    @property
    def _graph_mib(self) -> float:
        is_captured = not self.server_args.disable_cuda_graph
        return self.server_args.cuda_graph_max_bs * settings().constants.graph_mib_per_bs if is_captured else 0.0

    def _init_torch_distributed(self) -> LayerCommunicator:
        log("Init torch distributed begin.")
        time.sleep(settings().constants.init_s)
        communicator = LayerCommunicator(GroupCoordinator(self.server_args, self.rank))
        log(f"Init torch distributed ends. elapsed={settings().constants.init_s:.2f} s, mem usage=0.51 GB")
        return communicator

    def _load_model(self) -> Memory:
        args, constants = self.server_args, settings().constants
        log(f"Load weight begin. avail mem={self._free_mib / MIB_PER_GIB:.2f} GB")
        self._hang("load")
        fault = self._faults.of("crash_at_load")
        if fault is not None and fault.rank == self.rank:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        weights_mib = constants.weights_gib * MIB_PER_GIB / args.tp_size
        if weights_mib > self._free_mib:
            total_gib = settings().machine.gpu_memory_mib / MIB_PER_GIB
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {weights_mib / MIB_PER_GIB:.2f} GiB. GPU {self.rank} has a "
                f"total capacity of {total_gib:.2f} GiB of which {self._free_mib / MIB_PER_GIB:.2f} GiB is free."
            )
        self.device.allocate(weights_mib)
        time.sleep(constants.load_s)
        if self.rank == 0:
            bare("Loading safetensors checkpoint shards: 100% Completed | 64/64 [00:00<00:00, 986.31it/s]")
        left_gib = (self._free_mib - weights_mib) / MIB_PER_GIB
        log(
            f"Load weight end. elapsed={constants.load_s:.2f} s, type=KimiK25ForConditionalGeneration, "
            f"avail mem={left_gib:.2f} GB, mem usage={weights_mib / MIB_PER_GIB:.2f} GB."
        )
        return Memory(self._free_mib, weights_mib, self._free_mib * args.mem_fraction_static)

    def _init_memory_pool(self) -> int:
        args, constants = self.server_args, settings().constants
        cache_mib = self.memory.cache - max(0.0, self._graph_mib - self._free_mib * (1 - args.mem_fraction_static))
        tokens = int(cache_mib * 1024 / constants.kv_kib_per_token)
        if tokens <= 0:
            raise RuntimeError("Not enough memory. Please try to increase --mem-fraction-static.")
        tokens = min(tokens, args.max_total_tokens or tokens)
        log(f"KV Cache is allocated. #tokens: {tokens}, KV size: {cache_mib / MIB_PER_GIB:.2f} GB")
        log(f"Memory pool end. avail mem={(self.memory.free - self.memory.static) / MIB_PER_GIB:.2f} GB")
        return tokens

    def _init_cuda_graphs(self) -> float:
        if self.server_args.disable_cuda_graph:
            if self.rank == 0:
                log("Cuda graph is disabled because of --disable-cuda-graph")
            return self.communicator.all_reduce_ms(1, capturing=False)
        self._hang("capture")
        return capture(
            lambda: self.communicator.all_reduce_ms(1, capturing=True),
            rank=self.rank,
            max_bs=self.server_args.cuda_graph_max_bs,
            available_gib=(self.memory.free - self.memory.static) / MIB_PER_GIB,
        )

    def _hang(self, phase: str) -> None:
        fault = self._faults.hangs_in(phase)
        if fault is not None and fault.rank == self.rank:
            while True:
                time.sleep(3600)
