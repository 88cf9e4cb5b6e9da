"""Short logs of many kinds in the words of the engines, each with the category and the part of the line that decides.

They stand for kinds that the longer fixture logs do not show. `decides` is empty where no line does.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    name: str
    category: str
    decides: str
    text: str


def _sglang(*body: str, head: str = "[2026-03-01 10:00:00 TP0] Load weight begin. avail mem=90.00 GB") -> str:
    return "\n".join([
        "[2026-03-01 09:59:40] server_args=ServerArgs(model_path='/models/x', tp_size=2, port=30000)", head,
        "[2026-03-01 10:00:09 TP0] Scheduler hit an exception: Traceback (most recent call last):", *body, "",
        "[2026-03-01 10:00:10] Received sigquit from a child process. It usually means the child failed.", "Killed",
    ])


def _vllm(*body: str, tag: str = "(EngineCore_DP0 pid=44)", head: str = "") -> str:
    lead = f"{tag} ERROR 03-01 10:00:09 [core.py:842] "
    return "\n".join([
        "(APIServer pid=1) INFO 03-01 09:59:40 [api_server.py:1351] vLLM API server version 0.15.1",
        head or f"{tag} INFO 03-01 09:59:59 [gpu_model_runner.py:3562] Starting to load model /models/x...",
        lead + "EngineCore failed to start.", lead + "Traceback (most recent call last):", *(lead + line for line in body),
        f"{tag} Process EngineCore_DP0:",
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ])


def _frame(path: str, function: str = "forward", code: str = "x()") -> str:
    return f'  File "{path}", line 7, in {function}\n    {code}'


def _frames(*paths: str) -> tuple[str, ...]:
    return tuple(line for path in paths for line in _frame(path).split("\n"))


_READY = "[2026-03-01 10:01:00] The server is fired up and ready to roll!"
_DECODE = "[2026-03-01 10:02:00 TP0] Decode batch. #running-req: 6, #token: 4101, gen throughput (token/s): 402.15"

KINDS: tuple[Kind, ...] = (
    Kind("vllm-no-kernel-image", "unsupported_arch", "no kernel image is available",
         _vllm(*_frames("/v/vllm/v1/worker/gpu_worker.py"), "RuntimeError: CUDA error: no kernel image is available for execution on the device")),
    Kind("sglang-fusion-sm120", "unsupported_arch", "No supported CUDA architectures found for major versions",
         _sglang(*_frames("/v/flashinfer/compilation_context.py"), "RuntimeError: No supported CUDA architectures found for major versions [9, 10].", "",
                 "During handling of the above exception, another exception occurred:", "", "Traceback (most recent call last):",
                 *_frames("/v/sglang/srt/model_executor/cuda_graph_runner.py"),
                 "Exception: Capture cuda graph failed: No supported CUDA architectures found for major versions [9, 10].", "Possible solutions:",
                 "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)")),
    Kind("tllm-gen-sm120", "unsupported_arch", "Unsupported architecture",
         _sglang(*_frames("/v/sglang/srt/layers/attention/trtllm_mha_backend.py"),
                 "tvm.error.InternalError: Error in function 'TllmGenFmhaRunner' at /v/flashinfer/fmhaRunner.cuh:37: Unsupported architecture")),
    Kind("ptxas-sm121", "unsupported_arch", "is not defined for option 'gpu-name'",
         _vllm(*_frames("/v/triton/backends/nvidia/compiler.py"), "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error",
               "`ptxas` stderr:", "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'")),
    Kind("nvcc-arch", "unsupported_arch", "Unsupported gpu architecture 'compute_120a'",
         _sglang(*_frames("/v/flashinfer/jit/cpp_ext.py"), "RuntimeError: Ninja build failed. Ninja output:", "[1/4] /usr/local/cuda/bin/nvcc -c a.cu -o a.o",
                 "FAILED: a.o", "nvcc fatal   : Unsupported gpu architecture 'compute_120a'", "ninja: build stopped: subcommand failed.")),
    Kind("fa3-only-hopper", "unsupported_arch", "FlashAttention v3 Backend requires SM>=80 and SM<=90",
         _sglang(*_frames("/v/sglang/srt/layers/attention/attention_registry.py"), "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use `--attention-backend flashinfer`.")),
    Kind("fp8e4nv", "unsupported_arch", "type fp8e4nv not supported in this architecture",
         _vllm(*_frames("/v/triton/compiler/compiler.py"), "triton.compiler.errors.CompilationError: at 1:0:",
               "ValueError(\"type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15', 'fp8e5')\")")),
    Kind("trt-engine-other-gpu", "unsupported_arch", "expecting compute 8.6 got compute 8.9",
         "[TensorRT-LLM][INFO] MPI size: 1, rank: 0\n[TensorRT-LLM][ERROR] IRuntime::deserializeCudaEngine: Error Code 6: API Usage Error (The engine plan file is generated on an incompatible "
         "device, expecting compute 8.6 got compute 8.9, please rebuild.)\n[TensorRT-LLM][ERROR] Encountered an error: Failed to deserialize cuda engine."),
    Kind("mla-backend", "feature_unsupported", "No valid attention backend found",
         _vllm(*_frames("/v/vllm/platforms/cuda.py"), "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=576, kv_cache_dtype=fp8_e4m3)")),
    Kind("cutlass-mla-heads", "feature_unsupported", "H must be 128, but got 16",
         _sglang(*_frames("/v/sglang/srt/layers/attention/cutlass_mla_backend.py", "/v/sgl_kernel/attention.py"), "AssertionError: H must be 128, but got 16")),
    Kind("lora-unsupported", "feature_unsupported", "does not support LoRA",
         _vllm(*_frames("/v/vllm/model_executor/model_loader/loader.py"), "ValueError: Model architecture FooForCausalLM does not support LoRA, but LoRA is enabled.")),
    Kind("nvcc-missing", "jit_toolchain", "Could not find nvcc",
         _sglang(*_frames("/v/flashinfer/jit/cpp_ext.py"), "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist")),
    Kind("cuda-home", "jit_toolchain", "CUDA_HOME environment variable is not set",
         _vllm(*_frames("/v/torch/utils/cpp_extension.py"), "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.")),
    Kind("no-c-compiler", "jit_toolchain", "Failed to find C compiler",
         _vllm(*_frames("/v/triton/runtime/build.py"), "torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl.")),
    Kind("python-h", "jit_toolchain", "Python.h: No such file or directory",
         _vllm(*_frames("/v/triton/backends/nvidia/driver.py"), "/tmp/tmpx/main.c:5:10: fatal error: Python.h: No such file or directory", "    5 | #include <Python.h>", "compilation terminated.",
               "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmpx/main.c']' returned non-zero exit status 1.")),
    Kind("gcc-too-new", "jit_toolchain", "unsupported GNU version",
         _sglang(*_frames("/v/torch/utils/cpp_extension.py"), "RuntimeError: Error building extension 'fused': [1/2] nvcc -c a.cu",
                 "/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later than 13 are not supported!", "ninja: build stopped: subcommand failed.")),
    Kind("torch-cuda-version", "jit_toolchain", "The detected CUDA version",
         _vllm(*_frames("/v/torch/utils/cpp_extension.py"), "RuntimeError: The detected CUDA version (11.8) mismatches the version that was used to compile", "PyTorch (12.4). Please make sure to use the same CUDA versions.")),
    Kind("cicc-killed", "host_oom", "died due to signal 9",
         _sglang(*_frames("/v/flashinfer/jit/cpp_ext.py"), "RuntimeError: Ninja build failed. Ninja output:", "FAILED: a.o", "nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "ninja: build stopped: subcommand failed.")),
    Kind("aiter-baton", "stale_lock", "waiting for baton release",
         "[2026-03-01 09:59:40] server_args=ServerArgs(model_path='/models/x')\n[2026-03-01 10:00:00 TP0] Load weight end. type=Qwen2\n"
         "[2026-03-01 10:00:30 TP0] INFO core.py:524: waiting for baton release at /sgl-workspace/aiter/aiter/jit/build/lock_module_rmsnorm"),
    Kind("filelock", "stale_lock", "could not be acquired",
         _vllm(*_frames("/v/filelock/_api.py"), "filelock._error.Timeout: The file lock '/root/.cache/flashinfer/x.lock' could not be acquired.")),
    Kind("pyspy-file-baton", "stale_lock", "file_baton.py",
         "[2026-03-01 10:00:00 TP0] Memory pool end. avail mem=8.41 GB\n[2026-03-01 10:00:01 TP0] Capture cuda graph begin. This can take up to several minutes.\n"
         "Thread 2318 (active): \"MainThread\"\n    wait (torch/utils/file_baton.py:49)\n    _jit_compile (torch/utils/cpp_extension.py:1980)"),
    Kind("vllm-cache-corrupt", "stale_compile_cache", "corrupted compilation artifact",
         _vllm(*_frames("/v/vllm/compilation/compiler_interface.py"), "RuntimeError: vLLM failed to compile the model. The most likely reason for this is that a previous compilation failed, leading to a corrupted compilation artifact.")),
    Kind("vllm-cache-guard", "stale_compile_cache", "expected size 7==9",
         _vllm(*_frames("/root/.cache/vllm/torch_compile_cache/ea2d/rank_0_0/inductor_cache/bx/c.py"), "AssertionError: expected size 7==9, stride 5120==5120 at dim=0")),
    Kind("triton-cache", "stale_compile_cache", "/root/.triton/cache/",
         _sglang(*_frames("/v/triton/runtime/cache.py"), "FileNotFoundError: [Errno 2] No such file or directory: '/root/.triton/cache/ab12/fused_moe_kernel.json.tmp.pid_33'")),
    Kind("cached-ops-symbol", "abi_mismatch", "undefined symbol",
         _sglang(*_frames("/v/flashinfer/jit/core.py"), "OSError: /root/.cache/flashinfer/0.2.5/90a/cached_ops/page/page.so: undefined symbol: _ZN3c1021throwNullDataPtrErrorEv")),
    Kind("sglang-no-kv-room", "oom_kv_cache", "Not enough memory. Please try to increase --mem-fraction-static",
         _sglang(*_frames("/v/sglang/srt/model_executor/model_runner.py"), "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
                 head="[2026-03-01 10:00:00 TP0] Load weight end. type=X, avail mem=2.00 GB")),
    Kind("vllm-no-blocks", "oom_kv_cache", "No available memory for the cache blocks",
         _vllm(*_frames("/v/vllm/v1/core/kv_cache_utils.py"), "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.")),
    Kind("vllm-capture-oom", "oom_graph_capture", "CUDA out of memory",
         _vllm(*_frames("/v/vllm/v1/worker/gpu_model_runner.py"), *_frame("/v/vllm/v1/worker/gpu_worker.py", "compile_or_warm_up_model", "self.model_runner.capture_model()").split("\n"),
               "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 10.00 MiB is free. Including non-PyTorch memory, this process has 79.10 GiB memory in use.",
               head="(EngineCore_DP0 pid=44) INFO 03-01 09:59:59 [gpu_model_runner.py:3562] Graph capturing: Capturing CUDA graphs")),
    Kind("oom-foreign", "oom_other_process", "CUDA out of memory",
         _sglang(*_frames("/v/sglang/srt/model_loader/loader.py"),
                 "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 160.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 100.00 MiB is free. Process 4711 has 70.00 GiB memory in use. "
                 "Including non-PyTorch memory, this process has 9.00 GiB memory in use.")),
    Kind("unbalanced", "oom_other_process", "The memory capacity is unbalanced",
         _sglang(*_frames("/v/sglang/srt/model_executor/model_runner.py"), "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model_load_memory=40.1",
                 head="[2026-03-01 10:00:00 TP0] Init torch distributed begin.")),
    Kind("vllm-profiling-others", "oom_other_process", "Error in memory profiling",
         _vllm(*_frames("/v/vllm/v1/worker/gpu_worker.py"), "AssertionError: Error in memory profiling. Initial free memory 12.1 GiB, current free memory 30.2 GiB. This happens when other processes sharing the same container release GPU memory while vLLM is profiling")),
    Kind("vllm-runtime-oom", "oom_runtime", "CUDA out of memory",
         "(APIServer pid=1) INFO:     Application startup complete.\n(APIServer pid=1) INFO:     192.0.2.9:40012 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK\n"
         + _vllm(*_frames("/v/vllm/v1/engine/core.py", "/v/vllm/model_executor/models/qwen3.py"), "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
                 head="(APIServer pid=1) INFO 03-01 10:00:00 [loggers.py:236] Engine 000: Avg prompt throughput: 33.1 tokens/s, Avg generation throughput: 12.8 tokens/s, Running: 1 reqs")),
    Kind("nccl-alloc-dist", "oom_other_process", "Cuda failure 'out of memory'",
         "[2026-03-01 10:00:00 TP0] Init torch distributed begin.\n[2026-03-01 10:00:01 TP0] sglang is using nccl==2.27.3\nnode:77:91 [0] include/alloc.h:99 NCCL WARN Cuda failure 'out of memory'\n"
         "[2026-03-01 10:00:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File \"/v/pynccl.py\", line 9, in x\n    y()\nRuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n\n"
         "[2026-03-01 10:00:04] Received sigquit from a child process. It usually means the child failed."),
    Kind("ray-node-oom", "host_oom", "due to the node running low on memory",
         "INFO 03-01 10:00:00 [ray_utils.py:345] Creating a new placement group.\nLoading safetensors checkpoint shards:  35% Completed | 16/46 [03:02<05:41, 11.40s/it]\nray.exceptions.OutOfMemoryError: Task was killed due to the node "
         "running low on memory.\nMemory on the node (IP: 192.0.2.3) where the task was running was 505.11GB / 512.00GB (0.98)"),
    Kind("init-death-minus-nine", "host_oom", "died during initialization (exit code: -9)",
         "[2026-03-01 10:00:00 TP0] Load weight begin. avail mem=90.00 GB\nTraceback (most recent call last):\n  File \"/v/sglang/srt/entrypoints/engine.py\", line 2006, in _wait\n    raise RuntimeError(\nRuntimeError: Rank 3 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), the OS OOM killer may be responsible."),
    Kind("hicache-ram", "host_oom", "Not enough host memory available",
         _sglang(*_frames("/v/sglang/srt/mem_cache/memory_pool_host.py"), "ValueError: Not enough host memory available. Requesting 600.00 GB but only have 410.21 GB free. Please reduce the size of the hierarchical cache.")),
    Kind("bus-error", "shm", "Bus error",
         "(EngineCore_DP0 pid=44) INFO 03-01 09:59:59 [parallel_state.py:1200] world_size=2 rank=0 distributed_init_method=tcp://127.0.0.1:4 backend=nccl\nFatal Python error: Bus error\n\nThread 0x01 (most recent call first):\n  File \"/v/shm_broadcast.py\", line 9 in x"),
    Kind("posix-fallocate", "shm", "posix_fallocate failed",
         "[2026-03-01 10:00:00 TP0] Init torch distributed begin.\nnode:77:91 [0] misc/shmutils.cc:87 NCCL WARN Call to posix_fallocate failed : No space left on device\nnode:77:91 [0] misc/shmutils.cc:129 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a1 (size 9637888)\n"
         "[2026-03-01 10:00:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File \"/v/pynccl.py\", line 9, in x\n    y()\nRuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"),
    Kind("threads-limit", "ulimit", "can't start new thread",
         _sglang(*_frames("/usr/lib/python3.12/threading.py"), "RuntimeError: can't start new thread")),
    Kind("memlock", "ulimit", "Cannot allocate memory",
         "[2026-03-01 10:00:00 TP0] Init torch distributed begin.\nnode:77:91 [0] misc/ibvwrap.cc:180 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\n"
         "[2026-03-01 10:00:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File \"/v/pynccl.py\", line 9, in x\n    y()\nRuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"),
    Kind("port-vllm", "port_in_use", "[Errno 98] Address already in use",
         "(APIServer pid=1) INFO 03-01 09:59:40 [api_server.py:1351] vLLM API server version 0.15.1\n(APIServer pid=1) Traceback (most recent call last):\n(APIServer pid=1)   File \"/v/vllm/entrypoints/openai/api_server.py\", line 9, in create_server_socket\n(APIServer pid=1)     sock.bind(addr)\n"
         "(APIServer pid=1) OSError: [Errno 98] Address already in use"),
    Kind("port-ollama", "port_in_use", "bind: address already in use", "Error: listen tcp 127.0.0.1:11434: bind: address already in use"),
    Kind("port-nccl", "port_in_use", "EADDRINUSE",
         _sglang(*_frames("/v/torch/distributed/rendezvous.py"), "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
                 head="[2026-03-01 10:00:00 TP0] Init torch distributed begin.")),
    Kind("clients-missing", "network_setup", "waiting for clients",
         _sglang(*_frames("/v/torch/distributed/rendezvous.py"), "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.", head="[2026-03-01 10:00:00 TP0] Init torch distributed begin.")),
    Kind("nccl-no-interface", "network_setup", "no socket interface found",
         "[2026-03-01 10:00:00 TP0] Init torch distributed begin.\nnode:77:91 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth9\nnode:77:91 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n"
         "[2026-03-01 10:00:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File \"/v/pynccl.py\", line 9, in x\n    y()\nRuntimeError: NCCL error: internal error - please report this issue to the NCCL developers"),
    Kind("ib-completion-error", "network_setup", "Got completion from peer",
         "[2026-03-01 10:00:00 TP0] Init torch distributed begin.\nnode:77:91 [0] transport/net_ib.cc:1298 NCCL WARN NET/IB : Got completion from peer 192.0.2.4<4791> with status=12 opcode=0 len=0 vendor err 129 (Recv)\n"
         "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/v/a.py\", line 9, in x\n[rank0]:     y()\n[rank0]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3356, remote process exited or there was a network error"),
    Kind("etcd", "network_setup", "Failed to connect to etcd",
         "2026-03-01T10:00:00.243403Z  INFO dynamo_runtime: starting\nTraceback (most recent call last):\n  File \"/v/dynamo/runtime/__init__.py\", line 38, in wrapper\n    runtime = DistributedRuntime(loop, static)\nException: Failed to connect to etcd server with config ClientOptions { etcd_url: [\"http://localhost:2379\"] }"),
    Kind("nccl-algo", "env_config", "NCCL_ALGO was set to Tree",
         "[2026-03-01 10:00:00 TP0] Init torch distributed begin.\nnode:77:91 [0] enqueue.cc:1900 NCCL WARN Error : no algorithm/protocol available for function AllGather with datatype ncclInt8. NCCL_ALGO was set to Tree.\n"
         "[2026-03-01 10:00:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File \"/v/pynccl.py\", line 9, in x\n    y()\nRuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)"),
    Kind("duplicate-gpu", "argument_error", "Duplicate GPU detected",
         "[2026-03-01 10:00:00 TP0] Init torch distributed begin.\nnode:77:91 [0] init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000\n[rank0]: RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)"),
    Kind("p2p-nccl", "nccl_p2p", "peer access is not supported",
         "INFO 03-01 10:00:00 [parallel_state.py:1200] world_size=2 rank=0 distributed_init_method=tcp://127.0.0.1:4 backend=nccl\nnode:77:91 [0] transport/p2p.cc:275 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'\n"
         "ERROR 03-01 10:00:09 [core.py:842] EngineCore failed to start.\nERROR 03-01 10:00:09 [core.py:842] Traceback (most recent call last):\nERROR 03-01 10:00:09 [core.py:842]   File \"/v/pynccl.py\", line 9, in x\nERROR 03-01 10:00:09 [core.py:842] RuntimeError: NCCL error: unhandled cuda error"),
    Kind("custom-ar-ipc", "graph_capture", "custom_all_reduce.cuh:455 'invalid argument'",
         "(Worker_TP0 pid=7) INFO 03-01 10:00:00 [gpu_model_runner.py:5] Graph capturing finished in 12 secs, took 0.86 GiB\nFailed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'\n"
         "(EngineCore pid=3) ERROR 03-01 10:00:09 [multiproc_executor.py:314] Worker proc VllmWorker-0 died unexpectedly (exit code: None), shutting down executor."),
    Kind("forward-compat", "driver_mismatch", "Error 804",
         _vllm(*_frames("/v/torch/cuda/__init__.py"), "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW")),
    Kind("old-driver", "driver_mismatch", "driver on your system is too old",
         _sglang(*_frames("/v/torch/cuda/__init__.py"), "RuntimeError: The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver.")),
    Kind("fabric-manager", "driver_mismatch", "Error 802", _vllm(*_frames("/v/torch/cuda/__init__.py"), "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized")),
    Kind("ptx-toolchain", "driver_mismatch", "compiled with an unsupported toolchain", _vllm(*_frames("/v/vllm/_custom_ops.py"), "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.")),
    Kind("xid-79", "hardware_fault", "fallen off the bus",
         f"{_READY}\n{_DECODE}\n[dmesg] [ 5123.1] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n[2026-03-01 10:03:00 TP3] Scheduler hit an exception: Traceback (most recent call last):\n  File \"/v/x.py\", line 9, in x\n    y()\n"
         "torch.AcceleratorError: CUDA error: unspecified launch failure\n\n[2026-03-01 10:03:01] SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
    Kind("nvml-lost", "hardware_fault", "GPU is lost", _sglang(*_frames("/v/pynvml.py"), "pynvml.NVMLError_GpuIsLost: GPU is lost")),
    Kind("glibcxx", "abi_mismatch", "GLIBCXX_3.4.32", _vllm(*_frames("/v/vllm/_C.py"), "ImportError: /usr/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /v/vllm/_C.abi3.so)")),
    Kind("flash-attn-symbol", "abi_mismatch", "undefined symbol",
         "Traceback (most recent call last):\n  File \"/v/sglang/launch_server.py\", line 6, in <module>\n    from x import y\nImportError: /v/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEab"),
    Kind("flashinfer-min", "abi_mismatch", "less than the minimum required version",
         "Traceback (most recent call last):\n  File \"/v/sglang/srt/utils/common.py\", line 2431, in assert_pkg_version\n    raise Exception(\nException: flashinfer_python is installed with version 0.2.3, which is less than the minimum required version 0.2.5."),
    Kind("flashinfer-absent", "abi_mismatch", "minimum required version 0.2.5 is not installed",
         "Traceback (most recent call last):\n  File \"/v/sglang/srt/utils/common.py\", line 2431, in assert_pkg_version\n    raise Exception(\nException: flashinfer_python with minimum required version 0.2.5 is not installed. Please uninstall the old version"),
    Kind("kwarg-skew", "abi_mismatch", "got an unexpected keyword argument", _sglang(*_frames("/v/flashinfer/decode.py"), "TypeError: BatchDecodeWithPagedKVCacheWrapper.plan() got an unexpected keyword argument 'fixed_split_size'")),
    Kind("ray-versions", "abi_mismatch", "Version mismatch: The cluster was started with",
         "Traceback (most recent call last):\n  File \"/v/ray/_private/utils.py\", line 9, in check_version_info\n    raise RuntimeError(\nRuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.40.0\n    Python: 3.10.12"),
    Kind("model-missing", "model_files", "Repo id must be in the form",
         "Traceback (most recent call last):\n  File \"/v/huggingface_hub/utils/_validators.py\", line 9, in x\n    raise\nhuggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/missing'. Use `repo_type` argument if needed."),
    Kind("gated", "model_files", "gated repo",
         "Traceback (most recent call last):\n  File \"/v/transformers/utils/hub.py\", line 9, in x\n    raise\nOSError: You are trying to access a gated repo.\nMake sure to have access to it at https://huggingface.co/meta/x"),
    Kind("truncated-shard", "model_files", "MetadataIncompleteBuffer", _sglang(*_frames("/v/sglang/srt/model_loader/weight_utils.py"), "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer")),
    Kind("arch-unknown", "model_files", "does not recognize this architecture",
         "Traceback (most recent call last):\n  File \"/v/transformers/models/auto/configuration_auto.py\", line 9, in x\n    raise KeyError(key)\nKeyError: 'qwen9'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
         "  File \"/v/transformers/models/auto/configuration_auto.py\", line 10, in y\n    raise ValueError(\nValueError: The checkpoint you are trying to load has model type `qwen9` but Transformers does not recognize this architecture."),
    Kind("weights-key", "model_files", "KeyError: 'model.layers.0.", _sglang(*_frames("/v/sglang/srt/models/qwen3.py"), "KeyError: 'model.layers.0.mlp.experts.w2_weight_scale'")),
    Kind("tokenizer", "model_files", "Couldn't instantiate the backend tokenizer", "Traceback (most recent call last):\n  File \"/v/transformers/tokenization_utils_fast.py\", line 9, in x\n    raise\nValueError: Couldn't instantiate the backend tokenizer from one of:"),
    Kind("llama-arch", "model_files", "unknown model architecture",
         "llama_model_loader: loaded meta data with 40 key-value pairs\nllama_model_load: error loading model: error loading model architecture: unknown model architecture: 'qwen3next'\nllama_model_load_from_file_impl: failed to load model\nmain: error: failed to load model '/models/x.gguf'"),
    Kind("gguf-corrupt", "model_files", "model is corrupted or incomplete",
         "llama_model_loader: loaded meta data with 40 key-value pairs\nllama_model_load: error loading model: tensor 'blk.30.ffn_up.weight' data is not within the file bounds, model is corrupted or incomplete\nllama_model_load_from_file_impl: failed to load model"),
    Kind("llama-oom", "oom_weights", "cudaMalloc failed: out of memory",
         "llama_model_loader: loaded meta data\nload_tensors: loading model tensors, this can take a while...\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 24000.00 MiB on device 0: cudaMalloc failed: out of memory\nalloc_tensor_range: failed to allocate CUDA0 buffer\n"
         "llama_model_load: error loading model: unable to allocate CUDA0 buffer\nllama_model_load_from_file_impl: failed to load model"),
    Kind("llama-kv-oom", "oom_kv_cache", "cudaMalloc failed: out of memory",
         "load_tensors: offloaded 37/37 layers to GPU\nllama_kv_cache_unified: size = 18432.00 MiB\nggml_backend_cuda_buffer_type_alloc_buffer: allocating 18432.00 MiB on device 0: cudaMalloc failed: out of memory\n"
         "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache"),
    Kind("ollama-ram", "host_oom", "requires more system memory", 'time=2026-07-28T10:14:31.220Z level=WARN source=server.go:1 msg="model request too large for system" error="model requires more system memory (42.1 GiB) than is available (30.0 GiB)"'),
    Kind("ollama-cpu", "degraded", "no compatible GPUs were discovered",
         'time=2026-07-28T10:14:02.113Z level=INFO source=gpu.go:386 msg="no compatible GPUs were discovered"\ntime=2026-07-28T10:14:35.700Z level=INFO source=server.go:1288 msg="llama runner started in 4.48 seconds"\n'
         '[GIN] 2026/07/28 - 10:15:00 | 200 |  41.1s |  127.0.0.1 | POST     "/api/generate"'),
    Kind("awq-shape", "quantization", "not aligned with the quantized weight shape", _vllm(*_frames("/v/vllm/model_executor/layers/quantization/awq.py"), "ValueError: The input size is not aligned with the quantized weight shape. This can be caused by too large tensor parallel size.")),
    Kind("fp8-block-tp", "quantization", "is not divisible by weight quantization block_n", _sglang(*_frames("/v/sglang/srt/layers/quantization/fp8.py"), "ValueError: Weight output_partition_size = 576 is not divisible by weight quantization block_n = 128.")),
    Kind("fp8-capability", "quantization", "Minimum capability: 89", _vllm(*_frames("/v/vllm/model_executor/model_loader/weight_utils.py"), "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current capability: 80.")),
    Kind("quant-mismatch", "quantization", "does not match the quantization method",
         _vllm(*_frames("/v/vllm/config.py"), "ValueError: Quantization method specified in the model config (awq) does not match the quantization method specified in the `quantization` argument (gptq).")),
    Kind("choice", "argument_error", "invalid choice", "usage: launch_server.py [-h] --model-path MODEL_PATH\nlaunch_server.py: error: argument --attention-backend: invalid choice: 'fa9' (choose from 'triton', 'fa3')"),
    Kind("heads-tp", "argument_error", "must be divisible by tensor parallel size",
         _vllm(*_frames("/v/vllm/config/model.py"), "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8).")),
    Kind("vllm-world", "argument_error", "larger than the number of available GPUs",
         _vllm(*_frames("/v/vllm/config/parallel.py"), "ValueError: World size (8) is larger than the number of available GPUs (4) in this node. If this is intentional and you are using:")),
    Kind("context-length", "argument_error", "is greater than the derived max_model_len",
         "(APIServer pid=1)   Value error, User-specified max_model_len (262144) is greater than the derived max_model_len (max_position_embeddings=131072). [type=value_error]"),
    Kind("server-args", "argument_error", "should be set so that",
         "Traceback (most recent call last):\n  File \"/v/sglang/srt/server_args.py\", line 1200, in __post_init__\n    self.check()\nAssertionError: tp_size 3 and dp_size 2 should be set so that one divides the other"),
    Kind("draft-vocab", "speculative", "Draft model vocab",
         _sglang(*_frames("/v/sglang/srt/model_executor/model_runner.py"), "ValueError: Draft model vocab size 32000 does not match target vocab size 128256.")),
    Kind("vllm-draft", "speculative", "mat1 and mat2 shapes cannot be multiplied",
         _vllm(*_frames("/v/vllm/v1/spec_decode/eagle.py", "/v/vllm/model_executor/models/llama_eagle3.py"), "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8192x21504 and 12288x4096)")),
    Kind("hf-arg-env", "env_config", "invalid literal for int() with base 10: 'GPU-8c7b'", _vllm(*_frames("/v/vllm/platforms/cuda.py"), "ValueError: invalid literal for int() with base 10: 'GPU-8c7b'")),
    Kind("expandable", "env_config", "Expandable segments are not compatible with memory pool", _vllm(*_frames("/v/vllm/device_allocator/cumem.py"), "AssertionError: Expandable segments are not compatible with memory pool. Please track https://github.com/x")),
    Kind("fork", "process_start_method", "Cannot re-initialize CUDA in forked subprocess",
         _vllm(*_frames("/v/torch/cuda/__init__.py"), "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method")),
    Kind("main-guard", "process_start_method", "finished its bootstrapping phase",
         "INFO 03-01 10:00:00 [llm_engine.py:1] Initializing a V1 LLM engine\nTraceback (most recent call last):\n  File \"/usr/lib/python3.12/multiprocessing/spawn.py\", line 1, in x\n    y()\nRuntimeError: \n        An attempt has been made to start a new process before the\n"
         "        current process has finished its bootstrapping phase."),
    Kind("pd-transfer", "pd_disaggregation", "Failed to get kvcache from prefill instance",
         f"{_READY}\n[2026-03-01 10:05:00 TP1] Decode transfer failed for request rank=1 decode_req.req.rid='3c' decode_req.req.bootstrap_room=16 with exception KVTransferError(bootstrap_room=16): Failed to get kvcache from prefill instance, it might be dead\n"
         "[2026-03-01 10:05:01] INFO:     10.0.0.1:41698 - \"POST /v1/chat/completions HTTP/1.1\" 500 Internal Server Error"),
    Kind("nixl", "pd_disaggregation", "NIXL_ERR_BACKEND", _vllm(*_frames("/v/vllm/distributed/kv_transfer/kv_connector/v1/nixl_connector.py"), "nixl._bindings.nixlBackendError: NIXL_ERR_BACKEND")),
    Kind("pool-leak", "device_memory_leak", "memory leak detected",
         f"{_READY}\n{_DECODE}\n[2026-03-01 10:03:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File \"/v/sglang/srt/managers/scheduler.py\", line 9, in check_memory\n    raise ValueError(msg)\n"
         "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=961586, protected_size=0\n\n[2026-03-01 10:03:01] SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
    Kind("illegal-sglang", "illegal_memory_access", "an illegal memory access was encountered",
         f"{_READY}\n{_DECODE}\n[2026-03-01 10:03:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File \"/v/x.py\", line 9, in x\n    y()\nRuntimeError: CUDA error: an illegal memory access was encountered\n\n"
         "[rank1]:[E301 10:03:00.1 ProcessGroupNCCL.cpp:1895] [PG ID 2 PG GUID 3 Rank 1] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered\n"
         "[2026-03-01 10:03:01] SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
    Kind("sglang-symm-mem-key", "unknown", "KeyError: 12", _sglang(*_frames("/v/sglang/srt/models/llama.py"), "KeyError: 12")),
    Kind("vllm-worker-lost", "worker_died_silently", "died unexpectedly",
         "(APIServer pid=1) INFO:     Application startup complete.\n(APIServer pid=1) INFO:     192.0.2.9:1 - \"POST /v1/completions HTTP/1.1\" 200 OK\n(EngineCore pid=3) ERROR 03-01 10:00:09 [multiproc_executor.py:314] Worker proc VllmWorker-1 died unexpectedly, shutting down executor.\n"
         "(APIServer pid=1) ERROR 03-01 10:00:09 [async_llm.py:704] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."),
    Kind("rank-killed-peers-complain", "worker_died_silently", "crashed with exit code -9",
         f"{_READY}\n{_DECODE}\n[2026-03-01 10:03:00] Subprocess scheduler_1 (pid=77) crashed with exit code -9. Triggering SIGQUIT for cleanup...\n[2026-03-01 10:03:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File \"/v/x.py\", line 9, in recv\n    y()\n"
         "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection reset by peer [127.0.0.1]:1\n\n[2026-03-01 10:03:01] SIGQUIT received. signum=None, frame=None. It usually means one child failed."),
    Kind("nccl-watchdog-vllm", "nccl_timeout", "Watchdog caught collective operation timeout",
         "(APIServer pid=1) INFO:     Application startup complete.\n[rank1]:[E301 10:03:00.1 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=33, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\n"
         "(EngineCore pid=3) ERROR 03-01 10:00:09 [core.py:842] EngineCore encountered a fatal error.\n(EngineCore pid=3) ERROR 03-01 10:00:09 [core.py:842] RuntimeError: cancelled"),
    Kind("hang-nccl-version", "hang", "vLLM is using nccl==2.27.3",
         "(EngineCore_DP0 pid=44) INFO 03-01 09:59:59 [parallel_state.py:1200] world_size=2 rank=0 distributed_init_method=tcp://127.0.0.1:4 backend=nccl\n(EngineCore_DP0 pid=44) INFO 03-01 10:00:00 [pynccl.py:70] vLLM is using nccl==2.27.3"),
    Kind("hang-sglang-dist", "hang", "Init torch distributed begin.",
         "[2026-03-01 09:59:40] server_args=ServerArgs(model_path='/models/x', tp_size=2, port=30000)\n[2026-03-01 10:00:00 TP1] Init torch distributed begin."),
    Kind("vllm-rpc-timeout", "hang", "RPC call to sample_tokens timed out",
         "(APIServer pid=1) INFO:     Application startup complete.\n" + _vllm(*_frames("/v/vllm/v1/executor/multiproc_executor.py"), "TimeoutError: RPC call to sample_tokens timed out.")),
    Kind("nan", "wrong_output", "NaN in the logits",
         f"{_READY}\n[2026-03-01 10:03:00 TP0] Detected errors during sampling! NaN in the logits.\n{_DECODE}\n[2026-03-01 10:03:01] INFO:     127.0.0.1:1 - \"POST /generate HTTP/1.1\" 200 OK"),
    Kind("retract", "degraded", "KV cache pool is full. Retract requests",
         f"{_READY}\n[2026-03-01 10:03:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 12, #new_token_ratio: 0.7 -> 1.0\n{_DECODE}"),
    Kind("ok-vllm-client-error", "healthy", "",
         "(APIServer pid=1) INFO:     Application startup complete.\n(APIServer pid=1) ERROR 03-01 10:00:09 [serving_chat.py:240] Error in preprocessing prompt inputs\n(APIServer pid=1) ERROR 03-01 10:00:09 [serving_chat.py:240] Traceback (most recent call last):\n"
         "(APIServer pid=1) ERROR 03-01 10:00:09 [serving_chat.py:240]   File \"/v/vllm/entrypoints/openai/serving_engine.py\", line 9, in x\n(APIServer pid=1) ERROR 03-01 10:00:09 [serving_chat.py:240] ValueError: This model's maximum context length is 4096 tokens. However, you requested 9000 tokens.\n"
         "(APIServer pid=1) INFO:     192.0.2.9:1 - \"POST /v1/chat/completions HTTP/1.1\" 400 Bad Request\n(APIServer pid=1) INFO:     192.0.2.9:1 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK"),
    Kind("ok-prompt-quotes-error", "healthy", "",
         f"{_READY}\n[2026-03-01 10:03:00] Receive: obj=GenerateReqInput(text='RuntimeError: CUDA out of memory. Tried to allocate 2 GiB')\n{_DECODE}"),
    Kind("ok-shutdown-noise", "healthy", "",
         f"{_READY}\n{_DECODE}\n[2026-03-01 10:05:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n[2026-03-01 10:05:01 TP1] Scheduler hit an exception: Traceback (most recent call last):\n  File \"/v/x.py\", line 9, in recv\n    y()\n"
         "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1\n"),
    Kind("ok-loading", "healthy", "",
         "[2026-03-01 10:00:00 TP0] Load weight begin. avail mem=90.00 GB\nLoading safetensors checkpoint shards:   2% Completed | 1/46 [00:02<05:41, 11.40s/it]\nLoading safetensors checkpoint shards:  35% Completed | 16/46 [03:02<05:41, 11.40s/it]"),
    Kind("ok-second-attempt", "healthy", "",
         "(EngineCore pid=9) ERROR 03-01 09:00:00 [core.py:842] EngineCore failed to start.\n(EngineCore pid=9) ERROR 03-01 09:00:00 [core.py:842] ValueError: Free memory on device (18.20/79.15 GiB) on startup is less than desired GPU memory utilization (0.9, 71.24 GiB).\n--- container restarted (attempt 2) ---\n"
         "(APIServer pid=1) INFO 03-01 09:59:40 [api_server.py:1351] vLLM API server version 0.15.1\n(APIServer pid=1) INFO:     Application startup complete."),
)
