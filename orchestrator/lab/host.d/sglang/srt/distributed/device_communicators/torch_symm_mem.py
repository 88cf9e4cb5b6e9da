"""All-reduce over torch's symmetric memory."""

from __future__ import annotations

import torch
from lab_hardware import settings
from torch.distributed._symmetric_memory import ALL_REDUCE_MAX_SIZES, has_multicast

from sglang.srt.utils.log import log


class TorchSymmMemCommunicator:
    """Needs an architecture and a world size that torch's table knows, and links that can multicast."""

    def __init__(self, world_size: int, rank: int) -> None:
        self.disabled = True
        self.world_size = world_size
        self.device_capability = torch.cuda.get_device_capability(rank)[0]
        if self.world_size not in ALL_REDUCE_MAX_SIZES[self.device_capability]:
            log(f"TorchSymmMemCommunicator: World size {world_size} not supported, communicator is not available.")
            return
        self.max_size = ALL_REDUCE_MAX_SIZES[self.device_capability][self.world_size]
        if not has_multicast():
            log("TorchSymmMemCommunicator: torch symmetric memory multicast operations are not supported.")
            return
        self.disabled = False

    def all_reduce_ms(self) -> float:
        return settings().constants.symm_mem_ms
