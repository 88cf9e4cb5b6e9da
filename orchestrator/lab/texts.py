"""The YAML of a lab, in one place: its inventory, its short campaign, the patches of that campaign."""

from __future__ import annotations

from pathlib import Path

HOSTS = """\
# The simulated host. Everything it consists of lies below {root}.
hosts:
  lab:
    route: local
    target: kimi-lab
    gpu_tool: {root}/bin/nvidia-smi
    gpu_devices: ["{root}/dev/nvidia*"]

targets:
  kimi-lab:
    engine: sglang
    python: {root}/venv/bin/python
    source: {root}/tree/sglang
    model: {root}/models/kimi-k2.5
    gpus: [{gpus}]
    port: {port}
    args:
      tp-size: {gpu_count}
      cuda-graph-max-bs: 128
      disable-custom-all-reduce: true
      enable-metrics: true
      speculative-draft-model-path: {root}/models/kimi-k2.5-eagle3
    guarded: ["{site}"]
    ready: {{limit: 60s, stall: 5s}}
    stop_grace: 2s
"""

PLAYBOOK = """\
# A short campaign on the simulated host: a patch, a change of sitecustomize.py, a flag. It takes about twenty seconds.
campaign: lab-tour
description: Three ways to spend less time in all-reduces, on eight simulated GPUs without NVLink.
host: lab

workload: {prompt_tokens: 32, output_tokens: 48}
measure: {metric: output_tps, direction: higher, min_effect: 2%, repetitions: 3, launches: 2}

contexts:
  plain: {}
  speculative:
    args:
      speculative-algorithm: EAGLE3
      speculative-num-steps: 2
      speculative-eagle-topk: 1
      speculative-num-draft-tokens: 3

hypotheses:
  - id: fused-all-reduce
    claim: FlashInfer's fused all-reduce bypasses NCCL for small tensors
    why: each call costs the same whatever its size, so one fused kernel should win
    expect: 20%
    family: replace-all-reduce
    context: plain
    revisit_when: [flashinfer-python, gpu_arch]
    changes:
      - patch: patches/fused-all-reduce.patch

  - id: fewer-channels
    claim: two NCCL channels lower the latency of a small all-reduce
    why: 42 KB do not fill sixteen channels
    expect: 5%
    family: tune-nccl
    context: plain
    changes:
      - sitecustomize:
          env: {NCCL_MIN_NCHANNELS: "1", NCCL_MAX_NCHANNELS: "2"}

  - id: expert-parallel
    claim: expert parallelism replaces half of the all-reduces of the verify pass
    why: fewer calls instead of faster calls
    expect: 20%
    family: fewer-calls
    context: speculative
    changes:
      - args: {ep-size: 8}
"""

MODELS = {
    "kimi-k2.5": '{"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25"}\n',
    "kimi-k2.5-eagle3": '{"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}\n',
}

DISTRIBUTIONS = {
    "sglang": "0.5.10.post1",
    "torch": "2.9.1",
    "flashinfer-python": "0.6.7.post3",
    "sgl-kernel": "0.4.1",
    "nvidia-nccl-cu12": "2.27.5",
    "transformers": "5.3.0",
}

# What a campaign edits in the engine, as (file, line to find, lines to put there).
FUSED_ALL_REDUCE = (
    (
        "sglang/srt/layers/communicator.py",
        "    is_sm100_supported,",
        "    is_sm100_supported,\n    is_sm120_supported,",
    ),
    (
        "sglang/srt/layers/communicator.py",
        "_is_sm100_supported = _is_cuda and is_sm100_supported()",
        "_is_sm100_supported = _is_cuda and is_sm100_supported()\n"
        "_is_sm120_supported = _is_cuda and is_sm120_supported()",
    ),
    (
        "sglang/srt/layers/communicator.py",
        "        (_is_sm90_supported or _is_sm100_supported)",
        "        (_is_sm90_supported or _is_sm100_supported or _is_sm120_supported)",
    ),
    (
        "sglang/srt/server_args.py",
        "            and (is_sm90_supported() or is_sm100_supported())",
        "            and (is_sm90_supported() or is_sm100_supported() or is_sm120_supported())",
    ),
)
WRONG_OUTPUT = (
    (
        "sglang/srt/layers/activation.py",
        "        return silu(gate) * up",
        "        return max(0.0, gate) * up",
    ),
)
PATCHES = {"fused-all-reduce.patch": FUSED_ALL_REDUCE, "wrong-output.patch": WRONG_OUTPUT}


def hosts_text(root: Path, site: Path, *, port: int, gpu_count: int) -> str:
    """`hosts.yaml` of a lab."""
    gpus = ", ".join(map(str, range(gpu_count)))
    return HOSTS.format(root=root, site=site, port=port, gpu_count=gpu_count, gpus=gpus)


def sitecustomize_path_text(site: Path) -> str:
    """A `.pth` that puts the environment's own folder before the standard library.

    Some systems ship a `sitecustomize.py` beside the standard library, and would win otherwise. PYTHONPATH still comes
    first.
    """
    return f"import os, sys; sys.path.insert(sys.path.index(os.path.dirname(os.__file__)), {str(site)!r})\n"


def nvidia_smi_text(python: Path) -> str:
    """`bin/nvidia-smi`. A shell starts Python: a path in `#!` may neither be long nor hold a space."""
    return f'#!/bin/sh\nexec {quote(str(python))} -B -m lab_hardware.smi "$@"\n'


def metadata_text(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: stand-in of a simulated host\n"


def quote(text: str) -> str:
    """For a POSIX shell."""
    return "'" + text.replace("'", "'\\''") + "'"
