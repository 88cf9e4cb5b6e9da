"""MSCCL++, where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

from lab_hardware import settings

from sglang.srt.utils.log import log


class PyMscclppCommunicator:
    """Without the package the server starts all the same, over NCCL: only a warning tells."""

    _SUPPORTED_WORLD_SIZES = (4, 8, 16, 32, 64)

    def __init__(self, world_size: int, rank: int) -> None:
        self.disabled = True
        if find_spec("mscclpp") is None:
            log("PyMscclpp is unavailable: No module named 'mscclpp'. Falling back to NCCL.")
            return
        if world_size not in self._SUPPORTED_WORLD_SIZES:
            log(f"PyMscclpp is disabled due to an unsupported world size: {world_size}.")
            return
        self.disabled = False

    def all_reduce_ms(self) -> float:
        return settings().constants.mscclpp_ms
