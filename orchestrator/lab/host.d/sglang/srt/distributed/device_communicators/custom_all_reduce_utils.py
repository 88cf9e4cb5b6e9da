"""Which GPUs the custom all-reduce is meant for."""

from __future__ import annotations

import os

from lab_hardware import settings

from sglang.srt.utils.log import log


def is_full_nvlink(physical_device_ids: list[int], world_size: int) -> bool:
    """Whether each GPU reaches each other over NVLink."""
    return len(physical_device_ids) == world_size and settings().machine.nvlink


def can_use_custom_all_reduce_with_nvlink(
    world_size: int, supported_world_size: tuple[int, ...], cls_name: str
) -> bool | None:
    """Whether there is NVLink everywhere; None when the custom all-reduce is not to be used at all."""
    if world_size not in supported_world_size:
        log(f"{cls_name} is disabled due to an unsupported world size: {world_size}.")
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(world_size)))
    physical_device_ids = [int(index) for index in visible.split(",")][:world_size]
    full_nvlink = is_full_nvlink(physical_device_ids, world_size)
    if world_size > 2 and not full_nvlink:
        log(
            f"{cls_name} is disabled because it's not supported on more than two PCIe-only GPUs. "
            "To silence this warning, specify disable_custom_all_reduce=True explicitly."
        )
        return None
    return full_nvlink
