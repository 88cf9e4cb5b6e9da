"""TensorRT-LLM and Triton server."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root

SIGNATURES: tuple[Signature, ...] = (
    root(
        "trt.serialization",
        "abi_mismatch",
        (
            "Serialization assertion",
            "Version tag does not match",
            "deserializeCudaEngine",
            "Failed to deserialize cuda engine",
            "different version of TensorRT",
        ),
        "Serialization assertion .*failed|Version tag does not match|Failed to deserialize cuda engine"
        "|different version of TensorRT",
        "the engine was built by another version of TensorRT",
        "build the engine again with this version",
        "[TRT] [E] IRuntime::deserializeCudaEngine: Error Code 6: Serialization (Serialization "
        "assertion stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match.)",
        "deserializeCudaEngine took 3 s",
        weight=3,
    ),
    root(
        "trt.kv",
        "oom_kv_cache",
        (
            "enough GPU memory for KV",
            "KV cache",
            "kv_cache_config",
            "kvCacheManager",
            "maxNumTokens",
            "free_gpu_memory_fraction",
        ),
        "(?:Error|ERROR|Assertion failed).*(?:[Nn]ot? enough|[Ii]nsufficient|too small"
        "|exceeds?).{0,60}(?:KV|kv)|(?:KV|kv) ?[cC]ache.{0,60}(?:too small|not enough|insufficient"
        "|cannot hold)|[Nn]o enough GPU memory for KV",
        "the KV cache does not fit",
        "lower free_gpu_memory_fraction, length or batch",
        "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: No enough GPU memory for KV cache",
        "KV cache quantization enabled",
        weight=3,
    ),
    root(
        "trt.assertion",
        "argument_error",
        ("Assertion failed: ",),
        "Assertion failed: .*(?:mpiSize|MPI size|tp_size|world ?[sS]ize|gpusPerNode|GPUs per node|rank"
        r"|max_(?:batch|input|seq|num)\w*|beam)",
        "the engine was built or started for another shape of the cluster or request",
        "as many ranks as the engine was built for",
        "[TensorRT-LLM][ERROR] Assertion failed: mpiSize == tp * pp (mpiSize: 1, tp: 2, pp: 1)",
        "Assertion passed",
        weight=3,
    ),
    root(
        "trt.assertion-any",
        "feature_unsupported",
        ("Assertion failed: ",),
        r"\[ERROR\].*Assertion failed: |Assertion failed: .*(?:not supported|[Uu]nsupported)",
        "an assertion of TensorRT-LLM failed",
        "read the assertion and its source line",
        "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: unsupported data type (/x/gemm.cpp:40)",
        "assertions on",
        weight=1,
        certainty="possible",
    ),
    root(
        "trt.mpi",
        "network_setup",
        (
            "MPI_ERR_SPAWN",
            "MPI_Init",
            "PMIX ERROR",
            "ORTE does not know",
            "not enough slots available",
            "PMI server not found",
            "orte_init failed",
            "MPI_INIT",
        ),
        "MPI_ERR_SPAWN|PMIX ERROR|not enough slots available|PMI server not found|orte_init failed"
        r"|MPI_Init\w* .*fail",
        "MPI cannot start the ranks",
        "mpirun with enough slots; --allow-run-as-root; no stray SLURM or PMI variables",
        "There are not enough slots available in the system to satisfy the 2",
        "MPI_Init done",
        weight=3,
    ),
)
