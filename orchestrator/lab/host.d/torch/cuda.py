"""The GPUs of the lab, as torch describes them."""

from __future__ import annotations

from lab_hardware import settings


def is_available() -> bool:
    return settings().machine.gpu_count > 0


def device_count() -> int:
    return settings().machine.gpu_count


def get_device_capability(device: int = 0) -> tuple[int, int]:
    major, _, minor = settings().machine.compute_capability.partition(".")
    return int(major), int(minor or 0)


def get_device_name(device: int = 0) -> str:
    return settings().machine.gpu_name
