"""llama.cpp and ollama."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root, symptom
from orchestrator.core.diagnosis.undecided import OOM

SIGNATURES: tuple[Signature, ...] = (
    root(
        "llama.malloc", OOM,
        (
            "cudaMalloc failed: out of memory", "failed to allocate CUDA", "unable to allocate CUDA",
            "alloc_tensor_range", "failed to allocate buffer for kv cache", "requires more system memory",
            "failed to allocate compute", "graph_reserve: failed to allocate",
            "unable to allocate backend buffer", "insufficient VRAM", "ErrorOutOfDeviceMemory",
        ),
        r"cudaMalloc failed: out of memory|(?:failed|unable) to allocate (?:CUDA|ROCm|Vulkan)\d* ?buffer"
        "|unable to allocate backend buffer|insufficient VRAM|ErrorOutOfDeviceMemory",
        "a GPU buffer did not fit",
        "fewer layers on the GPU, a smaller context or quantisation",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5000.00 MiB on device 0: cudaMalloc "
        "failed: out of memory",
        "allocating 5000.00 MiB on device 0",
        loud=True,
    ),
    root(
        "llama.kv", "oom_kv_cache",
        ("buffer for kv cache", "failed to create KV cache", "kv cache"),
        "failed to (?:allocate|create) (?:buffer for )?(?:the )?[kK][vV] cache"
        r"|llama_kv_cache\S* .*(?:failed|out of memory)",
        "the KV cache does not fit beside the weights",
        "a smaller context, fewer parallel slots, a quantised cache",
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
        "kv cache size = 512 MiB",
        weight=4, loud=True, knobs=("--ctx-size", "-c", "OLLAMA_CONTEXT_LENGTH", "OLLAMA_NUM_PARALLEL"),
    ),
    root(
        "llama.compute", "oom_runtime",
        ("failed to allocate compute", "graph_reserve: failed"),
        "failed to allocate compute (?:pp )?buffers?|graph_reserve: failed to allocate",
        "the compute buffers do not fit",
        "a smaller batch (-ub) or context",
        "llama_init_from_model: failed to allocate compute pp buffers",
        "compute buffer size = 300 MiB",
        weight=2, loud=True,
    ),
    root(
        "llama.system-memory", "host_oom",
        ("requires more system memory",),
        "requires more system memory",
        "the model needs more RAM than is free",
        "a smaller model or more RAM",
        "model requires more system memory (42.1 GiB) than is available (30.0 GiB)",
        "system memory total=64 GiB",
        loud=True, certainty="certain", weight=4,
    ),
    root(
        "llama.architecture", "model_files",
        (
            "unknown model architecture", "unknown pre-tokenizer type", "unsupported model architecture",
            "error loading model vocabulary", "error loading model hyperparameters",
        ),
        "un(?:known|supported) model architecture|unknown pre-tokenizer type"
        "|error loading model (?:vocabulary|hyperparameters)",
        "this build does not know the model",
        "a newer build",
        "llama_model_load: error loading model: error loading model architecture: unknown model "
        "architecture: 'qwen3next'",
        "model architecture: qwen3",
        loud=True, weight=4,
    ),
    root(
        "llama.file", "model_files",
        (
            "error loading model", "failed to load model", "invalid magic", "wrong number of tensors",
            "missing tensor", "is corrupted or incomplete", "failed to open GGUF file",
            "unable to load model",
        ),
        "error loading model: (?!.*(?:allocate|memory|architecture))|failed to open GGUF file"
        "|invalid magic|wrong number of tensors|missing tensor|corrupted or incomplete"
        "|unable to load model",
        "the model file cannot be read by this build",
        "download it again; a newer build for a newer format",
        "llama_model_load: error loading model: missing tensor 'blk.0.ffn_gate.weight'",
        "model loaded",
        loud=True, weight=3,
    ),
    root(
        "llama.load-failed", "model_files",
        ("failed to load model",),
        "failed to load model",
        "the model was not loaded; the lines above say why",
        "read the first error above",
        "main: error: failed to load model '/models/x.gguf'",
        "loading model",
        weight=1, certainty="possible",
    ),
    root(
        "llama.ggml-assert", "illegal_memory_access",
        ("GGML_ASSERT(", "ggml_abort", "fatal error"),
        r"GGML_ASSERT\(.*\) failed|ggml\S*: fatal error|GGML_ABORT",
        "an assertion of ggml failed: a bug, or a shape that this back end does not take",
        "another build or back end; report it with this line",
        "/src/ggml/src/ggml-cuda.cu:96: GGML_ASSERT(n_tokens > 0) failed",
        "assertions enabled",
        weight=2, certainty="possible",
    ),
    root(
        "llama.cuda-init", "driver_mismatch",
        (
            "ggml_cuda_init: failed", "failed to initialize CUDA", "cuda driver library failed",
            "cudart init failure", "failed to initialize cuda",
        ),
        "failed to initialize CUDA: |cuda driver library failed to|cudart init failure"
        "|ggml_cuda_init: failed",
        "CUDA does not initialise: driver too old, missing, or in a bad state",
        "check nvidia-smi; reload nvidia_uvm",
        "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA "
        "runtime version",
        "ggml_cuda_init: found 1 CUDA devices:",
        weight=3,
    ),
    symptom(
        "llama.runner", "worker_died_silently",
        (
            "llama runner process has terminated", "llama runner terminated", "llama-server exited",
            "runner terminated",
        ),
        "llama runner (?:process has )?terminated",
        "the runner ended; the lines above it say why",
        "read the runner's own lines above",
        'msg="llama runner terminated" error="exit status 2"',
        "llama runner started in 4.48 seconds",
        weight=2, loud=True,
    ),
)
