"""GPU memory ran out: while loading, for the KV pool, at graph capture, at a request, or because others hold it."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root
from orchestrator.core.diagnosis.undecided import KILLED, OOM

_KNOBS = (
    "--mem-fraction-static",
    "--gpu-memory-utilization",
    "--max-model-len",
    "--context-length",
    "--cuda-graph-max-bs",
    "--chunked-prefill-size",
    "--max-running-requests",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--page-size",
)

SIGNATURES: tuple[Signature, ...] = (
    root(
        "oom.torch",
        OOM,
        ("CUDA out of memory", "CUDA error: out of memory", "HIP out of memory", "OutOfMemoryError"),
        r"(?:CUDA|HIP) out of memory\.?(?: Tried| occurred|$|\s)|CUDA error: out of memory"
        r"|torch\.(?:cuda\.)?OutOfMemoryError",
        "a GPU allocation did not fit",
        "see the phase: shard or quantise weights, shrink the KV pool or the batch",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 84.00 MiB.",
        "If reserved memory is large set max_split_size_mb to avoid fragmentation",
        knobs=_KNOBS,
    ),
    root(
        "oom.runtime-api",
        OOM,
        (
            "cudaErrorMemoryAllocation",
            "CUDA_ERROR_OUT_OF_MEMORY",
            "CUDA Error: out of memory",
            "Cuda failure 'out of memory'",
            "Cuda failure 2 'out of memory'",
            "Failed to CUDA calloc",
            "Failed to CUDA malloc",
            "CUBLAS_STATUS_ALLOC_FAILED",
            "): out of memory",
            "ErrorOutOfMemory",
        ),
        "cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|CUDA Error: out of memory|'out of memory'"
        "|Failed to CUDA (?:calloc|malloc)|CUBLAS_STATUS_ALLOC_FAILED"
        "|CUDA runtime error in .*: out of memory",
        "a library outside torch found no GPU memory left",
        "leave it room: lower the memory fraction",
        "RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:163",
        "gpu memory: 3 GB free",
        weight=3,
        knobs=_KNOBS,
    ),
    root(
        "oom.sglang-fraction",
        "oom_kv_cache",
        ("Not enough memory. Please try to increase --mem-fraction-static", "Not enough memory. Please try"),
        r"Not enough memory\. Please try",
        "the weights leave no room for the KV pool within the memory fraction",
        "raise --mem-fraction-static or free the GPU; if both fail the model is too big",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
        knobs=_KNOBS,
        certainty="certain",
    ),
    root(
        "oom.kv-none",
        "oom_kv_cache",
        (
            "No available memory for the cache blocks",
            "Loaded weights leave no GPU memory for the KV cache",
            "max seq len",
            "KV cache is needed, which is larger",
            "larger than the maximum number of tokens that can be stored",
        ),
        "No available memory for the cache blocks|Loaded weights leave no GPU memory for the KV cache"
        "|To serve at least one request with the models?'s? ?max seq len"
        "|KV cache is needed, which is larger"
        r"|max seq len \(\d+\) is larger than the maximum number of tokens that can be stored in KV cache",
        "what the weights leave is too little KV cache for one request of the longest allowed length",
        "lower the maximum length, raise the memory fraction, or use more GPUs",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
        "max seq len is 8192",
        knobs=_KNOBS,
        certainty="certain",
    ),
    root(
        "oom.kv-max-len",
        "oom_kv_cache",
        ("KV cache memory",),
        r"^(?:\w*Error: )?.*(?:estimated maximum model length"
        "|needed.* larger than the available KV cache memory)",
        "one request of the longest allowed length does not fit into the KV cache",
        "lower --max-model-len",
        "ValueError: 4.5 GiB is needed, which is larger than the available KV cache memory (1.71 GiB)",
        "Available KV cache memory: 1.71 GiB",
        knobs=_KNOBS,
    ),
    root(
        "oom.pool-configured",
        "oom_kv_cache",
        (
            "max_total_num_tokens",
            "KV cache pool is too small",
            "No enough GPU memory for KV",
            "kv cache size is too small",
            "Memory pool size is too small",
            "max_num_token",
        ),
        "(?:Error|assert)(?!.*leak detected).*max_total_num_tokens|KV cache pool is too small"
        "|No enough GPU memory for KV"
        "|[Kk][Vv] cache size is too small|Memory pool size is too small",
        "the KV pool came out too small for what was asked",
        "raise the memory fraction or lower length and batch",
        "AssertionError: max_total_num_tokens is too small for the chunked prefill",
        "max_total_num_tokens=4096, chunked_prefill_size=4096",
        knobs=_KNOBS,
    ),
    root(
        "oom.allocator",
        "oom_runtime",
        (
            "Prefill out of memory",
            "Decode out of memory",
            "prefill out of memory",
            "Out of KV blocks",
            "out of KV cache memory",
        ),
        r"(?:[Pp]refill|[Dd]ecode) out of memory\. Try to lower|Out of KV blocks|out of KV cache memory",
        "the KV allocator was asked for more tokens than are free",
        "smaller pages, fewer running requests or smaller prefill chunks; a leak or an accounting bug when it recurs",
        "RuntimeError: Prefill out of memory. Try to lower your batch size.",
        "KV cache pool is full. Retract requests. #retracted_reqs: 1",
        knobs=_KNOBS,
        certainty="certain",
    ),
    root(
        "oom.evictable",
        "oom_runtime",
        ("evictable_size_=",),
        r"Available (?:full )?tokens: \d+ \(\w*available_size=\d+ \+ \w*evictable_size_=(?!0\))\d+",
        "nearly all tokens counted as available are cache that must be evicted first, and that did not happen",
        "a scheduler accounting bug on hybrid models: lower the load, disable the radix cache, or update",
        "Available full tokens: 8070656 (full_available_size=7936 + full_evictable_size_=8062720)",
        "Available tokens: 7936 (available_size=7936 + evictable_size=0)",
        weight=4,
    ),
    root(
        "oom.others-free",
        "oom_other_process",
        (
            "is less than desired GPU memory utilization",
            "The memory capacity is unbalanced",
            "Error in memory profiling",
            "other processes sharing the same container",
        ),
        "Free memory on device.*is less than desired GPU memory utilization"
        r"|The memory capacity is unbalanced|Error in memory profiling\. ?Initial"
        "|other processes sharing the same container",
        "another process holds memory of this GPU",
        "find and end the process that holds it, then start again",
        "ValueError: Free memory on device (18.20/79.15 GiB) on startup is less than desired GPU "
        "memory utilization (0.9, 71.24 GiB).",
        "Free memory on device 70 GiB",
        certainty="certain",
    ),
    root(
        "oom.sampler-warmup",
        "oom_runtime",
        ("when warming up sampler", "during profiling"),
        "out of memory occurred when warming up sampler|out of memory.*during profiling",
        "the warm-up at full batch does not fit",
        "lower --max-num-seqs or the memory fraction",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
        "warming up sampler with 64 requests",
        weight=3,
        knobs=_KNOBS,
    ),
    root(
        "oom.leak",
        "device_memory_leak",
        ("leak detected",),
        r"^(?!.*Warning: ).*(?:memory|pool|KV cache|token\w*) leak detected",
        "the pool accounting does not add up: memory is leaked",
        "a bug of the engine: report it, restart, update",
        "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=961586",
        "scheduler.py:1326: UserWarning: token_to_kv_pool_allocator memory leak detected!",
    ),
    root(
        "oom.not-freed",
        "device_memory_leak",
        (
            "not free: dev_id",
            "memory is still in use after",
            "GPU memory was not released",
            "did not release GPU memory",
            "still holds GPU memory",
            "gpu memory leak",
            "GPU memory leak",
            "Memory is not released",
        ),
        "Memory of devices=.* not free|memory is still in use after|GPU memory was not released"
        "|did not release GPU memory|still holds GPU memory|[gG][pP][uU] memory leak"
        "|Memory is not released",
        "GPU memory stays taken although its owner let go or ended",
        "end the survivors of the old process tree; if none is left, wait for the driver, then reset or report",
        "ValueError: Memory of devices=[0] not free: dev_id=0, mem_used_gb=17.4",
        "Sleep mode freed 19.51 GiB memory, 1.31 GiB memory is still in use.",
    ),
    root(
        "oom.worker-killed",
        KILLED,
        ("worker died",),
        "^ChildProcessError: worker died",
        "a worker was killed from outside; it left no exception",
        "look for the kernel's out-of-memory killer (dmesg, memory events of the cgroup)",
        "ChildProcessError: worker died",
        "Worker proc VllmWorker-0 died unexpectedly",
        weight=2,
        certainty="possible",
    ),
)
