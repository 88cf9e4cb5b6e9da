"""Libraries that do not fit one another, and exceptions that say only that code and code disagree."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Role, Signature, aside, root
from orchestrator.core.diagnosis.undecided import UNSPECIFIC

SIGNATURES: tuple[Signature, ...] = (
    root(
        "abi.symbol",
        "abi_mismatch",
        (
            "undefined symbol",
            "symbol lookup error",
            "GLIBCXX_",
            "GLIBC_2",
            "CXXABI_",
            "version `",
            "not defined in file",
        ),
        r"undefined symbol: |symbol lookup error|version [`'](?:GLIBCXX|GLIBC|CXXABI)_\S+' not found"
        "|not defined in file",
        "a binary was built against another version of what it loads",
        "a matching pair of wheels; for GLIBC a newer base image",
        "ImportError: /venv/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE",
        "symbol table loaded",
        certainty="certain",
        weight=4,
        knobs=("LD_LIBRARY_PATH", "LD_PRELOAD"),
    ),
    root(
        "abi.kernel-name",
        "abi_mismatch",
        ("NameError: name '", "AttributeError: ", "has no attribute '"),
        r"NameError: name '(?:sgl_\w+|\w+_kernel|\w+_cuda|\w*cutlass\w*|flashinfer\w*|deep_?gemm\w*"
        r"|triton\w*)' is not defined|AttributeError: (?:module '(?:sgl_kernel|flashinfer|deep_gemm"
        r"|flash_attn|torch\.ops|vllm\._C|triton|xformers|flash_mla|deep_ep)\S*'"
        r"|'_OpNamespace' '\S+' object) has no attribute",
        "the installed kernel package lacks what the source calls: their versions do not belong together",
        "install the kernel package of exactly this version",
        "NameError: name 'sgl_build_tree_kernel' is not defined. Did you mean: 'build_tree_kernel'?",
        "NameError: name '_is_sm120_supported' is not defined",
    ),
    root(
        "abi.torch-ops",
        "abi_mismatch",
        ("torch.ops.", "operator ", "Could not run '", "_C::", "Library does not exist", "_OpNamespace"),
        r"operator \S+::\S+ does not exist|'_OpNamespace' .* has no attribute"
        r"|Could not run '\S+' with arguments from the|Library does not exist",
        "a compiled operator was not loaded or is not in this build",
        "reinstall the engine so that extension and source agree",
        "RuntimeError: operator torchvision::nms does not exist",
        "the operator logged in",
        weight=3,
    ),
    root(
        "abi.import-name",
        "abi_mismatch",
        (
            "cannot import name",
            "numpy.dtype size changed",
            "numpy.core.multiarray",
            "compiled using NumPy 1.x",
            "binary incompatib",
            "incompatible version",
            "version mismatch",
            "Version mismatch",
            "minimum required version",
            "is already used by a Transformers config",
            "requires torch",
            "is required but found",
            "is incompatible with",
            "ContextualVersionConflict",
            "is not compatible with",
            "version conflict",
            "pip install -U",
            "Please upgrade",
            "please upgrade",
            "Please update",
            "Please install",
        ),
        "cannot import name '|size changed, may indicate binary incompatib"
        r"|numpy\.core\.multiarray failed to import|compiled using NumPy 1\.x"
        r"|less than the minimum required version|minimum required version \S+ is not installed"
        "|is already used by a Transformers config|(?:Error|Exception): .*[Vv]ersion mismatch"
        "|is required (?:but|for a normal functioning).*found|ContextualVersionConflict|(?:requires"
        r"|needs) (?:torch|transformers|flashinfer|sgl.kernel|triton|numpy|vllm|ray)\S*\s?(?:[<>=!~]="
        "|version)|(?:transformers|flashinfer|sgl.kernel|triton|torch|ray|vllm"
        r"|numpy)\S* (?:version )?\S* ?is (?:incompatible|not compatible) with",
        "installed packages do not fit one another",
        "install the versions that this engine pins",
        "ImportError: cannot import name 'awq_dequantize' from 'vllm._custom_ops'",
        "versions checked",
        weight=3,
    ),
    root(
        "abi.shared-object",
        "abi_mismatch",
        (
            "cannot open shared object file",
            "DLL load failed",
            "Failed to load shared library",
            "failed to map segment",
            "wrong ELF class",
            "Could not load library",
            "Unable to load any of {lib",
            "Could not load this library",
        ),
        "cannot open shared object file|Failed to load shared library|failed to map segment"
        r"|wrong ELF class|Could not load (?:this )?library|Unable to load any of \{lib",
        "a system library is missing or not on the path",
        "install it, or set LD_LIBRARY_PATH",
        "ImportError: libnuma.so.1: cannot open shared object file: No such file or directory",
        "object file opened",
        knobs=("LD_LIBRARY_PATH",),
        certainty="certain",
    ),
    root(
        "abi.common-ops",
        "abi_mismatch",
        ("Could not load any common_ops", "common_ops"),
        r"Could not load any common_ops library|\[sgl_kernel\] CRITICAL",
        "sgl_kernel has no binary that fits this GPU, CUDA and torch",
        "the inner ImportError names the reason; install the matching wheel",
        "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!",
        "common_ops loaded",
        weight=2,
    ),
    root(
        "abi.module",
        "abi_mismatch",
        ("No module named '", "ModuleNotFoundError", "PackageNotFoundError", "No package metadata"),
        "(?:ModuleNotFoundError|ImportError): (?:No module named|.*(?:is not installed|not found"
        "|pip install|Please install))|PackageNotFoundError|No package metadata",
        "a package is missing from the server's environment",
        "install it, or use the environment that has it",
        "ModuleNotFoundError: No module named 'deep_ep'",
        "Ignore import error when loading sglang.srt.models.x: No module named 'cutlass'",
        weight=2,
        knobs=("PYTHONPATH",),
    ),
    root(
        "abi.signature",
        "abi_mismatch",
        (
            "got an unexpected keyword argument",
            "required positional argument",
            "positional arguments but",
            "missing value for argument",
            "Unknown builtin op",
            "incompatible function arguments",
            "expected at most",
        ),
        r"TypeError: .*(?:got an unexpected keyword argument|missing \d+ required positional argument"
        r"|takes \d+ positional arguments? but)|Unknown builtin op|incompatible function arguments"
        r"|expected at most \d+ argument",
        "caller and callee are of different versions",
        "matching versions; if a changed file is in the frames, the change is wrong",
        "TypeError: fwd() got an unexpected keyword argument 'num_splits'",
        "argument parsed",
        weight=2,
    ),
    root(
        "code.name",
        "patch_error",
        ("NameError: ", "SyntaxError: ", "IndentationError: ", "TabError: ", "UnboundLocalError: "),
        "^(?:NameError|SyntaxError|IndentationError|TabError|UnboundLocalError): ",
        "the source is broken: an edit that is incomplete or wrong",
        "correct or revert the edit of the file in the last frame",
        "NameError: name '_is_sm120_supported' is not defined",
        "ValueError: name not defined",
        weight=2,
    ),
    root(
        "code.attribute",
        UNSPECIFIC,
        ("Error", "Exception", "StopIteration", "AssertionError"),
        r"^(?:[A-Za-z_][\w.]*\.)?(?:AttributeError|TypeError|KeyError|IndexError|ValueError|AssertionError"
        "|RuntimeError|NotImplementedError|ZeroDivisionError|FileNotFoundError|Exception|OSError"
        r"|ImportError|AcceleratorError|Unicode\w+Error|RecursionError|LookupError|JSONDecodeError"
        r"|\w*ValidationError|CompilationError|StopIteration|OverflowError|TimeoutError|ConnectionError"
        r"|\w+Error)\b(?::|$)",
        "an exception without a better explanation",
        "read the traceback above this line",
        "Traceback (most recent call last):\n  File \"/x/y.py\", line 1, in f\nAttributeError: 'NoneType' "
        "object has no attribute 'shape'",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        frames=".",
        weight=1,
        certainty="possible",
    ),
    aside(
        Role.HINT,
        "code.did-you-mean",
        ("Did you mean",),
        "^Did you mean",
        "a hint of the interpreter",
        "Did you mean: 'x'?",
        "He said: Did you mean it",
    ),
)
