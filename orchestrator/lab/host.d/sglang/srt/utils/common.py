"""Questions about the platform."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch


def get_bool_env_var(name: str, default: str = "false") -> bool:
    """Whether a variable says yes."""
    return os.environ.get(name, default).lower() in ("true", "1")


def is_cuda() -> bool:
    return torch.cuda.is_available()


def is_flashinfer_available() -> bool:
    return is_cuda() and find_spec("flashinfer") is not None


def is_sm90_supported() -> bool:
    return _is_built_for(9, (12, 3))


def is_sm100_supported() -> bool:
    return _is_built_for(10, (12, 8))


def is_sm120_supported() -> bool:
    return _is_built_for(12, (12, 8))


def _is_built_for(major: int, toolkit: tuple[int, int]) -> bool:
    first, _, second = torch.version.cuda.partition(".")
    return torch.cuda.get_device_capability()[0] == major and (int(first), int(second or 0)) >= toolkit
