"""Compiling kernels on the machine: missing tools, compilers' own errors, stale locks and caches."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Role, Signature, aside, root

_C_FILE = r"\S+\.(?:cu|cuh|cpp|cc|cxx|c|h|hpp|inc)"

SIGNATURES: tuple[Signature, ...] = (
    root(
        "jit.ninja-missing", "jit_toolchain",
        (
            "Ninja is required", "ninja: not found", "No such file or directory: 'ninja'",
            "ninja: command not found",
        ),
        r"Ninja is required to load C\+\+|ninja: (?:command )?not found|No such file or directory: 'ninja'",
        "the ninja build tool is not installed or not on the PATH",
        "pip install ninja in the server's environment",
        "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'",
        "ninja: build stopped: subcommand failed.",
        knobs=("PATH",), certainty="certain",
    ),
    root(
        "jit.nvcc-missing", "jit_toolchain",
        (
            "Could not find nvcc", "nvcc: not found", "nvcc: command not found",
            "CUDA_HOME environment variable is not set", "No such file or directory: '/usr/local/cuda",
            "bin/nvcc'", "nvcc not found", "Could not find CUDA", "CUDA_HOME is not set",
            "nvcc was not found", "ptxas'", "No such file or directory: 'nvcc'", "Cannot find nvcc",
            "bin/nvcc: not found", "Cannot find ptxas", "bin/nvcc: No such file",
        ),
        "[Cc]ould not find nvcc|nvcc: (?:command )?not found|nvcc (?:was )?not found"
        "|CUDA_HOME (?:environment variable )?is not set|[Cc]annot find (?:nvcc|ptxas)"
        r"|No such file or directory: '(?:\S*/)?(?:nvcc|ptxas|cuobjdump)'|bin/nvcc: No such file"
        "|Could not find CUDA (?:installation|toolkit|home)",
        "kernels are compiled at run time and nvcc is missing",
        "a devel image or toolkit; set CUDA_HOME and PATH",
        "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
        "nvcc --generate-dependencies-with-compile -c batch_decode.cu",
        knobs=("CUDA_HOME", "PATH"), certainty="certain",
    ),
    root(
        "jit.compiler-missing", "jit_toolchain",
        (
            "Failed to find C compiler", "InvalidCxxCompiler", "No working C++ compiler",
            "No such file or directory: 'g++'", "No such file or directory: 'gcc'",
            "No such file or directory: 'c++'", "No such file or directory: 'cc'", "g++: not found",
            "gcc: not found", "c++: not found", "cc1plus", "g++: command not found", "gcc: command not found",
            "unable to find a compiler", "No such file or directory: 'which'", "CMAKE_CXX_COMPILER",
        ),
        r"Failed to find C compiler|InvalidCxxCompiler|No working C\+\+ compiler"
        r"|No such file or directory: '(?:g\+\+|gcc|c\+\+|cc|clang|which)'|(?:g\+\+|gcc|c\+\+"
        "|cc): (?:command )?not found|cannot execute 'cc1plus'|No CMAKE_CXX_COMPILER could be found",
        "kernels are compiled at run time and no C++ compiler is there",
        "install gcc and g++, or set CC and CXX",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
        "gcc version 13.2.0",
        knobs=("CC", "CXX", "PATH"), certainty="certain",
    ),
    root(
        "jit.compile-error", "jit_toolchain",
        (
            ": fatal error: ", ": error: ", "): error", "error: identifier", "#error", "nvcc fatal",
            ": catastrophic error:",
        ),
        rf"^\S*?{_C_FILE}[:(]\d+.*?\b(?:fatal |catastrophic )?error\b"
        r"|^nvcc fatal\s*:(?!.*[Uu]nsupported gpu arch)|#error\s+-- unsupported GNU version",
        "the compiler refuses the source: wrong or missing headers, or a compiler that does not fit",
        "make toolkit, compiler and headers fit one another: CUDA_HOME, CC, python headers",
        "/usr/include/flashinfer/vec_dtypes.cuh:21:10: fatal error: cuda_fp8.h: No such file or directory",
        "collect2: error: ld returned 1 exit status",
        weight=4, knobs=("CUDA_HOME", "CC", "CXX", "CPATH"),
    ),
    root(
        "jit.gnu-version", "jit_toolchain",
        ("unsupported GNU version", "host compiler version"),
        "unsupported GNU version|unsupported (?:Microsoft|host compiler) version",
        "the C++ compiler is newer than the CUDA toolkit accepts",
        "an older compiler (CC, CXX) or a newer toolkit",
        "/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! "
        "gcc versions later than 13",
        "GNU version 2.38",
        weight=4, knobs=("CC", "CXX"), certainty="certain",
    ),
    root(
        "jit.link-error", "jit_toolchain",
        ("cannot find -l", "undefined reference to", "skipping incompatible"),
        r"\bld(?:\.\w+)?: (?:cannot find|skipping incompatible)|cannot find -l\w+|undefined reference to",
        "the linker does not find a library",
        "put the library on the linker's path, e.g. LIBRARY_PATH=/usr/local/cuda/lib64/stubs",
        "/usr/bin/ld: cannot find -lcuda: No such file or directory",
        "collect2: error: ld returned 1 exit status",
        weight=4, knobs=("LIBRARY_PATH", "LD_LIBRARY_PATH"), certainty="certain",
    ),
    root(
        "jit.version", "jit_toolchain",
        (
            "mismatches the version that was used to compile", "detected CUDA version",
            "requires CUDA version", "requires nvcc", "nvcc version", "CUDA toolkit version",
            "requires CUDA ", "Unsupported CUDA version", "NVCC version", "CUDA version",
        ),
        r"detected CUDA version \([\d.]+\) mismatches|(?:requires?|needs?) (?:at least )?(?:CUDA|nvcc|NVCC"
        r"|CUDA toolkit)(?: version)? ?(?:>=|at least|newer|\d)|[Uu]nsupported CUDA version|(?:nvcc|NVCC"
        "|toolkit) version.{0,40}(?:too old|not supported|should be)",
        "the CUDA toolkit on the machine is not the one that the code needs",
        "point CUDA_HOME at a fitting toolkit",
        "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to "
        "compile PyTorch (12.4).",
        "CUDA version 12.8",
        weight=3, knobs=("CUDA_HOME",),
    ),
    root(
        "jit.triton-import", "jit_toolchain",
        (
            "libcuda.so cannot found", "libcuda.so cannot be found", "libcuda.so not found", "Python.h",
            "Python.h: No such file",
        ),
        r"libcuda\.so (?:cannot (?:be )?found|not found)|Python\.h: No such file",
        "Triton compiles its launcher and lacks libcuda.so or the Python headers",
        "install python3-dev; fix the driver mount",
        "AssertionError: libcuda.so cannot found!",
        "libcuda.so loaded",
        weight=4, certainty="certain",
    ),
    root(
        "jit.nvrtc", "jit_toolchain",
        (
            "NVRTC", "nvrtc:", "NVCC compilation failed", "nvcc compilation failed", "Compilation failed",
            "compile failed", "Failed to compile", "failed to compile", "compilation failed",
        ),
        "NVRTC(?:_ERROR| compilation failed|.*error)|nvrtc: error|(?:NVCC|nvcc|JIT"
        "|CUDA) compilation failed|[Ff]ailed to compile (?:kernel|CUDA|cubin|the kernel)"
        r"|Assertion error \(\S*compiler\S*\)",
        "a kernel could not be compiled at run time",
        "see the compiler's own output; match toolkit and driver",
        'RuntimeError: NVRTC compilation failed: error: identifier "__nv_fp8" is undefined',
        "NVRTC version 12.8",
        weight=2,
    ),
    root(
        "jit.runner-failed", "jit_toolchain",
        (
            "Ninja build failed", "Error building extension", "ninja: build stopped",
            "returned non-zero exit status", "ninja exited with status", "Build failed",
        ),
        "ninja exited with status|Ninja build failed|Error building extension|ninja: build stopped"
        r"|Command '\[?'?(?:\S*/)?(?:ninja|nvcc|gcc|g\+\+|cc|c\+\+|cmake"
        r"|ptxas)\b.*returned non-zero exit status",
        "a build of kernels failed; the compiler's own line is not in this log",
        "run the build command by hand and read the first error",
        "RuntimeError: Error building extension 'batch_decode'",
        "Command '['ls']' returned non-zero exit status 1.",
        weight=1, certainty="possible",
    ),
    root(
        "jit.inductor", "jit_toolchain",
        (
            "InductorError", "BackendCompilerFailed", "CppCompileError", "LoweringException",
            "SubprocException", "torch._dynamo.exc",
        ),
        r"torch\._(?:dynamo|inductor)\S*\.(?:InductorError|BackendCompilerFailed|CppCompileError"
        "|LoweringException|SubprocException|TorchRuntimeError|Unsupported|InternalTorchDynamoError)",
        "torch.compile failed",
        "see the inner error; run without torch.compile to confirm",
        "torch._inductor.exc.InductorError: LoweringException: NoValidChoicesError",
        "torch._dynamo hit config.recompile_limit",
        weight=2, knobs=("--enable-torch-compile", "TORCHDYNAMO_DISABLE", "--compilation-config"),
    ),
    root(
        "lock.stale", "stale_lock",
        (
            "baton release", "file_baton", "could not be acquired", "acquire lock", "acquire the lock",
            "waiting for lock", "Waiting for lock", "Lock file", "lock file", "stale lock", ".lock",
            "FileBaton", "waiting for file lock", "Waiting for file lock", "Waiting for another process",
        ),
        "waiting for baton release|file_baton|FileBaton|[Ff]ile ?lock .*could not be acquired"
        "|[Ll]ock file.*(?:exists|stale|held|remov|already)|[Ss]tale lock"
        "|(?:[Ss]till )?[Ww]aiting (?:to acquire|for) (?:the )?(?:file )?lock"
        r"|[Ww]aiting for (?:another process|file lock)|[Tt]imed? ?out .*\.lock\b|\.lock\b.*(?:timed? ?out"
        "|still held|stale)",
        "a lock file that a dead process left behind is waited for",
        "make sure that no build runs, then delete the lock file named here",
        "waiting for baton release at /sgl-workspace/aiter/aiter/jit/build/lock_module_rmsnorm",
        "released lock",
        loud=True, outcome="hung", weight=3,
    ),
    root(
        "lock.timeout", "stale_lock",
        ("filelock", "Timeout: The file lock"),
        r"filelock\.\w*\.?Timeout|The file lock '.*' could not be acquired",
        "a file lock could not be had in time",
        "end the process that holds it, or delete the lock of a dead one",
        "filelock._error.Timeout: The file lock '/root/.cache/x.lock' could not be acquired.",
        "filelock 3.18 imported",
        weight=4, certainty="certain",
    ),
    root(
        "cache.vllm-corrupt", "stale_compile_cache",
        (
            "corrupted compilation artifact", "failed to get the hash of the compiled graph",
            "leading to a corr",
        ),
        "corrupted compilation artifact|leading to a corr|failed to get the hash of the compiled graph",
        "the compile cache holds what an earlier, different or failed run left",
        "delete the compile cache and start again",
        "RuntimeError: vLLM failed to compile the model. The most likely reason for this is that a "
        "previous compilation failed, leading to a corrupted compilation artifact.",
        "Directly load the compiled graph(s) from the cache",
        weight=4, knobs=("VLLM_CACHE_ROOT",),
    ),
    root(
        "cache.guard", "stale_compile_cache",
        (
            "expected size", "Expected tensors only", "too many values to unpack",
            "wrong number of dimensions", "not enough values to unpack",
        ),
        r"AssertionError: expected size \d+==\d+|Expected tensors only, but got|too many values to unpack"
        "|not enough values to unpack|wrong number of dimensions",
        "a compiled graph from the cache does not fit this configuration",
        "one compile cache per configuration; delete this one",
        "Traceback (most recent call last):\n  File "
        '"/root/.cache/vllm/torch_compile_cache/ea2d/rank_0_0/inductor_cache/bx/c.py", line 370, in '
        "call\nAssertionError: expected size 7==9, stride 1==1 at dim=0",
        "AssertionError: expected size 7==9",
        frames="compile_cache|inductor|torchinductor|aot_compile|compilation/", weight=4,
        knobs=(
            "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "--speculative-num-steps",
            "--speculative-num-draft-tokens",
        ),
    ),
    root(
        "cache.missing-artifact", "stale_compile_cache",
        (
            "torchinductor", ".triton/cache", "triton/cache", "torch_compile_cache", "inductor_cache",
            "cached_ops", "deep_gemm/cache", "torch_aot_compile", ".cache/flashinfer", "torch_extensions",
        ),
        "(?:FileNotFoundError|OSError|EOFError|ImportError|RuntimeError"
        r"|PermissionError)\b.*(?:torchinductor|triton/cache|torch_compile_cache|inductor_cache|cached_ops"
        r"|deep_gemm/cache|torch_aot_compile|\.cache/flashinfer|torch_extensions)|(?:stale|corrupt\w*"
        "|incompatible|outdated) .{0,40}(?:torchinductor|triton/cache|compile_cache|cached_ops|flashinfer"
        "|torch_extensions)",
        "a compiled artifact in a cache is missing, broken or from another build",
        "delete that cache and start again",
        "FileNotFoundError: [Errno 2] No such file or directory: "
        "'/root/.triton/cache/ab12/fused_moe_kernel.json'",
        "flashinfer.jit: Loading JIT ops from .cache/flashinfer",
        weight=3,
        knobs=(
            "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE",
            "SGLANG_CACHE_DIR",
        ),
    ),
    root(
        "cache.unpickle", "stale_compile_cache",
        (
            "UnpicklingError", "Ran out of input", "invalid load key", "bad magic number", "bad marshal data",
            "EOFError: Ran out",
        ),
        "UnpicklingError|EOFError: Ran out of input|bad magic number in|bad marshal data",
        "a cached file is cut off or from another version",
        "delete the cache named by the frames",
        'Traceback (most recent call last):\n  File "/x/torch/_inductor/codecache.py", line 1, in '
        "load\nEOFError: Ran out of input",
        "EOFError: Ran out of input",
        frames="cache|inductor|triton|compil", weight=3,
    ),
    aside(
        Role.HINT, "jit.wrapper",
        ("CalledProcessError",),
        r"subprocess\.CalledProcessError: ",
        "a command failed; its output tells why",
        "subprocess.CalledProcessError: Command '['false']' returned non-zero exit status 1.",
        "CalledProcess ok",
    ),
)
