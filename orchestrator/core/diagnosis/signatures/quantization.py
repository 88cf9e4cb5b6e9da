"""Quantised weights and kernels that do not go together."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root

_KNOBS = ("--quantization", "--dtype", "--tp-size", "--tensor-parallel-size", "--kv-cache-dtype", "--load-format")

SIGNATURES: tuple[Signature, ...] = (
    root(
        "quant.shape",
        "quantization",
        (
            "is not divisible by",
            "not divisible by weight quantization",
            "min_thread_k",
            "min_thread_n",
            "group_size",
            "weight quantization block",
            "partition_size",
            "The input size is not aligned",
            "not aligned with the quantized weight shape",
            "block_n",
            "block_k",
            "not a multiple of",
            "marlin",
            "Marlin",
        ),
        r"(?:Weight )?(?:input|output)\w*_(?:size_per_partition"
        r"|partition_size) ?= ?\d+ (?:\S+ )?is not divisible|min_thread_[kn]"
        "|not aligned with the quantized weight shape|weight quantization block_[nk]|(?:[Mm]arlin"
        r"|[Gg][Pp][Tt][Qq]|AWQ|awq|group_?size|quant\w*).{0,80}(?:not divisible|must be divisible"
        "|multiple of|not supported|unsupported)|not divisible by.{0,40}(?:quant|group_size|block_)",
        "a layer's width does not fit the quantisation kernel's blocks at this parallelism",
        "another parallelism, or the plain kernel instead of the fast one",
        "ValueError: Weight input_size_per_partition = 10944 is not divisible by min_thread_k = 128.",
        "group_size=128, bits=4",
        knobs=_KNOBS,
        weight=4,
        certainty="certain",
    ),
    root(
        "quant.method",
        "quantization",
        (
            "quantization method",
            "Quantization method",
            "Unknown quantization",
            "quantization_config",
            "quantization scheme",
            "Unsupported quantization",
            "No compressed-tensors compatible scheme",
            "quant_method",
            "Invalid quantization",
            "unsupported quantization",
            "Quantization scheme",
            "compressed-tensors",
            "QuantizationMethod",
            "quantization format",
            "bitsandbytes",
            "modelopt",
            "quant_config",
            "NVFP4",
            "MXFP4",
            "nvfp4",
            "mxfp4",
            "GPTQ",
            "AWQ",
            "BitsAndBytes",
        ),
        "(?:for|the) quantization method|[Qq]uantization method .*(?:does not match|not supported|unknown"
        "|is not)|[Uu]n(?:known|supported) quantization|No compressed-tensors compatible scheme"
        "|Invalid quantization|[Qq]uantization scheme is not supported|(?:Error"
        "|Exception): .*(?:quantization_config|quant_method|quantization format|quant_config"
        r"|compressed.tensors|modelopt|[Bb]its[Aa]nd[Bb]ytes|GPTQ|AWQ|NVFP4|MXFP4|mxfp4|nvfp4)\b.*(?:not"
        "|un|mis|only|must|require|fail|invalid)",
        "the quantisation of the checkpoint is not the one that was asked for or that this build supports",
        "leave --quantization to the checkpoint, or use another build or checkpoint",
        "ValueError: Unknown quantization method: fp9. Must be one of ['awq', 'fp8']",
        "Using quantization method fp8",
        knobs=_KNOBS,
        weight=3,
    ),
    root(
        "quant.capability",
        "quantization",
        ("Minimum capability:", "is not supported for the current GPU", "is not supported for quantization"),
        r"Minimum capability: \d+|quantization method .* is not supported for the current GPU"
        "|is not supported for quantization method",
        "the quantisation needs a newer GPU or another dtype",
        "a checkpoint or method for this GPU",
        "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum "
        "capability: 89. Current capability: 80.",
        "current GPU: H200",
        knobs=_KNOBS,
        weight=4,
        certainty="certain",
    ),
)
