"""How far a start got: the lines by which engines announce their phases, and signs that requests are served."""

from __future__ import annotations

from orchestrator.core.diagnosis.model import Phase

PHASES: tuple[Phase, ...] = ("import", "args", "dist", "weights", "kv", "graphs", "warmup", "ready")

PHASE_MARKS: tuple[tuple[str, Phase], ...] = (
    ("Automatically detected platform", "import"),
    ("is still supported, but 'sglang serve'", "import"),
    ("vLLM API server version", "import"),
    ("server_args=ServerArgs(", "args"),
    ("server_args={", "args"),
    ("non-default args:", "args"),
    ("Resolved architecture:", "args"),
    ("Initializing a V1 LLM engine", "args"),
    ("Initializing an LLM engine", "args"),
    ("Init torch distributed begin", "dist"),
    ("Init parallel begin", "dist"),
    ("Init torch distributed ends", "dist"),
    ("Init parallel ends", "dist"),
    ("Memory baseline taken", "dist"),
    ("distributed_init_method=", "dist"),
    (" is using nccl==", "dist"),
    ("NCCL version", "dist"),
    ("lacement group", "dist"),
    ("] MPI size:", "dist"),
    ("Load weight begin", "weights"),
    ("Starting to load model", "weights"),
    ("Loading safetensors checkpoint shards", "weights"),
    ("Loading pt checkpoint shards", "weights"),
    ("Multi-thread loading shards", "weights"),
    ("Loading checkpoint shards", "weights"),
    ("Loading model weights took", "kv"),
    ("Loading weights took", "weights"),
    ("llama_model_loader:", "weights"),
    ("load_tensors:", "weights"),
    ('msg="starting runner"', "weights"),
    ('msg="model weights"', "weights"),
    ("Loaded engine size", "weights"),
    ("Load weight end", "kv"),
    ("Model loading took", "kv"),
    ("Available KV cache memory", "kv"),
    ("KV Cache is allocated", "kv"),
    ("Memory pool end", "kv"),
    ("GPU KV cache size", "kv"),
    ("# GPU blocks:", "kv"),
    ("llama_kv_cache", "kv"),
    ("llama_context: ", "kv"),
    ("Max KV cache pages per sequence", "kv"),
    ("MemUsageChange", "kv"),
    ("Capture cuda graph", "graphs"),
    ("CUDA graph begin", "graphs"),
    ("CUDA graph end", "graphs"),
    ("Capturing batches", "graphs"),
    ("Capturing CUDA graph", "graphs"),
    ("Capturing cudagraphs", "graphs"),
    ("Capturing the model for CUDA graphs", "graphs"),
    ("Graph capturing finished", "graphs"),
    ("Running FlashInfer autotune", "graphs"),
    ("FlashInfer autotune completed", "graphs"),
    ("cuda graph addresses", "graphs"),
    ("max_total_num_tokens=", "warmup"),
    ("init engine (profile", "warmup"),
    ("Uvicorn running on", "warmup"),
    ("Waiting for application startup", "warmup"),
    ("Available routes are", "warmup"),
)
"""Literals of start-up lines and the phase that each of them proves. "Load weight end" opens "kv"."""

READY_MARKS: tuple[str, ...] = (
    "fired up and ready to roll",
    "llama runner started in",
    "server is listening on http",
    "main: server is listening",
    "all slots are idle",
    "Decode batch",
    "Avg prompt throughput",
    "Avg generation throughput",
    "gen throughput (token/s)",
    "Processed prompts: 100%",
    " passed in ",
)
"""Literals that only a server that came up (or a job that did its work) prints."""

STARTED = "Application startup complete"
"""vLLM and plain servers print this when they serve; SGLang prints it before its warm-up, in its own format."""

ANSWER_MARKS: tuple[str, ...] = (
    'POST /generate HTTP/1.1" 200',
    'POST /v1/chat/completions HTTP/1.1" 200',
    'POST /v1/completions HTTP/1.1" 200',
    'POST /v1/embeddings HTTP/1.1" 200',
    'POST /v1/responses HTTP/1.1" 200',
    'POST /v1/score HTTP/1.1" 200',
    '"/api/generate"',
    '"/api/chat"',
    '"/v1/chat/completions"',
)
"""Literals of a generation that was answered; the last three are ollama's, whose status stands before the path."""

LOST_MARKS: tuple[str, ...] = (
    "SIGQUIT received",
    "Received sigquit from a child",
    "crashed with exit code",
    "EngineDeadError",
    "EngineCore encountered a fatal error",
    "EngineCore failed to start",
    "Engine core initialization failed",
    "Engine process failed to start",
    "died unexpectedly",
    "died, exit code:",
    "is dead. Please check if there are relevant logs",
    "died during initialization",
    "exited with signal",
    "llama runner process has terminated",
    "llama runner terminated",
    "MPI_ABORT was invoked",
    "Fatal Python error",
    "terminate called after throwing",
    "Segfault encountered",
    "Got fatal signal from worker processes",
)
"""Literals by which an engine itself says that it is lost."""

SHUTDOWN_MARKS: tuple[str, ...] = (
    "SIGTERM received",
    "Received SIGTERM",
    "received SIGTERM",
    "Gracefully exiting",
    "Received SIGINT",
    "received SIGINT",
    "received signal 15",
    "received signal 2",
    "signal SIGTERM",
    "KeyboardInterrupt: terminated",
    "docker stop",
    "Stopping container",
)
"""Literals of an end that somebody asked for."""
