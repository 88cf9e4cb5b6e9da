"""Between the layers: which all-reduce a forward pass takes."""

from __future__ import annotations

from sglang.srt.distributed.parallel_state import GroupCoordinator
from sglang.srt.server_args import get_global_server_args
from sglang.srt.utils import (
    is_cuda,
    is_flashinfer_available,
    is_sm90_supported,
    is_sm100_supported,
)

_is_cuda = is_cuda()
_is_flashinfer_available = is_flashinfer_available()
_is_sm90_supported = _is_cuda and is_sm90_supported()
_is_sm100_supported = _is_cuda and is_sm100_supported()

FUSE_ALLREDUCE_MAX_BATCH_SIZE = 2048


def apply_flashinfer_allreduce_fusion(batch_size: int) -> bool:
    """Whether a pass over `batch_size` tokens fuses its all-reduces and leaves NCCL aside."""
    return (
        (_is_sm90_supported or _is_sm100_supported)
        and _is_flashinfer_available
        and batch_size > 0
        and batch_size <= FUSE_ALLREDUCE_MAX_BATCH_SIZE
        and get_global_server_args().enable_flashinfer_allreduce_fusion
    )


class LayerCommunicator:
    """Adds up the hidden states after attention and after the experts."""

    def __init__(self, group: GroupCoordinator) -> None:
        self._group = group

    def all_reduce_ms(self, batch_size: int, *, capturing: bool) -> float:
        """c of one all-reduce of the pass. Raises what the chosen communicator raises."""
        if self._group.world_size == 1:
            return 0.0
        if apply_flashinfer_allreduce_fusion(batch_size):
            from flashinfer.comm import allreduce_fusion_ms

            return allreduce_fusion_ms()
        return self._group.all_reduce_ms(capturing=capturing)
