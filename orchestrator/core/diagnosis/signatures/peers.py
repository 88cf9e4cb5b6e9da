"""What the survivors of a failure print, and limits that run out while somebody else is slow or gone."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Role, Signature, aside, root, symptom

SIGNATURES: tuple[Signature, ...] = (
    symptom(
        "peer.closed", "peer_died",
        (
            "onnection closed by peer", "onnection reset by peer", "remote worker crashing", "Socket closed",
            "Connection aborted",
        ),
        "[Cc]onnection (?:closed|reset) by peer|remote worker crashing",
        "another rank ended first and closed the connection; its own log has the cause",
        "read the log of the rank or node at the remote address before anything else",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
        "[192.0.2.11]:21077",
        "connection accepted from peer",
    ),
    symptom(
        "peer.broken-pipe", "peer_died",
        ("Broken pipe", "BrokenPipeError", "failed to recv, got 0 bytes", "TCPStore server has shut down"),
        r"\bBroken pipe\b|BrokenPipeError|failed to recv, got 0 bytes|TCPStore server has shut down",
        "the process at the other end is gone",
        "look for the process that ended first",
        "RuntimeError: Broken pipe",
        "the pipe was created",
        weight=2, certainty="possible",
    ),
    symptom(
        "peer.ray-dead", "peer_died",
        (
            "marked dead", "ActorDiedError", "RayActorError", "WorkerCrashedError", "ActorUnavailableError",
            "node has died", "NodeDiedError", "The actor died", "Worker unexpectedly exits",
            "lost connection", "ORTE has lost communication", "LocalRayletDiedError",
        ),
        "has been marked dead|(?:Actor(?:Died|Unavailable)|RayActor|WorkerCrashed|NodeDied"
        "|LocalRayletDied)Error|[Tt]he actor (?:died|is dead)|Worker unexpectedly exits|node has died"
        "|lost communication with",
        "a Ray worker or node died; its own log has the cause",
        "read the worker's log in /tmp/ray/session_latest/logs and dmesg of the node",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "actor created",
        weight=2,
    ),
    symptom(
        "nccl.timeout", "nccl_timeout",
        (
            "Watchdog caught collective operation timeout", "ran for", "watchdog got stuck",
            "collective operation timeout",
        ),
        r"Watchdog caught collective operation timeout|WorkNCCL\(.*ran for \d+ milliseconds"
        "|NCCL.{0,60}watchdog got stuck",
        "a rank waited in a collective until the limit; the rank that does not report this is the one "
        "to look at",
        "compare SeqNum and last enqueued work over all ranks; find the rank that lags or is gone",
        "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9141, "
        "OpType=_ALLGATHER_BASE, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.",
        "the watchdog thread started",
        weight=4,
    ),
    symptom(
        "nccl.heartbeat", "nccl_timeout",
        (
            "Heartbeat monitor timed out", "heartbeat monitor", "monitoring thread", "NCCL_HEARTBEAT",
            "HeartbeatMonitor",
        ),
        "Heartbeat monitor timed out|monitoring thread detects no heartbeat|HeartbeatMonitor.*timed out",
        "the NCCL monitor saw no progress",
        "find the rank that hangs in a CUDA call or is gone",
        "[PG 0 Rank 1] Heartbeat monitor timed out! Process will be terminated",
        "heartbeat monitor started",
        weight=3,
    ),
    root(
        "peer.rpc-timeout", "hang",
        (
            "RPC call to ", "execute_model timed out", "Timed out waiting for",
            "timed out waiting for engine", "TimeoutError: ", "EngineCore did not", "GetTimeoutError",
            "did not respond", "failed to start within", "startup timed out", "Timeout waiting",
            "timed out waiting", "did not become ready", "not ready after", "Server failed to start within",
            "Engine not ready", "Timed out after waiting",
        ),
        r"RPC call to \w+ timed out|execute_model timed out|(?:[Tt]imed? ?out"
        "|Timeout) waiting for (?:the )?(?:engine|core|worker|server|scheduler|model|executor|process)"
        r"|GetTimeoutError|(?:engine|core|worker|server|scheduler|process)\w*(?:\(s\))? (?:did not"
        "|failed to) (?:respond|start|become ready|initiali[sz]e) (?:within|in|after)|startup timed out"
        "|Did not receive response from front-end process within|Timed out after waiting",
        "a worker did not answer within the limit: it hangs or is far slower than expected",
        "stacks of the workers (py-spy dump); compare what each was doing",
        "TimeoutError: RPC call to execute_model timed out.",
        "RPC call to execute_model took 3 s",
        weight=2, outcome="hung",
    ),
    root(
        "watchdog.scheduler", "watchdog",
        ("atchdog timeout (", "Watchdog timeout", "watchdog timeout"),
        r"[Ww]atchdog timeout ?\(self\.watchdog_timeout|[Ss]cheduler watchdog timeout",
        "one step took longer than the watchdog allows: the server hung",
        "read the stacks it dumped and the other ranks; a missing py-spy is not the cause",
        "Scheduler watchdog timeout (self.watchdog_timeout=10.0, self.soft=False)",
        "watchdog_timeout=300",
        loud=True, weight=3, certainty="certain", knobs=("--watchdog-timeout",),
    ),
    root(
        "watchdog.other", "watchdog",
        ("watchdog", "Watchdog", "hang detected", "Hang detected", "HangDetector"),
        "(?:[Ww]atchdog) (?:fired|triggered|expired|detected (?:a )?(?:hang|stall))|[Hh]ang detected"
        "|HangDetector.*(?:hang|timeout|detected)",
        "a watchdog saw no progress and ended the server",
        "stacks of every rank at that time",
        "[E] Hang detected on rank 1 in PyExecutor.",
        "Watchdog TpModelWorker initialized.",
        weight=3,
    ),
    symptom(
        "died.signal", "worker_died_silently",
        (
            "exited with signal", "exit code: -", "exit code -", "exitcode: -", "terminated by signal",
            "exitcode -", "Exit code: -", "exitcode=-",
        ),
        r"exited with signal \d+|exit ?code[:= ]+-(?!15\b|2\b|9\b)\d+|terminated by signal (?!15|2)\d+",
        "a process of the server was ended by a signal and could not say why",
        "core dump, kernel log; end the whole process tree before a restart",
        "[supervisor] scheduler_DP1 pid 4312 exited with signal 11",
        "Worker died, exit code: -15",
        weight=3, loud=True,
    ),
    symptom(
        "died.exit-code", "worker_died_silently",
        (
            "crashed with exit code", "died unexpectedly", "died, exit code", "scheduler is dead",
            "died during initialization", "exited unexpectedly", "Engine core process died",
            "EngineCore process died", "worker process died",
        ),
        r"crashed with exit code (?!-?15)|died unexpectedly|died, exit code: (?!-15|-2\b)"
        r"|scheduler is dead|died during initialization \(exit code: (?!-9)|exited unexpectedly|(?:core"
        "|worker) process died",
        "a process of the server ended without an explanation in this log",
        "its own log or stderr; kernel log; operator",
        "Subprocess detokenizer (pid=1620) crashed with exit code 1. Triggering SIGQUIT for cleanup...",
        "Worker VllmWorkerProcess pid 6923 died, exit code: -15",
        weight=2, loud=True,
    ),
    root(
        "died.segfault", "abi_mismatch",
        (
            "Segmentation fault", "Segfault encountered", "Illegal instruction", "SIGSEGV", "segfault at",
            "SIGILL", "Signal: Segmentation", "Caught signal 11", "double free or corruption", "malloc():",
            "free(): invalid", "corrupted size vs", "corrupted double-linked", "stack smashing",
        ),
        "Fatal Python error: (?:Segmentation fault|Illegal instruction)|Segfault encountered"
        r"|^Segmentation fault|segfault at|Caught signal (?:11|4)\b|[Ss]ignal: (?:Segmentation fault"
        r"|Illegal instruction)|\bSIGSEGV\b|\bSIGILL\b|Illegal instruction|double free or corruption"
        r"|malloc\(\): |free\(\): invalid|corrupted (?:size vs|double-linked)|stack smashing detected"
        r"|[Ss]egmentation fault \(core",
        "native code crashed; the stack below names the library",
        "a build of that library that fits torch, CUDA and this CPU",
        "Fatal Python error: Segmentation fault",
        "handler for segmentation installed",
        weight=2, certainty="possible",
    ),
    aside(
        Role.HINT, "died.abort",
        ("Fatal Python error: Aborted", "terminate called", "MPI_ABORT was invoked"),
        "Fatal Python error: Aborted|terminate called|MPI_ABORT was invoked",
        "the process ended itself after an error that stands above",
        "Fatal Python error: Aborted",
        "abort requested by the client",
    ),
)
