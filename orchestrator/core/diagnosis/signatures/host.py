"""The machine under the server: RAM, shared memory, limits, disk, permissions."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Signature, root, symptom
from orchestrator.core.diagnosis.undecided import KILLED

SIGNATURES: tuple[Signature, ...] = (
    root(
        "host.oom-kill", "host_oom",
        ("Killed process", "Memory cgroup out of memory", "OOMKilled"),
        r"[Oo]ut of memory: Killed process \d+|Memory cgroup out of memory: Kill"
        r"|Killed process \d+ \(.+\) total-vm|\bOOMKilled\b",
        "the kernel ended the process because host memory ran out",
        "more RAM or swap, fewer parallel loaders, a higher memory limit of the container",
        "Out of memory: Killed process 4127 (sglang::schedul) total-vm:361207112kB",
        "Killed worker by request",
        loud=True, sticky=True, certainty="certain",
    ),
    root(
        "host.oom-kill-head", "host_oom",
        ("oom-kill:", "invoked oom-killer", "oom_kill_process"),
        "oom-kill:constraint|invoked oom-killer|oom_kill_process",
        "the kernel looked for a process to end because host memory ran out",
        "more RAM or swap, fewer loaders",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=sglang::schedul,pid=4127",
        "oom killer is disabled",
        weight=2, loud=True, sticky=True,
    ),
    root(
        "host.ray-oom", "host_oom",
        (
            "due to the node running low on memory", "due to memory pressure", "memory on the node",
            "Memory on the node",
        ),
        r"due to the node running low on memory|[Mm]emory on the node .* was [\d.]+GB"
        "|(?<!0 Workers )killed due to (?:.* memory|memory pressure)"
        r"|[1-9]\d* Workers? .*killed due to memory pressure",
        "Ray ended a worker because the node's memory was nearly used up",
        "more RAM, fewer workers on the node",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "memory on the node: 512 GB",
        weight=4, certainty="certain",
    ),
    root(
        "host.alloc-failed", "host_oom",
        (
            "DefaultCPUAllocator", "std::bad_alloc", "MemoryError", "Cannot allocate memory",
            "failed to allocate host", "cudaHostAlloc", "cudaErrorHostMemory", "pinned memory",
        ),
        r"DefaultCPUAllocator: (?:can't|not enough)|what\(\):\s+std::bad_alloc"
        r"|^(?:\w+\.)*_?(?:Array)?MemoryError\b|OSError: \[Errno 12\]|(?:failed"
        "|unable) to allocate .*(?:host|pinned)|cudaHostAlloc.*out of memory",
        "the host had no memory left to give",
        "more RAM; a smaller host cache or fewer loader threads",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory",
        "pinned memory is available",
        knobs=("--hicache-ratio", "--hicache-size", "--cpu-offload-gb", "--swap-space"),
    ),
    root(
        "host.hicache", "host_oom",
        ("Not enough host memory available", "host memory"),
        "Not enough host memory available|Requesting .* GB but only have .* GB free",
        "the host cache asked for more RAM than is free",
        "lower --hicache-ratio or --hicache-size",
        "ValueError: Not enough host memory available. Requesting 600.00 GB but only have 410.21 GB free.",
        "host memory pool allocated",
        knobs=("--hicache-ratio", "--hicache-size"), certainty="certain",
    ),
    root(
        "host.compiler-killed", "host_oom",
        ("died due to signal 9", "Killed signal terminated program", "signal 9 (Kill signal)"),
        r"died due to signal 9|Killed signal terminated program|signal 9 \(Kill signal\)",
        "a compiler was killed: too many compile jobs for the RAM",
        "set MAX_JOBS to a small number",
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        "worker got signal 15",
        weight=4, knobs=("MAX_JOBS",),
    ),
    root(
        "host.shm-full", "shm",
        ("/dev/shm", "posix_fallocate failed", "shared memory segment", "shared memory object"),  # noqa: S108  (words of a log)
        r"(?:creating|extend|attach\w*|open\w*|allocat\w*|write"
        r"|mmap).{0,60}/dev/shm\S*.{0,80}(?:No space left|error|fail|Cannot allocate)"
        r"|posix_fallocate failed\s*:\s*No space left|/dev/shm\S*.{0,40}(?:No space left on device"
        "|out of shared memory|too small)|No space left on device.{0,80}(?:/dev/shm|/psm_|/nccl-"
        r"|torch_\d)|out of shared memory",
        "shared memory is full or too small",
        "enlarge it (--shm-size, --ipc=host); delete segments of dead processes",
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ewjreo (size 33030528), "
        "error: No space left on device (28)",
        "using /dev/shm/nccl-AbCd for shared memory",
        weight=4, certainty="certain",
    ),
    root(
        "host.bus-error", "shm",
        (
            "Bus error", "SIGBUS", "unable to open shared memory", "unable to write to file </torch",
            "unable to mmap", "insufficient shared memory",
        ),
        r"\bBus error\b|SIGBUS|unable to (?:open shared memory|write to file </torch|mmap)"
        "|insufficient shared memory",
        "a page of shared memory could not be had",
        "enlarge shared memory (--shm-size, --ipc=host)",
        "Fatal Python error: Bus error",
        "bus id error count 0",
    ),
    root(
        "host.nccl-shm", "shm",
        ("shmutils.cc", "ncclShmOpen", "Cannot allocate memory (12)"),
        "NCCL WARN .*(?:fail|[Ee]rror|No space|denied).*(?:shared memory|shm)"
        "|NCCL WARN .*(?:shared memory|shm).*(?:fail|error|No space|denied)|ncclShmOpen.*fail",
        "NCCL could not make its shared memory",
        "enlarge shared memory; delete nccl-* segments of dead processes",
        "misc/shmutils.cc:72 NCCL WARN Error: failed to extend shm to 33030532 bytes",
        "NCCL INFO shmutils.cc:68 -> 0",
    ),
    root(
        "host.files", "ulimit",
        ("Too many open files", "[Errno 24]"),
        "Too many open files",
        "the process may not open any more files",
        "raise the limit of open files (ulimit -n) for this session",
        "zmq.error.ZMQError: Too many open files",
        "Found ulimit of 65535",
        certainty="certain",
    ),
    root(
        "host.threads", "ulimit",
        (
            "can't start new thread", "Resource temporarily unavailable", "pthread_create failed",
            "cannot fork", "unable to create new native thread", "thread creation failed",
            "libgomp: Thread creation failed",
        ),
        r"can't start new thread|\[Errno 11\] Resource temporarily unavailable|pthread_create failed"
        "|[Tt]hread creation failed|cannot fork|fork: (?:retry: )?Resource temporarily"
        "|unable to create new native thread",
        "the user or the container may not start any more processes",
        "raise ulimit -u or the pids limit of the cgroup",
        "RuntimeError: can't start new thread",
        "thread 3 is temporarily idle",
        certainty="certain",
    ),
    root(
        "host.memlock", "ulimit",
        ("ibv_reg_mr", "ibv_create_qp", "ibv_create_cq", "memlock", "RLIMIT_MEMLOCK", "locked memory"),
        r"(?:ibv_reg_mr\w*|ibv_create_[qc]p?\w*|reg_mr"
        "|Failed to register memory).*(?:Cannot allocate memory|errno 12|ENOMEM|error 12)|(?:memlock"
        "|RLIMIT_MEMLOCK|locked memory).*(?:too (?:low|small)|unlimited.*required|insufficient|exceed)",
        "RDMA may not lock enough memory",
        "ulimit -l unlimited, or --ulimit memlock=-1 for the container",
        "NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
        "memlock unlimited",
        weight=4,
    ),
    root(
        "host.disk", "disk_full",
        ("No space left on device", "Disk quota exceeded", "disk is full"),
        "No space left on device|Disk quota exceeded|disk is full",
        "a disk is full",
        "free or enlarge it: df -h for the model, cache and temporary directories",
        "OSError: [Errno 28] No space left on device: '/root/.cache/huggingface'",
        "disk space left: 3 GB",
    ),
    root(
        "host.permission", "env_config",
        ("Permission denied", "Operation not permitted", "Read-only file system"),
        r"PermissionError: |\[Errno 13\]|OSError: \[Errno (?:1|30)\]|^\w+Error: .*Permission denied"
        "|: Permission denied$",
        "a file, directory or device may not be used by this user",
        "check owner and mode of the cache, log and device paths named",
        "PermissionError: [Errno 13] Permission denied: '/root/.triton/cache'",
        "set_mempolicy: Operation not permitted",
    ),
    symptom(
        "host.killed-child", KILLED,
        (
            "exit code: -9", "exit code -9", "exitcode: -9", "Exit code: -9", "exited with signal 9",
            "signal: killed", "exitcode -9", "exit status 137", "exit code 137", "ExitCode: 137",
            "exit code: 137", "by signal 9", "exitcode=-9", "Exit code 137",
        ),
        r"exit ?code[:= ]+-9\b|exited with signal 9|signal: killed|exit (?:status|code)[: ]+137|by signal 9",
        "a process of the server was killed from outside; it had no chance to say why",
        "ask the kernel log, the operator and the cluster; end the whole process tree before a restart",
        "Subprocess scheduler_0 (pid=1620) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
        "Worker VllmWorkerProcess pid 6923 died, exit code: -15",
        weight=4, loud=True,
    ),
    symptom(
        "host.rank-killed", "host_oom",
        ("scheduler died during initialization (exit code: -9)",),
        r"Rank \d+ scheduler died during initialization \(exit code: -9\)",
        "a scheduler was killed while it started, most often by the out-of-memory killer",
        "dmesg for the kill; more RAM, fewer loaders",
        "RuntimeError: Rank 3 scheduler died during initialization (exit code: -9).",
        "Rank 3 scheduler died during initialization (exit code: 1)",
        weight=5,
    ),
    symptom(
        "host.bare-killed", KILLED,
        ("Killed",),
        r"^(?:\S+\.sh: line \d+:\s+\d+ )?Killed(?:\s|$)",
        "the shell reports that the server was killed",
        "ask the kernel log and the operator",
        "Killed",
        "3 requests were Killed",
        weight=1, certainty="possible",
    ),
)
