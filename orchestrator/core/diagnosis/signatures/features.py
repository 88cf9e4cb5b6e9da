"""Combinations that the engine refuses by an explicit gate."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root

SIGNATURES: tuple[Signature, ...] = (
    root(
        "feature.backend-gate",
        "feature_unsupported",
        (
            "backends are supported",
            "backend is supported",
            "backends are allowed",
            "backend is not supported",
            "attention backend",
            "Attention backend",
            "is not supported for this model",
            "not supported with",
            "is not yet supported",
            "not supported for hybrid",
            "No valid attention backend",
            "is not supported by",
            "does not support",
            "are not supported",
            "is incompatible with",
            "not compatible with",
            "is not implemented",
            "isn't supported",
            "not supported yet",
            "is only supported",
            "is not supported",
            "doesn't support",
            "is unsupported",
            "not yet implemented",
            "cannot be used with",
            "only supports",
            "is not valid for this configuration",
            "is not valid",
        ),
        r"^(?:\w+\.)*(?:ValueError|AssertionError|NotImplementedError|RuntimeError|Exception"
        r"|TypeError): (?!.*(?:SM ?\d|sm_\d|compute capab)).*(?:backends? (?:are|is) (?:only )?supported"
        "|backends? (?:are|is) allowed|not (?:yet )?supported|isn't supported"
        "|[Nn]o valid attention backend|does(?: not|n't) support|is(?: not|n't) (?:yet )?(?:implemented"
        "|compatible)|incompatible with|not compatible with|is only supported|is unsupported"
        r"|not yet implemented|cannot be used with|only supports?\b|is not valid(?: for this configuration"
        r"|\.{3} Reason)|[Pp]age sizes? .*not divisible)",
        "the engine has no such combination of model, back end and option",
        "another back end or without the option",
        "AssertionError: Only {'trtllm_mha', 'triton', 'fa4'} backends are supported on Blackwell GPUs "
        "for hybrid GDN models.",
        "WARNING: this backend is not supported, falling back",
        weight=2,
        knobs=(
            "--attention-backend",
            "--moe-runner-backend",
            "--prefill-attention-backend",
            "--decode-attention-backend",
            "--sampling-backend",
            "--kv-cache-dtype",
            "--enable-lora",
            "--quantization",
        ),
    ),
    root(
        "feature.head-size",
        "feature_unsupported",
        (
            "head_dim",
            "head_size",
            "Head size",
            "head dimension",
            "Unsupported head",
            "headdim",
            "page_size",
            "block_size",
        ),
        "(?:[Uu]nsupported|[Ii]nvalid|not supported|only supports?|must be).{0,60}(?:head_?(?:dim|size)"
        "|[Hh]ead (?:size|dimension)|page_size|block_size)|(?:head_?(?:dim|size)|[Hh]ead (?:size"
        "|dimension)|page_size|block_size).{0,60}(?:[Uu]nsupported|not supported|must be|is invalid)",
        "an attention kernel has no such head or page size",
        "another attention back end or page size",
        "ValueError: Head size 80 is not supported by PagedAttention.",
        "head_dim=128, page_size=64",
        weight=3,
        knobs=("--attention-backend", "--page-size", "--block-size"),
    ),
    root(
        "feature.lora-multimodal",
        "feature_unsupported",
        (
            "does not support LoRA",
            "LoRA is not supported",
            "is not a multimodal model",
            "At most ",
            "does not support pipeline parallel",
            "Pipeline parallelism is not supported",
            "does not support tool",
            "does not support image",
        ),
        "(?:does not support LoRA|LoRA is not supported|is not a multimodal model"
        r"|[Pp]ipeline parallel\w* is not supported|does not support pipeline)",
        "the model has no support for this option",
        "without the option",
        "ValueError: Model architecture X does not support LoRA yet.",
        "LoRA adapters loaded: 1",
        weight=3,
    ),
)
