"""Every known signature, by family."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature
from orchestrator.core.diagnosis.signatures import (
    arch,
    arguments,
    cuda,
    disaggregation,
    driver,
    environment,
    features,
    hangs,
    host,
    imports,
    llamacpp,
    model_files,
    network,
    oom,
    peers,
    quantization,
    quiet,
    ray,
    speculative,
    supervisors,
    toolchain,
    trtllm,
    wrappers,
)

SIGNATURES: tuple[Signature, ...] = (
    *oom.SIGNATURES,
    *host.SIGNATURES,
    *arch.SIGNATURES,
    *driver.SIGNATURES,
    *toolchain.SIGNATURES,
    *network.SIGNATURES,
    *cuda.SIGNATURES,
    *quantization.SIGNATURES,
    *model_files.SIGNATURES,
    *arguments.SIGNATURES,
    *environment.SIGNATURES,
    *speculative.SIGNATURES,
    *disaggregation.SIGNATURES,
    *features.SIGNATURES,
    *llamacpp.SIGNATURES,
    *trtllm.SIGNATURES,
    *ray.SIGNATURES,
    *imports.SIGNATURES,
    *peers.SIGNATURES,
    *hangs.SIGNATURES,
    *quiet.SIGNATURES,
    *supervisors.SIGNATURES,
    *wrappers.SIGNATURES,
)
"""In order of preference where two match the same line with the same weight."""
