"""The tensor-parallel group of one rank."""

from __future__ import annotations

from sglang.srt.distributed.device_communicators.custom_all_reduce import CustomAllreduce
from sglang.srt.distributed.device_communicators.pymscclpp import PyMscclppCommunicator
from sglang.srt.distributed.device_communicators.pynccl import PyNcclCommunicator
from sglang.srt.distributed.device_communicators.torch_symm_mem import TorchSymmMemCommunicator
from sglang.srt.server_args import ServerArgs

ALL_REDUCE_BYTES = 42 * 1024


class GroupCoordinator:
    """Holds the communicators of a rank, and asks them in SGLang's order: an earlier one hides the later ones."""

    def __init__(self, server_args: ServerArgs, rank: int) -> None:
        self.world_size = server_args.tp_size
        self.pynccl_comm = PyNcclCommunicator(self.world_size, rank)
        self.ca_comm: CustomAllreduce | None = None
        self.pymscclpp_comm: PyMscclppCommunicator | None = None
        self.torch_symm_mem_comm: TorchSymmMemCommunicator | None = None
        if self.world_size == 1:
            return
        if not server_args.disable_custom_all_reduce:
            self.ca_comm = CustomAllreduce(self.world_size, rank)
        if server_args.enable_mscclpp:
            self.pymscclpp_comm = PyMscclppCommunicator(self.world_size, rank)
        if server_args.enable_torch_symm_mem:
            self.torch_symm_mem_comm = TorchSymmMemCommunicator(self.world_size, rank)

    def all_reduce_ms(self, *, capturing: bool) -> float:
        """c of the communicator that takes a tensor of 42 KB."""
        if self.ca_comm is not None and self.ca_comm.should_custom_ar(ALL_REDUCE_BYTES):
            return self.ca_comm.all_reduce_ms()
        if self.pymscclpp_comm is not None and not self.pymscclpp_comm.disabled:
            return self.pymscclpp_comm.all_reduce_ms()
        if self.torch_symm_mem_comm is not None and not self.torch_symm_mem_comm.disabled:
            return self.torch_symm_mem_comm.all_reduce_ms()
        return self.pynccl_comm.all_reduce_ms(capturing=capturing)
