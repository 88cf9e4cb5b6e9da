"""Speculative decoding: draft and target do not fit, or the worker fails."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root

_KNOBS = (
    "--speculative-algorithm",
    "--speculative-draft-model-path",
    "--speculative-eagle-topk",
    "--speculative-num-steps",
    "--speculative-num-draft-tokens",
    "--speculative-config",
    "SGLANG_ENABLE_SPEC_V2",
    "--speculative-token-map",
    "--speculative-draft-attention-backend",
)

SIGNATURES: tuple[Signature, ...] = (
    root(
        "spec.draft-weights",
        "speculative",
        ("must match the size of tensor", "shape mismatch", "size mismatch for", "loaded_weight"),
        r"The size of tensor a \(\d+\) must match|shape mismatch|size mismatch for|loaded_weight",
        "the draft's weights do not have the shapes of this target",
        "a draft made for this target and this engine version",
        'Traceback (most recent call last):\n  File "/x/srt/models/llama_eagle3.py", line 231, in load_weights\n'
        "RuntimeError: The size of tensor a (163840) must match the size of tensor b (129280)",
        "RuntimeError: The size of tensor a (163840) must match the size of tensor b (129280)",
        knobs=_KNOBS,
        frames=r"(?:eagle|nextn|_mtp|medusa)\w*\.py\", line \d+, in (?:load_weights|weight_loader)",
    ),
    root(
        "spec.frames",
        "speculative",
        (
            "Sizes of tensors must match",
            "shapes cannot be multiplied",
            "must match the size of tensor",
            "Error",
            "Exception",
        ),
        "Sizes of tensors must match|shapes cannot be multiplied|must match the size of tensor"
        "|^(?:RuntimeError|ValueError|AssertionError|KeyError|IndexError|TypeError|AttributeError"
        r"|NotImplementedError)\b",
        "the draft path failed: draft and target do not fit, or this combination of draft options is not handled",
        "a draft made for this target; fewer options (topk 1); the engine's other version of speculation",
        'Traceback (most recent call last):\n  File "/x/srt/speculative/eagle_worker_v2.py", line 351, '
        "in draft\nRuntimeError: Sizes of tensors must match except in dimension 1.",
        "RuntimeError: Sizes of tensors must match except in dimension 1.",
        weight=2,
        knobs=_KNOBS,
        frames=("speculative/|spec_decode/|eagle|draft_worker|draft_runner|medusa|ngram_worker|multi_step_draft|/mtp"),
    ),
    root(
        "spec.words",
        "speculative",
        (
            "draft model",
            "Draft model",
            "speculative",
            "Speculative",
            "EAGLE",
            "eagle",
            "draft_model",
            "num_draft_tokens",
            "hot_token_id",
            "spec decode",
            "draft vocab",
            "NGRAM",
            "MTP",
        ),
        r"^(?:[\w.]+\.)?(?:ValueError|AssertionError|RuntimeError|NotImplementedError|KeyError"
        r"|AttributeError|Exception|TypeError): .*(?:[Dd]raft|[Ss]peculat|EAGLE|[Ee]agle\d?\b|hot_token_id"
        r"|[Ss]pec decode|MTP\b|NGRAM)",
        "speculative decoding was refused or failed",
        "a draft made for this target, other draft options, or without speculation",
        "ValueError: Draft model vocab size 32000 does not match the target's 128256",
        "Using EAGLE speculative decoding",
        weight=3,
        knobs=_KNOBS,
    ),
)
