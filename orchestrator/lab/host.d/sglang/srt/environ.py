"""The variables this engine reads. A name that is not listed here, or read by a module itself, has no effect."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class EnvField:
    """One variable with its default."""

    name: str
    default: str = ""

    def get(self) -> str:
        return os.environ.get(self.name, self.default)


class Envs:
    """All of them."""

    SGLANG_WARMUP_TIMEOUT = EnvField("SGLANG_WARMUP_TIMEOUT", "-1")
    SGLANG_HEALTH_CHECK_TIMEOUT = EnvField("SGLANG_HEALTH_CHECK_TIMEOUT", "20")
    SGLANG_CACHE_DIR = EnvField("SGLANG_CACHE_DIR")
    SGLANG_USE_AITER = EnvField("SGLANG_USE_AITER", "false")


envs = Envs()
