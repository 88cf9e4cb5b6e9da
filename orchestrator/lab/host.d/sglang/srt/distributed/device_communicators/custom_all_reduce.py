"""SGLang's own all-reduce: every rank reads from every other one."""

from __future__ import annotations

from lab_hardware import settings

from sglang.srt.distributed.device_communicators.custom_all_reduce_utils import can_use_custom_all_reduce_with_nvlink
from sglang.srt.utils import get_bool_env_var


class CustomAllreduce:
    """Disabled unless the links are fit for it."""

    _SUPPORTED_WORLD_SIZES = (2, 4, 6, 8)
    _MAX_CAR_SIZE = 8192 * 1024

    def __init__(self, world_size: int, rank: int) -> None:
        self.disabled = True
        self.rank = rank
        self.world_size = world_size
        self.max_size = self._MAX_CAR_SIZE
        self.is_one_stage = get_bool_env_var("SGLANG_USE_1STAGE_ALLREDUCE")
        full_nvlink = can_use_custom_all_reduce_with_nvlink(
            world_size=world_size,
            supported_world_size=self._SUPPORTED_WORLD_SIZES,
            cls_name="CustomAllreduce",
        )
        if full_nvlink is None:
            return
        self.full_nvlink = full_nvlink
        self.disabled = False

    def should_custom_ar(self, inp_size: int) -> bool:
        """Whether a tensor of `inp_size` bytes goes this way."""
        if not self.disabled and inp_size % 16 == 0:
            if self.world_size == 2 or self.full_nvlink:
                return inp_size <= self.max_size
            return False  # over PCIe it gains little over NCCL
        return False

    def all_reduce_ms(self) -> float:
        constants = settings().constants
        return constants.custom_nvlink_ms if self.full_nvlink else constants.custom_pcie_ms
