"""What each category means and what usually helps; signatures know it better. `docs/diagnosis.md` shows this table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Meaning(NamedTuple):
    """Two half sentences for a person."""

    meaning: str
    remedy: str


MEANINGS: Mapping[str, Meaning] = {
    "unsupported_arch": Meaning(
        "a kernel or a compiler does not know this GPU's architecture",
        "another backend, or a build for this architecture",
    ),
    "feature_unsupported": Meaning(
        "the engine refuses this combination of model, hardware and options",
        "leave out the option, or use a version that has it",
    ),
    "jit_toolchain": Meaning(
        "compiling a kernel at start failed: compiler, headers or tools are missing or too old",
        "install what the first compiler error names",
    ),
    "oom_weights": Meaning(
        "GPU memory ran out while weights were loaded", "more parallelism, a smaller or quantized model"
    ),
    "oom_kv_cache": Meaning(
        "too little GPU memory is left for the key-value cache",
        "another memory fraction, a shorter context, a smaller batch",
    ),
    "oom_graph_capture": Meaning(
        "GPU memory ran out while CUDA graphs were captured", "a lower memory fraction, or fewer and smaller graphs"
    ),
    "oom_other_process": Meaning("somebody else holds GPU memory", "`host reap` names who; end them or wait"),
    "oom_runtime": Meaning(
        "GPU memory ran out while serving", "a lower memory fraction, smaller prefill chunks, fewer requests"
    ),
    "host_oom": Meaning(
        "the machine's or the container's memory ran out", "more RAM, a higher limit, fewer parallel loaders"
    ),
    "shm": Meaning("shared memory is missing, full or too small", "a larger /dev/shm; segments of dead processes away"),
    "ulimit": Meaning("a limit on files, processes or locked memory was hit", "raise that limit for the server"),
    "port_in_use": Meaning(
        "somebody listens on a port that the server needs", "end the listener, or take another port"
    ),
    "network_setup": Meaning(
        "hosts or ranks do not find each other: interface, name, firewall, fabric", "the right interface and addresses"
    ),
    "nccl_p2p": Meaning(
        "direct access between GPUs does not work", "switch peer-to-peer or custom all-reduce off, or repair it"
    ),
    "nccl_timeout": Meaning("a collective did not finish in time", "find the rank that does not report it"),
    "peer_died": Meaning("what is seen is only that another rank is gone", "the log of the rank that ended first"),
    "peer_slow": Meaning(
        "a rank was far behind when the wait ran out", "what that rank was busy with; a longer time-out"
    ),
    "hang": Meaning("nothing gets on, and nothing says why", "stacks of every rank"),
    "watchdog": Meaning("a watchdog, probe or time limit ended the server", "what took so long, or a longer limit"),
    "worker_died_silently": Meaning(
        "a process ended without a word: killed from outside", "kernel log, operator, scheduler of the cluster"
    ),
    "stale_lock": Meaning("a lock file of a dead process is waited for", "remove that lock"),
    "stale_compile_cache": Meaning("a cache of compiled code does not fit or is damaged", "remove that cache"),
    "hardware_fault": Meaning(
        "the GPU, its memory or its link reports a fault", "drain the host, and have it looked at"
    ),
    "driver_mismatch": Meaning(
        "driver, library and toolkit do not fit one another", "one set of versions; reload or reboot"
    ),
    "illegal_memory_access": Meaning(
        "a kernel reached outside its memory; the Python line shown is arbitrary",
        "CUDA_LAUNCH_BLOCKING=1, then the kernel",
    ),
    "device_assert": Meaning(
        "an assertion in a kernel failed, mostly an index out of range", "the assertion's own line above"
    ),
    "graph_capture": Meaning(
        "something may not be done while a graph is captured", "take it out, or switch graphs off"
    ),
    "abi_mismatch": Meaning(
        "a compiled package was built for other versions", "packages that were built for each other"
    ),
    "model_files": Meaning(
        "files of the model or tokenizer are missing, damaged or of another model", "download them again"
    ),
    "quantization": Meaning(
        "the quantization does not fit the model, the kernels or the GPU", "another method or backend"
    ),
    "argument_error": Meaning("a flag or a value is wrong, or two contradict each other", "what the message names"),
    "speculative": Meaning(
        "draft and target do not fit, or draft options are not handled", "a draft made for this target"
    ),
    "env_config": Meaning("a variable, a path or the surroundings are set wrongly", "what the message names"),
    "pd_disaggregation": Meaning(
        "prefill and decode servers do not come together", "their addresses, back ends and versions"
    ),
    "process_start_method": Meaning(
        "processes are started in a way that CUDA or the engine forbids", "spawn instead of fork"
    ),
    "device_memory_leak": Meaning(
        "memory is not given back, by the pool or by the driver", "end survivors, restart, update"
    ),
    "disk_full": Meaning("a disk or quota is used up", "free space where the message says"),
    "patch_error": Meaning("the error lies in a file that the experiment changed", "correct or revert the change"),
    "healthy": Meaning("the server came up, or gets on, and nothing says that it is lost", "none"),
    "degraded": Meaning("it serves, but not as it was asked to: the experiment is void", "the warning's own words"),
    "wrong_output": Meaning("it serves, and what it says is wrong", "what changed numbers, kernels or templates"),
    "unknown": Meaning("nothing that is known explains it", "the last phase, and the end of the log"),
}
