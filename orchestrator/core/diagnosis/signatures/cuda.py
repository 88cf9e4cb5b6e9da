"""Faults of kernels and of graph capture."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Role, Signature, aside, root

SIGNATURES: tuple[Signature, ...] = (
    root(
        "cuda.assert-line",
        "device_assert",
        ("Assertion `", "ssertion `"),
        r"\.(?:cu|cuh|h|hpp):\d+: .*(?:block: \[|thread: \[).*Assertion `.*failed|CUDA kernel assert\w*"
        "|device-side assertion",
        "a kernel asserted: an index or value out of range; what follows is a poisoned context",
        "find where the value comes from: token map, vocabulary, block table; the first assert counts",
        "../aten/src/ATen/native/cuda/IndexKernel.cu:93: operator(): block: [27577,0,0], thread: "
        '[124,0,0] Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.',
        "static assertion passed",
        certainty="certain",
        loud=True,
        weight=4,
    ),
    root(
        "cuda.assert",
        "device_assert",
        ("device-side assert triggered", "cudaErrorAssert", "CUDA_ERROR_ASSERT"),
        "device-side assert triggered|CUDA_ERROR_ASSERT|(?<!`)cudaErrorAssert(?!')",
        "a kernel asserted earlier; this line only notices it",
        "CUDA_LAUNCH_BLOCKING=1 and the first Assertion line",
        "RuntimeError: CUDA error: device-side assert triggered",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    ),
    root(
        "cuda.illegal",
        "illegal_memory_access",
        (
            "illegal memory access",
            "misaligned address",
            "unspecified launch failure",
            "CUDA_ERROR_ILLEGAL_ADDRESS",
            "cudaErrorIllegalAddress",
            "cudaErrorMisalignedAddress",
            "cudaErrorLaunchFailure",
            "Warp Illegal Address",
            "CUDA_ERROR_LAUNCH_FAILED",
            "illegal instruction was encountered",
            "Warp Out-of-range",
            "an illegal instruction",
        ),
        "an illegal memory access was encountered|misaligned address|unspecified launch failure"
        "|CUDA_ERROR_ILLEGAL_ADDRESS|CUDA_ERROR_LAUNCH_FAILED|Warp (?:Illegal|Out-of-range)"
        "|illegal instruction was encountered|(?<!`)cudaError(?:IllegalAddress|MisalignedAddress"
        "|LaunchFailure)(?!')",
        "a kernel touched memory it must not; the Python line is where it was noticed",
        "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer; switch off the newest optimisation first",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "memory access pattern",
    ),
    root(
        "cuda.launch-config",
        "unsupported_arch",
        (
            "invalid configuration argument",
            "too many resources requested for launch",
            "invalid argument",
            "cudaErrorLaunchOutOfResources",
        ),
        "CUDA error: (?:invalid configuration argument|too many resources requested for launch)"
        "|cudaErrorLaunchOutOfResources|too many resources requested for launch",
        "a kernel was launched with a shape this GPU does not allow",
        "another kernel configuration or back end",
        "RuntimeError: CUDA error: too many resources requested for launch",
        "invalid argument",
        weight=2,
    ),
    root(
        "cuda.cublas",
        "illegal_memory_access",
        ("CUBLAS_STATUS_", "CUDNN_STATUS_", "CUSPARSE_STATUS", "CUSOLVER_STATUS"),
        "CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|NOT_SUPPORTED|NOT_INITIALIZED"
        r"|ARCH_MISMATCH)|CUDNN_STATUS_(?!SUCCESS)\w+",
        "a CUDA math library failed: a mixed installation, too little memory, or an earlier fault",
        "check which cuBLAS or cuDNN is loaded (LD_LIBRARY_PATH) and free memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
        "CUBLAS_STATUS_SUCCESS",
        weight=1,
        certainty="possible",
        knobs=("LD_LIBRARY_PATH",),
    ),
    root(
        "capture.sync",
        "graph_capture",
        (
            "when stream is capturing",
            "cudaErrorStreamCaptureUnsupported",
            "cudaErrorStreamCaptureImplicit",
            "during capture",
            "is capturing",
            "cudaErrorStreamCaptureUnjoined",
            "cudaErrorStreamCaptureIsolation",
            "legacy stream depend on a capturing",
            "CUDA graph capture failed",
        ),
        "operation not permitted when stream is capturing|legacy stream depend on a capturing"
        "|(?<!`)cudaErrorStreamCapture(?:Unsupported|Implicit|Unjoined|Isolation)(?!')"
        "|[Cc]annot .{0,60}during (?:CUDA )?graph capture|while (?:the )?stream is capturing",
        "something synchronises or allocates inside a CUDA graph capture",
        "remove the synchronising call; the advice on memory is generic",
        "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing",
        "stream capture ended",
        certainty="certain",
        weight=4,
        knobs=("NCCL_ALGO", "--disable-cuda-graph", "--enable-torch-compile"),
    ),
    root(
        "capture.register-buffers",
        "graph_capture",
        ("invalid argument", "custom_all_reduce.cu"),
        r"^\w*Error: (?:CUDA error: )?invalid argument|custom_all_reduce\.cuh?:\d+ ?'?invalid argument"
        "|Failed: Cuda error .*custom_all_reduce",
        "custom all-reduce cannot export its graph buffers by CUDA IPC, as with expandable segments or a memory saver",
        "without expandable_segments and memory saver, or --disable-custom-all-reduce",
        'Traceback (most recent call last):\n  File "/x/custom_all_reduce.py", line 307, in '
        "register_graph_buffers\nRuntimeError: invalid argument",
        "RuntimeError: invalid argument",
        frames="register_graph_buffers|custom_all_reduce",
        weight=4,
        knobs=(
            "PYTORCH_CUDA_ALLOC_CONF",
            "PYTORCH_ALLOC_CONF",
            "--enable-memory-saver",
            "--disable-custom-all-reduce",
        ),
    ),
    root(
        "capture.custom-ar",
        "graph_capture",
        ("custom_all_reduce.cu", "custom_all_reduce"),
        r"custom_all_reduce\.cuh?:\d+.*(?:invalid argument|fail|error)"
        r"|Failed: Cuda error \S*custom_all_reduce",
        "custom all-reduce fails on its graph buffers, as with expandable segments",
        "without expandable_segments, or --disable-custom-all-reduce",
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'",
        "custom_all_reduce enabled",
        weight=4,
        knobs=("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "--disable-custom-all-reduce"),
    ),
    root(
        "capture.failed",
        "graph_capture",
        (
            "Capture cuda graph failed",
            "Capture CUDA graph failed",
            "graph capture failed",
            "Graph capture failed",
            "CUDA graph capture",
            "Failed to capture",
            "ailed to capture cuda graph",
        ),
        r"[Cc]apture (?:\w+ )*(?:cuda|CUDA) graph failed|(?:CUDA |cuda )?[Gg]raph capture (?:failed|error)"
        "|[Ff]ailed to capture (?:cuda |CUDA )?graph",
        "CUDA graph capture failed; the text behind it is the cause, the advice on memory is generic",
        "read the first exception of the chain",
        "Exception: Capture cuda graph failed: something odd",
        "Capture cuda graph end.",
        weight=1,
        certainty="possible",
        knobs=("--cuda-graph-max-bs", "--disable-cuda-graph"),
    ),
    aside(
        Role.HINT,
        "capture.invalidated",
        ("previous error during capture", "StreamCaptureInvalidated"),
        "previous error during capture|StreamCaptureInvalidated",
        "an earlier error broke the capture",
        "torch.AcceleratorError: CUDA error: operation failed due to a previous error during capture",
        "capture ended",
    ),
)
