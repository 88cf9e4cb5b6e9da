"""Variables, interposers and how processes are started."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root

SIGNATURES: tuple[Signature, ...] = (
    root(
        "env.hami",
        "env_config",
        ("HAMI-core ERROR", "libvgpu.so"),
        r"\[HAMI-core ERROR|libvgpu\.so.*(?:[Ee]rror|fail|[Ss]egfault)",
        "the GPU-sharing library in LD_PRELOAD fails inside a CUDA call",
        "run without it (whole GPU), or upgrade it",
        "[HAMI-core ERROR (pid:565 thread=140267266266944 multiprocess_memory_limit.c:831)]: Illegal "
        "device id: 850725928",
        "[HAMI-core Msg(960:140024882239296:libvgpu.c:836)]: Initializing.....",
        knobs=("LD_PRELOAD", "CUDA_DISABLE_CONTROL"),
        weight=4,
    ),
    root(
        "env.preload",
        "env_config",
        ("LD_PRELOAD",),
        r"ld\.so: object .* from LD_PRELOAD cannot be preloaded.*(?!ignored)|LD_PRELOAD .*(?:fail|error"
        "|not found)",
        "a library in LD_PRELOAD cannot be loaded",
        "correct LD_PRELOAD",
        "LD_PRELOAD failed: /x/libfoo.so not found",
        "LD_PRELOAD is unset",
        knobs=("LD_PRELOAD",),
        weight=2,
    ),
    root(
        "env.expandable",
        "env_config",
        ("expandable_segments", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        r"^(?:[\w.]+\.)?(?:\w*Error|\w*Exception|AssertionError): .*(?:expandable_segments"
        "|PYTORCH_(?:CUDA_)?ALLOC_CONF)(?!(?:=expandable_segments)?:True to avoid)",
        "the allocator setting does not go with another feature",
        "remove expandable_segments from PYTORCH_CUDA_ALLOC_CONF",
        "AssertionError: Expandable segments are not compatible with memory pool. expandable_segments is set",
        "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation",
        knobs=("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
    ),
    root(
        "env.expandable-text",
        "env_config",
        ("xpandable segments",),
        "[Ee]xpandable segments (?:are|is) not (?:compatible|supported)",
        "the allocator setting does not go with another feature",
        "remove expandable_segments from PYTORCH_CUDA_ALLOC_CONF",
        "AssertionError: Expandable segments are not compatible with memory pool.",
        "expandable segments on",
        knobs=("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        weight=4,
    ),
    root(
        "env.cpu-bind",
        "env_config",
        ("SGLANG_CPU_OMP_THREADS_BIND is not set",),
        "SGLANG_CPU_OMP_THREADS_BIND is not set",
        "tensor parallelism on CPUs needs the binding of threads",
        "set SGLANG_CPU_OMP_THREADS_BIND, e.g. 0|1",
        "ValueError: SGLANG_CPU_OMP_THREADS_BIND is not set for TP",
        "SGLANG_CPU_OMP_THREADS_BIND=0|1",
        knobs=("SGLANG_CPU_OMP_THREADS_BIND",),
        weight=4,
    ),
    root(
        "env.variable",
        "env_config",
        ("environment variable", "os.environ", "KeyError: '"),
        r"^(?:[\w.]+\.)?(?:\w*Error|\w*Exception): .*(?:[Ii]nvalid|[Uu]nknown|must be|is not set|not set"
        r"|bad|unsupported|expected).*\b(?:env(?:ironment)? variable|os\.environ)"
        r"|^(?:[\w.]+\.)?(?:\w*Error|\w*Exception): .*\b(?:env(?:ironment)? variable"
        r"|os\.environ)\b.*(?:[Ii]nvalid|[Uu]nknown|must be|not set|unsupported|expected)"
        "|^KeyError: '[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+'",
        "an environment variable is missing or has a value the engine does not take",
        "set it as the message says",
        "ValueError: Invalid value 'yes' for environment variable VLLM_USE_V1",
        "environment variable SGL_X is deprecated",
        weight=3,
    ),
    root(
        "env.visible-devices",
        "env_config",
        ("CUDA_VISIBLE_DEVICES", "invalid literal for int()"),
        r"^(?:[\w.]+\.)?(?:\w*Error|\w*Exception): .*CUDA_VISIBLE_DEVICES"
        r"|invalid literal for int\(\) with base 10: '(?:GPU|MIG)-",
        "CUDA_VISIBLE_DEVICES has a form or a device that the engine does not take",
        "plain indices of GPUs that exist",
        "ValueError: invalid literal for int() with base 10: 'GPU-8c7b'",
        "CUDA_VISIBLE_DEVICES=0,1",
        knobs=("CUDA_VISIBLE_DEVICES",),
        weight=4,
    ),
    root(
        "start.fork",
        "process_start_method",
        (
            "Cannot re-initialize CUDA in forked subprocess",
            "forked subprocess",
            "bootstrapping phase",
            "daemonic processes are not allowed",
            "Can't pickle",
            "cannot pickle",
            "Can't get local object",
            "start method",
            "context has already been set",
            "freeze_support",
            "Can't get attribute",
        ),
        "Cannot re-initialize CUDA in forked"
        r"|before the\s+current process has finished its bootstrapping phase"
        "|has finished its bootstrapping phase|daemonic processes are not allowed to have children"
        "|[Cc]an(?:'t|not) pickle|Can't get (?:local object|attribute .* on <module '__main__')"
        r"|context has already been set|freeze_support\(\)",
        "worker processes are started in a way that does not fit: forked after CUDA was used, or "
        "spawned without a main guard",
        "VLLM_WORKER_MULTIPROCESSING_METHOD=spawn; put the start under if __name__ == '__main__'",
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
        "multiprocessing, you must use the 'spawn' start method",
        "start method is spawn",
        certainty="certain",
        weight=4,
        knobs=("VLLM_WORKER_MULTIPROCESSING_METHOD",),
    ),
)
