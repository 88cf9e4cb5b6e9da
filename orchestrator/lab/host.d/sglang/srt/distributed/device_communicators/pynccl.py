"""NCCL, the communicator of last resort and the usual one."""

from __future__ import annotations

import os

from lab_hardware import nccl, settings

from sglang.srt.utils.log import bare


class PyNcclCommunicator:
    """Ring or Tree, over as many channels as the variables leave."""

    def __init__(self, world_size: int, rank: int) -> None:
        self.world_size = world_size
        if world_size > 1:
            for line in nccl.debug_lines(os.environ, rank):
                bare(line)

    def all_reduce_ms(self, *, capturing: bool) -> float:
        return nccl.all_reduce_ms(settings().constants, os.environ, capturing=capturing)
