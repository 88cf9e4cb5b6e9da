"""Questions about the platform, and the log."""

from sglang.srt.utils.common import (
    get_bool_env_var,
    is_cuda,
    is_flashinfer_available,
    is_sm90_supported,
    is_sm100_supported,
    is_sm120_supported,
)

__all__ = [
    "get_bool_env_var",
    "is_cuda",
    "is_flashinfer_available",
    "is_sm90_supported",
    "is_sm100_supported",
    "is_sm120_supported",
]
