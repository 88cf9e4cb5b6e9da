"""Kernels that do not exist for this GPU, or refuse it."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root

_FIX = "another kernel back end, or a build that has this architecture"

SIGNATURES: tuple[Signature, ...] = (
    root(
        "arch.no-image", "unsupported_arch",
        (
            "no kernel image is available", "cudaErrorNoKernelImageForDevice", "invalid device function",
            "CUDA_ERROR_NO_BINARY_FOR_GPU", "device kernel image is invalid",
        ),
        "no kernel image is available|cudaErrorNoKernelImageForDevice|CUDA error: invalid device function"
        "|CUDA_ERROR_NO_BINARY_FOR_GPU|device kernel image is invalid",
        "a binary was not built for this GPU's architecture",
        _FIX,
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "kernel image loaded",
        certainty="certain",
    ),
    root(
        "arch.smem", "unsupported_arch",
        (
            "out of resource: shared memory", "exceeds the shared memory", "out of resource: threads",
            "out of resources: shared memory", "too much shared data", "uses too much shared",
        ),
        "out of resources?: (?:shared memory|threads|registers|tensor memory)"
        "|uses too much shared (?:data|memory)",
        "a kernel's tile needs more shared memory per block than this GPU has; this is not GPU memory",
        "a tuned kernel configuration with smaller blocks or fewer stages for this GPU",
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, "
        "Hardware limit: 101376.",
        "shared memory: 64 GB",
        certainty="certain",
    ),
    root(
        "arch.deepgemm", "unsupported_arch",
        ("Unknown recipe", "Unsupported architecture", "deepgemm", "deep_gemm", "DeepGEMM"),
        r"Unknown recipe|Assertion error \(\S*(?:deep_?gemm|jit_kernels|csrc)\S*\.hpp:\d+\)"
        "|Unsupported architecture",
        "DeepGEMM has no kernel for this architecture",
        "a DeepGEMM that has it, or switch DeepGEMM off for this GPU",
        "RuntimeError: Assertion error (/workspace/.deps/deepgemm-src/csrc/apis/attention.hpp:219): "
        "Unsupported architecture",
        "Entering DeepGEMM JIT Pre-Complie session.",
        knobs=("VLLM_USE_DEEP_GEMM", "SGLANG_ENABLE_JIT_DEEPGEMM", "--fp8-gemm-backend"), certainty="certain",
    ),
    root(
        "arch.assertion-hpp", "unsupported_arch",
        (".hpp:",),
        r"Assertion error \(\S+\.hpp:\d+\): (?:.*arch|false$|.*major|.*sm_?\d)",
        "a kernel library refuses this architecture",
        _FIX,
        "RuntimeError: Assertion error (csrc/apis/gemm.hpp:40): arch_major == 9 or arch_major == 10",
        "Assertion error (csrc/apis/gemm.hpp:40): k % 128 == 0",
        weight=2,
    ),
    root(
        "arch.flashinfer-versions", "unsupported_arch",
        ("No supported CUDA architectures found",),
        "No supported CUDA architectures found",
        "a FlashInfer module excludes this architecture",
        "revert the gate that enabled it, or use another back end",
        "RuntimeError: No supported CUDA architectures found for major versions [9, 10].",
        "supported CUDA architectures: 9.0a",
        certainty="certain",
    ),
    root(
        "arch.trtllm-gen", "unsupported_arch",
        ("Missing TRTLLM-GEN kernel", "TllmGenFmhaRunner", "trtllm-gen"),
        "Missing TRTLLM-GEN kernel|TllmGenFmhaRunner.*(?:Unsupported|[Ee]rror|fail|not)"
        "|Unsupported architecture|trtllm-gen.*(?:not supported|only supports?|requires? SM)",
        "TRT-LLM generated kernels exist for SM100 only",
        "another attention or MoE back end",
        "RuntimeError: Error in function 'TllmGenFmhaRunner': Unsupported architecture",
        "using trtllm-gen kernels",
    ),
    root(
        "arch.compiled-for", "unsupported_arch",
        (
            "No compiled cutlass", "No compiled nvfp4", "No compiled ", "not compiled for",
            "is not supported on SM", "not supported on this architecture", "Unsupported SM version",
            "unsupported SM", "Unsupported CUDA arch", "is not supported on compute capability",
            "not implemented for SM", "No valid engine configs",
        ),
        r"No compiled \w+ (?:kernel )?for CUDA device|(?:kernel|op|extension)\w* (?:was "
        r"|is )?not compiled for (?:sm|SM|this|CUDA arch|compute)|not supported on SM ?\d"
        "|not supported on this architecture|[Uu]nsupported SM|Unsupported CUDA arch"
        r"|not supported on compute capability|not implemented for SM ?\d",
        "the installed binary has no such kernel for this GPU's compute capability",
        _FIX,
        "NotImplementedError: No compiled cutlass_scaled_mm for CUDA device capability: 120",
        "No compiled graph found in cache",
    ),
    root(
        "arch.cutlass-internal", "unsupported_arch",
        (
            "Error Internal at", "cutlass_gemm_caller", "Failed to initialize cutlass",
            "cutlass TMA WS grouped gemm", "CUTLASS", "cutlass::Status", "Failed to run cutlass",
            "kErrorInternal", "Arch conditional MMA",
        ),
        r"Error Internal at|cutlass_gemm_caller\.cuh:\d+|Failed to (?:initialize|run) (?:the )?cutlass"
        "|kErrorInternal|Arch conditional MMA instruction used without targeting|(?:CUTLASS"
        "|cutlass).*(?:can_implement|Error Internal|failed with status)",
        "a CUTLASS kernel built for a sibling architecture gives up on this one",
        "build native code for this architecture, or disable the CUTLASS kernel",
        "RuntimeError: Error Internal at "
        "/workspace/csrc/quantization/w8a8/cutlass/c3x/cutlass_gemm_caller.cuh:61",
        "Selected CutlassFp8BlockScaledMMKernel for Fp8LinearMethod",
        knobs=("VLLM_DISABLED_KERNELS",),
    ),
    root(
        "arch.only-sm", "unsupported_arch",
        (
            "Only SM", "only SM", "requires SM", "only supports SM", "only supported on SM", "requires sm",
            "requires compute capability", "compute capability", "only supports Ampere",
            "FlashAttention only supports", "supported on Hopper", "Compute capability", "requires Hopper",
            "supported on Blackwell", "requires Blackwell", "only supported on Hopper", "SM90", "SM100",
            "SM120", "requires SM>", "sm_120", "sm_121", "sm_103", "Unsupported gpu architecture",
            "GPUs with compute capability",
        ),
        r"[Oo]nly (?:supports? )?(?:SM|sm) ?_?\d|\b(?:requires?|needs?) (?:an? )?(?:NVIDIA )?(?:SM"
        r"|sm)_? ?(?:\d|[<>=])|(?:only )?supported on (?:SM|sm)_? ?\d|only (?:supports?|supported on"
        "|available on).{0,40}(?:Ampere|Hopper|Blackwell|compute capability)|FlashAttention only supports"
        "|requires? (?:a )?(?:GPUs? with )?compute capability|requires? (?:a )?(?:Hopper|Blackwell)"
        r"|at least SM ?\d+|SM ?\d+ (?:is |are )?not supported|[Uu]nsupported (?:gpu|GPU|CUDA"
        "|compute) (?:architecture|capability)|(?:compute|device|GPU) capability.{0,40}(?:not supported"
        "|unsupported|too low|insufficient)|is only supported on .*(?:SM|sm|Hopper|Blackwell|capability)"
        r"|but (?:got|found) (?:SM|sm_?)\d+",
        "a kernel accepts only other architectures than this GPU's",
        _FIX,
        "AssertionError: Only SM 10.x and 11.x are supported",
        "Detected compute capability 9.0",
        weight=3,
    ),
    root(
        "arch.ptxas", "unsupported_arch",
        (
            "is not defined for option 'gpu-name'", "ptxas fatal", "is not defined for option",
            "Unsupported gpu architecture", "gpu-architecture", "unsupported gpu architecture",
            "invalid value for --gpu-architecture",
        ),
        r"ptxas fatal\s*:\s*Value 'sm_\w+' is not defined|ptxas fatal\s*:.*(?:not supported|sm_\d+)"
        r"|[Uu]nsupported gpu architecture 'compute_\w+'|invalid value for --gpu-architecture",
        "the compiler is older than the GPU",
        "a CUDA toolkit that knows this architecture (TRITON_PTXAS_PATH, CUDA_HOME)",
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        "nvcc -gencode=arch=compute_90,code=sm_90 for gpu-architecture",
        weight=4, knobs=("TRITON_PTXAS_PATH", "CUDA_HOME"), certainty="certain",
    ),
    root(
        "arch.llvm", "unsupported_arch",
        (
            "LLVM ERROR", "NVVM", "PTXAS error", "Internal Triton PTX codegen error",
            "PassManager::run failed", "Unsupported conversion",
        ),
        "LLVM ERROR: Cannot select|PTXAS error|Internal Triton PTX codegen error"
        r"|Unsupported conversion from \S+ to|LLVM ERROR: .*(?:not supported|unsupported)",
        "the kernel compiler cannot generate code for this architecture",
        "a newer Triton, or another back end",
        "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.shfl.sync.bfly.i32",
        "LLVM version 19",
        weight=3,
    ),
    root(
        "arch.fp8-type", "unsupported_arch",
        ("fp8e4nv not supported", "type fp8e4", "not supported in this architecture", "e4m3"),
        r"type fp8e4\w* not supported in this architecture|not supported in this architecture",
        "this GPU has no FP8 of this kind",
        "another KV or weight type for this GPU",
        "ValueError: type fp8e4nv not supported in this architecture. The supported fp8 dtypes are "
        "('fp8e4b15', 'fp8e5')",
        "kv_cache_dtype fp8_e4m3 selected",
        knobs=("--kv-cache-dtype", "--quantization"), certainty="certain",
    ),
    root(
        "arch.bf16", "unsupported_arch",
        ("Bfloat16 is only supported on GPUs",),
        "Bfloat16 is only supported on GPUs",
        "this GPU is too old for bfloat16",
        "--dtype half",
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
        "using bfloat16",
        knobs=("--dtype",), certainty="certain",
    ),
    root(
        "arch.fusion-gate", "unsupported_arch",
        ("allreduce fusion requires",),
        "allreduce fusion requires SM",
        "the all-reduce fusion has no kernel for this architecture",
        "leave the fusion off",
        "RuntimeError: FlashInfer allreduce fusion requires SM90 or SM10X",
        "allreduce fusion enabled",
    ),
    root(
        "arch.engine-plan", "unsupported_arch",
        ("incompatible device", "expecting compute", "different SM"),
        r"engine plan file is generated on an incompatible device|expecting compute [\d.]+ got compute"
        "|built (?:for|with|on) a? ?different (?:SM|GPU|device)",
        "the prebuilt engine was made for another GPU",
        "build the engine on this GPU",
        "[E] IRuntime::deserializeCudaEngine: Error Code 1: The engine plan file is generated on an "
        "incompatible device, expecting compute 8.6 got compute 8.9, please rebuild.",
        "engine plan file loaded",
        certainty="certain",
    ),
)
