"""Which compiled caches a treatment can influence, and so must not share with anybody. Pure.

Several of them compare times and not content: a source that comes back with its old time leaves the patched kernel in
use, silently. torch.compile's key leaves out flags that shape the graph. A treatment that can reach one gets a cache of
its own, which goes with the launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from orchestrator.core.model import FlagValue

KERNELS = (
    "FLASHINFER_WORKSPACE_BASE",
    "TRITON_CACHE_DIR",
    "SGLANG_JIT_CACHE_DIR",
    "SGLANG_DG_CACHE_DIR",
    "DG_JIT_CACHE_DIR",
    "TVM_FFI_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
)
"""Where FlashInfer, Triton, SGLang's own kernels, DeepGEMM, TVM and torch's extensions keep what they compiled."""
GRAPHS = ("TORCHINDUCTOR_CACHE_DIR", "VLLM_CACHE_ROOT", "SGLANG_CACHE_DIR", "TRITON_CACHE_DIR")
"""Where torch.compile and the engines keep compiled graphs."""

_NATIVE = re.compile(r"\.(cu|cuh|c|cc|cpp|cxx|h|hpp|hip|inc|jinja)$")
_COMPILING = re.compile(r"(^|/)(flashinfer|triton|deep_gemm|jit_kernel|torch|tilelang|cutlass)/")
_KERNEL_SOURCE = re.compile(rb"@triton\.|load_jit|cpp_extension|tilelang\.jit|import flashinfer\.jit")
_SHAPING = re.compile(r"speculative|compile|cuda-graph|cudagraph|max-bs|max-num-seqs|chunked-prefill")


_COMPILER_NAME = re.compile(
    r"^(TRITON_|TORCHINDUCTOR_|TORCH_COMPILE|TORCH_CUDA_ARCH|FLASHINFER_|DG_|TVM_|TILELANG_|NVCC_|CUTE_|SGLANG_.*(JIT|DEEPGEMM|DG_))"
)
"""Variables that a compiler of kernels reads."""

Policy = Literal["auto", "shared", "own"]


@dataclass(frozen=True)
class Choice:
    """`names`: variables whose caches this launch does not share. `why`: one sentence for a person."""

    names: tuple[str, ...]
    why: str


def choose(
    policy: Policy,
    *,
    files: Mapping[str, bytes | None],
    flags: Mapping[str, FlagValue],
    env: Iterable[str],
    configured: Mapping[str, FlagValue],
    engine: str,
) -> Choice:
    """By what the treatment changes, or as the playbook says. `env`: names that it sets or unsets; those that name a
    cache stay as the treatment has them."""
    names = list(env)
    if policy == "shared":
        return Choice((), "compile caches are shared: the playbook says so")
    kernels = sorted(path for path, content in files.items() if _touches_kernels(path, content))
    compiling = sorted(name for name in names if _COMPILER_NAME.match(name) and name not in KERNELS + GRAPHS)
    found = caches_of(files=files, flags=flags, configured=configured, engine=engine)
    if policy == "own" and (files or flags or names):
        found, why = list(dict.fromkeys(KERNELS + GRAPHS)), "the playbook says so"
    elif kernels:
        why = f"{kernels[0].rpartition('/')[2]} is a source of compiled kernels"
    elif compiling:
        found, why = list(dict.fromkeys((*found, *KERNELS))), f"{compiling[0]} is read by a compiler of kernels"
    elif found:
        why = "it shapes compiled graphs, and their key does not hold it"
    else:
        return Choice((), "compile caches are shared: nothing of it reaches them")
    own = tuple(name for name in found if name not in names)
    return Choice(own, f"compile caches of its own, which go with the launch: {why}")


def caches_of(
    *,
    files: Mapping[str, bytes | None],
    flags: Mapping[str, FlagValue],
    configured: Mapping[str, FlagValue],
    engine: str,
) -> list[str]:
    """Variables that name the caches to be kept apart. `files`: path → content as patched; `flags`: those that the
    treatment changes; `configured`: all that the launch has."""
    names: list[str] = []
    if any(_touches_kernels(path, content) for path, content in files.items()):
        names += KERNELS
    compiles = engine == "vllm" or bool(configured.get("enable-torch-compile"))
    if compiles and (any(_SHAPING.search(flag) for flag in flags) or _has_python(files)):
        names += GRAPHS
    return list(dict.fromkeys(names))


def _touches_kernels(path: str, content: bytes | None) -> bool:
    return bool(_NATIVE.search(path) or _COMPILING.search(path) or _KERNEL_SOURCE.search(content or b""))


def _has_python(files: Iterable[str]) -> bool:
    return any(path.endswith(".py") for path in files)
