"""The activation. Every token that is chosen passes through it, so a wrong edit shows in the answers."""

from __future__ import annotations

import math


def silu(x: float) -> float:
    """x · sigmoid(x)"""
    return x / (1.0 + math.exp(-x))


class SiluAndMul:
    """Gated activation."""

    def forward(self, gate: float, up: float) -> float:
        return silu(gate) * up
