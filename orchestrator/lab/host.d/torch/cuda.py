"""The GPUs of the lab, as torch describes them."""

from __future__ import annotations

import os

from lab_hardware import settings
from lab_hardware.gpu import visible


def is_available() -> bool:
    return device_count() > 0


def device_count() -> int:
    return len(visible(os.environ, settings().machine.gpu_count))


def get_device_capability(device: int = 0) -> tuple[int, int]:
    major, _, minor = settings().machine.compute_capability.partition(".")
    return int(major), int(minor or 0)


def get_device_name(device: int = 0) -> str:
    return settings().machine.gpu_name
