"""A server that lives and yet does not do what was asked for."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, warn

SIGNATURES: tuple[Signature, ...] = (
    warn(
        "wrong.nan", "wrong_output",
        (
            "NaN in the logits", "nan in logits", "Detected errors during sampling",
            "probability tensor contains", "NaN detected", "nan detected", "contains NaN", "inf or nan",
            "NaNs", "float values are not JSON compliant",
        ),
        "NaN in the logits|[Dd]etected errors during sampling|probability tensor contains either"
        "|NaN(?:s)? (?:detected|found)|nan (?:detected|in logits)|contains NaN"
        "|float values are not JSON compliant",
        "the model computes NaN: its answers are worthless",
        "take back the last change of kernel, dtype or quantisation; check weights",
        "Detected errors during sampling! NaN in the logits.",
        "no nan check is done",
        weight=4, knobs=("--kv-cache-dtype", "--quantization", "--attention-backend"),
    ),
    warn(
        "wrong.output", "wrong_output",
        (
            "garbled", "gibberish", "repeated token", "!!!!!!!!!!", "garbage output", "output mismatch",
            "accuracy dropped", "Output mismatch", "wrong output", "incorrect output", "nonsense",
            "repetition detected", "outputs differ", "expected output",
        ),
        "garbled|gibberish|garbage output|(?:[Oo]utput|[Aa]nswer)s? (?:mismatch|differs?"
        "|do(?:es)? not match)|accuracy dropped|(?:wrong|incorrect) output|(?:text|content|output"
        r"|response)\W{1,6}!{10}|nonsens|repetition detected",
        "the answers are wrong although nothing failed",
        "compare with a known good configuration, change by change",
        '{"text": "!!!!!!!!!!!!!!!!"',
        "!!!!!!! Segfault encountered !!!!!!!",
        weight=3,
    ),
    warn(
        "slow.cpu", "degraded",
        (
            "no compatible GPUs were discovered", "offloaded 0/", "no GPU detected", "No GPU found",
            "library=cpu", "entering low vram mode", "no usable GPU found", "compiled without GPU",
            "compiled without support for GPU", "no GPU found", 'inference compute" id=cpu',
        ),
        r"no compatible GPUs were discovered|offloaded 0/\d+ layers|no usable GPU found"
        r"|compiled without (?:support for )?GPU|library=cpu\b|[Nn]o GPU (?:detected|found)|id=cpu library",
        "the model runs on the CPU: no GPU was found or taken",
        "driver, container GPU option, and the libraries the runner lists",
        'msg="no compatible GPUs were discovered"',
        "offloaded 37/37 layers to GPU",
        weight=4,
    ),
    warn(
        "slow.partial-offload", "degraded",
        ("layers to GPU",),
        r"offloaded (\d+)/(?!\1 )\d+ layers to GPU",
        "only a part of the layers is on the GPU",
        "free GPU memory, a smaller context or a smaller quantisation",
        "load_tensors: offloaded 20/37 layers to GPU",
        "load_tensors: offloaded 37/37 layers to GPU",
        weight=3,
    ),
    warn(
        "slow.retract", "degraded",
        ("KV cache pool is full. Retract", "Retract requests", "is preempted by", "PreemptionMode"),
        r"KV cache pool is full\. Retract|Retract requests|is preempted by PreemptionMode",
        "the KV pool is too small for the load: requests are thrown out and computed again",
        "fewer running requests or more KV memory; throughput figures are tainted",
        "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.7",
        "retracted 0",
        weight=2, knobs=("--max-running-requests", "--mem-fraction-static"),
    ),
    warn(
        "slow.draft", "degraded",
        (
            "accept len: 1.0", "accept rate: 0.0", "acceptance rate: 0.0", "acceptance length: 1.0",
            "acceptance rate: 0.",
        ),
        r"accept len: 1\.0\d|accept rate: 0\.0\d|[Aa]cceptance rate: 0?\.?0\.?0?\d?%?\b(?!\.[1-9])"
        r"|acceptance length: 1\.0\d",
        "the draft is useless: next to nothing of it is accepted",
        "a draft made for this target",
        "accept len: 1.02, accept rate: 0.01",
        "accept len: 6.95, accept rate: 0.87",
        weight=2,
    ),
    warn(
        "slow.no-op", "degraded",
        (
            "communicator is not available", "multicast operations are not supported", "no pcie_ipc_comm",
            "PyMscclpp is unavailable", "Failed to initialize MSCCL++",
            "Setup FlashInfer PCIe-IPC allreduce failed",
        ),
        "TorchSymmMemCommunicator: .*communicator is not available|multicast operations are not supported"
        r"|no pcie_ipc_comm|PyMscclpp is unavailable|Failed to initialize MSCCL\+\+"
        "|PCIe-IPC allreduce failed",
        "a communication path that was asked for is not there and was left out silently",
        "the experiment measures something else: do not count it",
        "TorchSymmMemCommunicator: Device capability 12 not supported, communicator is not available.",
        "communicator ready",
        weight=3, knobs=("--enable-torch-symm-mem", "--enable-mscclpp"),
    ),
    warn(
        "slow.thermal", "degraded",
        (
            "HW Slowdown", "Thermal Slowdown", "thermal slowdown", "thermal throttl", "power brake",
            "Power Brake", "clocks throttled", "SW Power Cap", "throttling detected",
        ),
        r"(?:HW|SW|Thermal|thermal|[Pp]ower [Bb]rake)\w* ?(?:Thermal )?[Ss]lowdown(?: Active|.*: Active"
        r"|\b.*detected)|thermal throttl|clocks? throttled|throttling detected",
        "the GPU runs below its clock",
        "cooling and power of the host",
        "GPU 3: HW Slowdown: Active",
        "HW Slowdown: Not Active",
        weight=2,
    ),
    warn(
        "slow.socket", "degraded",
        ("NET/IB : No device found", "Using network Socket", "Using non-device net plugin"),
        "Using network Socket",
        "NCCL runs over TCP sockets",
        "RDMA devices visible in the container, NCCL_IB_* variables",
        "NCCL INFO Using network Socket",
        "NCCL INFO Using network IB",
        weight=-1, knobs=("NCCL_IB_DISABLE", "NCCL_NET"),
    ),
)
