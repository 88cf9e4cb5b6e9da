"""Lines that wrap or follow a cause and are never it, and lines that healthy servers print."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Role, Signature, aside

SIGNATURES: tuple[Signature, ...] = (
    aside(
        Role.HINT, "wrap.vllm",
        (
            "Engine core initialization failed", "EngineCore failed to start", "EngineCore encountered",
            "EngineDeadError", "WorkerProc initialization failed", "Worker failed with error",
            "Engine process failed to start", "See root cause above", "See stack trace",
            "WorkerProc failed to start", "WorkerProc hit an exception", "MQEngineDeadError",
            "please check the stack trace above", "Engine loop is not running",
            "Got fatal signal from worker", "AsyncEngineDeadError", "Background loop has errored",
            "Executor failed",
        ),
        "Engine core initialization failed|EngineCore (?:failed to start|encountered)|EngineDeadError"
        "|WorkerProc (?:initialization failed|failed to start|hit an exception)|Worker failed with error"
        "|Engine process failed to start|Background loop|Engine loop is not running"
        "|Got fatal signal from worker|Executor failed",
        "wraps or follows the cause",
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "Engine core initialized",
    ),
    aside(
        Role.HINT, "wrap.sglang",
        (
            "Received sigquit", "SIGQUIT received", "kill_process_tree", "Initialization failed",
            "crash diagnostics", "scheduler is dead", "Exit code:", "hit an exception",
            "No live scheduler processes", "warmup error",
        ),
        r"Received sigquit|SIGQUIT received|kill_process_tree called|Initialization failed\."
        "|crash diagnostics|Exit code: |hit an exception|No live scheduler",
        "wraps or follows the cause",
        "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
        "signal handler installed",
    ),
    aside(
        Role.HINT, "wrap.eof",
        (
            "EOFError", "CancelledError", "RuntimeError: cancelled", "KeyboardInterrupt", "SystemExit",
            "ActorHandleNotFoundError", "RayTaskError", "BrokenProcessPool", "ChildFailedError",
            "ServerDisconnected", "generator didn't stop", "IncompleteReadError", "Event loop is closed",
            "RequestAborted", "ConnectionRefusedError", "ClientDisconnect", "resource_tracker",
        ),
        r"^(?:[\w.]+\.)?(?:EOFError\s*$|CancelledError|KeyboardInterrupt|SystemExit"
        r"|ActorHandleNotFoundError|RayTaskError\(|BrokenProcessPool|ChildFailedError"
        "|ServerDisconnectedError|IncompleteReadError|ClientDisconnect)|RuntimeError: (?:cancelled"
        "|Event loop is closed)",
        "wraps or follows the cause",
        "RuntimeError: cancelled",
        "the request was cancelled",
    ),
    aside(
        Role.HINT, "wrap.trtllm",
        (
            "Encountered an error", "MPI_ABORT", "Executor worker returned error",
            "Failed to initialize executor", "RequestError", "Worker process", "mpi4py",
        ),
        "Executor worker returned error|MPI_ABORT was invoked|Failed to initialize executor on rank"
        "|MPI_Abort",
        "wraps or follows the cause",
        "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD",
        "MPI size: 2",
    ),
    aside(
        Role.HINT, "wrap.pool-timeout",
        ("Application timeout caused pair closure",),
        "Application timeout caused pair closure",
        "wraps or follows the cause",
        "RuntimeError: Application timeout caused pair closure",
        "pair closed",
    ),
    aside(
        Role.NOISE, "noise.import",
        (
            "Ignore import error", "Can not initialize OpenAIServingResponses", "Responses API",
            "Failed to import from vllm", "multimem all-gather disabled", "Cannot detect CUDA architecture",
            "Skipping import of cpp extensions", "Failed to load image Python extension",
            "Triton is not installed", "Unable to import",
        ),
        "Ignore import error when loading|Can not initialize OpenAIServingResponses"
        "|OpenAI Responses API .* disabled|Failed to import from vllm|multimem all-gather disabled"
        "|Cannot detect CUDA architecture|Skipping import of cpp extensions"
        "|Failed to load image Python extension|Triton is not installed",
        "healthy servers print this too",
        "Ignore import error when loading sglang.srt.models.inkling: No module named 'cutlass'",
        "ModuleNotFoundError: No module named 'cutlass'",
    ),
    aside(
        Role.NOISE, "noise.exit",
        (
            "nanobind: leaked", "leaked instance", "leaked type", "leaked function",
            "resource_tracker: There appear to be", "destroy_process_group() was not called",
            "leaked semaphore", "leaked shared_memory", "exit code: -15", "exit code -15", "exit code: -2",
            "Parent process exited",
        ),
        "nanobind: leaked|leaked (?:instance|type|function|semaphore|shared_memory)"
        r"|destroy_process_group\(\) was not called|exit code:? -(?:15|2)\b|Parent process exited",
        "healthy servers print this too",
        "resource_tracker: There appear to be 3 leaked semaphore objects to clean up at shutdown",
        "memory leak detected!",
    ),
    aside(
        Role.NOISE, "noise.diagnostics",
        (
            "Pyspy failed", "py-spy", "pyspy dump attempts failed", "CUDA coredump pipe not found",
            "Fail to set RLIMIT_NOFILE", "Found ulimit of",
        ),
        "Pyspy failed|py-spy: (?:command )?not found|pyspy dump attempts failed"
        "|CUDA coredump pipe not found|Fail to set RLIMIT_NOFILE|Found ulimit of",
        "healthy servers print this too",
        "Pyspy failed to dump PID 113688. Error: /bin/bash: line 1: py-spy: command not found",
        "Pyspy dump for PID 2318:",
    ),
    aside(
        Role.NOISE, "noise.advice",
        (
            "set --mem-fraction-static to a", "If reserved but unallocated", "CUDA kernel errors might be",
            "For debugging consider passing", "Compile with `TORCH_USE_CUDA_DSA`", "Search for `cudaError",
            "disable CUDA graph by", "set --cuda-graph-max-bs to a", "disable torch compile by",
        ),
        r"^\d\. (?:set|disable) |^CUDA kernel errors might be|^For debugging consider"
        "|^Compile with `TORCH_USE_CUDA_DSA`|^Search for `cudaError",
        "healthy servers print this too",
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
        "--mem-fraction-static is 0.8",
    ),
    aside(
        Role.NOISE, "noise.socket",
        (
            "errno: 97", "Address family not supported", "ncclNetPlugin", "ncclCollNetPlugin", "NET/Plugin",
            "TUNER/Plugin", "libnccl-net.so", "libnccl-tuner",
        ),
        "errno: 97|Address family not supported|nccl(?:Net|CollNet|Tuner|Profiler)Plugin|(?:NET|TUNER"
        "|PROFILER)/Plugin|libnccl-(?:net|tuner|profiler)",
        "healthy servers print this too",
        "NCCL INFO NET/Plugin: Failed to find ncclNetPlugin_v7 symbol.",
        "NCCL WARN Bootstrap : no socket interface found",
    ),
    aside(
        Role.NOISE, "noise.ollama",
        (
            "skipping CUDA device", "unable to locate gpu dependency", "VRAM usage didn't recover",
            "key with type not found", "unable to refresh free memory",
        ),
        "skipping CUDA device|unable to locate gpu dependency|VRAM usage didn't recover"
        "|key with type not found|unable to refresh free memory",
        "healthy servers print this too",
        'msg="skipping CUDA device - compute capability not in compiled architectures"',
        "no compatible GPUs were discovered",
    ),
    aside(
        Role.NOISE, "noise.ignored",
        ("Exception ignored in",),
        "^Exception ignored in",
        "healthy servers print this too",
        "Exception ignored in: <function x>",
        "ignored",
    ),
    aside(
        Role.NOISE, "noise.client",
        (
            "Invalid HTTP request received", "Aborted by AbortReq", "Exception in ASGI application",
            "client disconnected", "Client disconnected", "400 Bad Request", "The input (",
            "input is longer than the model's context", "maximum context length is",
        ),
        "Invalid HTTP request received|Aborted by AbortReq|Exception in ASGI application"
        "|[Cc]lient disconnected|maximum context length is|longer than the model's context"
        r"|The input \(\d+ tokens\)",
        "healthy servers print this too",
        "WARNING:  Invalid HTTP request received.",
        "HTTP server started",
    ),
    aside(
        Role.NOISE, "noise.retry",
        ("retrying", "Retrying", "will retry", "Retry "),
        r"\b[Rr]etrying\b|\bwill retry\b|\bRetry \d",
        "healthy servers print this too",
        "Error retrieving file list: timed out, retrying 1 of 2",
        "retries exhausted",
    ),
    aside(
        Role.NOISE, "noise.fallback",
        ("falling back", "Falling back", "fall back to", "fallback to", "Fallback to"),
        r"\b[Ff]all(?:ing)? ?back to\b|\b[Ff]alling back\b|Fallback to\b",
        "healthy servers print this too",
        "FlashInfer is not available. Falling back to PyTorch-native sampling",
        "no fallback exists",
    ),
)
