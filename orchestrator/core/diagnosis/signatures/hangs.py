"""Signs that the server stands still."""

from __future__ import annotations

from orchestrator.core.diagnosis.signature import Role, Signature, aside, symptom

SIGNATURES: tuple[Signature, ...] = (
    symptom(
        "hang.health", "hang",
        ("Health check failed",),
        r"Health check failed\..*(?:detokenizer|last_heartbeat)",
        "nothing has come out of the scheduler since the heartbeat named here; the health check only "
        "observes it",
        "stacks of every scheduler rank (py-spy dump); the moment it stalled is the heartbeat's, not "
        "this line's",
        "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic "
        "start time: 05:49:14. last_heartbeat time: 05:42:53",
        "Health check passed",
        weight=1, outcome="hung", loud=True,
    ),
    symptom(
        "hang.hidden-capture", "hang",
        ("Registering 0 cuda graph addresses",),
        "Registering 0 cuda graph addresses",
        "graph capture failed and the registration that follows hangs, so that the error is never printed",
        "--disable-custom-all-reduce or --disable-cuda-graph to see the real error",
        "Registering 0 cuda graph addresses",
        "Registering 2254 cuda graph addresses",
        weight=1, outcome="hung", loud=True,
    ),
    symptom(
        "hang.interposer", "hang",
        ("HAMI-core", "libvgpu"),
        r"HAMI-core (?:Msg|Info|Warn)|libvgpu\.c",
        "a GPU-sharing library is preloaded; it is known to block NCCL's initialisation",
        "CUDA_DISABLE_CONTROL=true or without the preload, before blaming the links",
        "[HAMI-core Msg(960:140024882239296:libvgpu.c:836)]: Initializing.....",
        "[HAMI-core ERROR (pid:1)]: Illegal device id",
        weight=0, outcome="hung", loud=True, certainty="possible",
    ),
    symptom(
        "hang.deadlock-words", "hang",
        (
            "might cause deadlock", "appears to be stuck", "seems to be stuck", "is not responding",
            "no progress", "stalled", "appears hung", "hanging for", "has been stuck",
        ),
        "appears to be (?:stuck|hung)|seems (?:to be )?(?:stuck|hung)|is not responding"
        r"|no progress (?:for|in)|(?:has|have) stalled|has been (?:stuck|hanging)|stalled for \d+",
        "a process made no progress",
        "stacks of every rank",
        "worker 3 appears to be stuck",
        "stalled requests: 0",
        weight=1, outcome="hung",
    ),
    symptom(
        "hang.core-wait", "hang",
        ("core engine proc(s) to start",),
        r"Waiting for \d+ local, \d+ remote core engine proc",
        "the front end waits for engine processes that do not come up",
        "stacks and logs of the engine processes",
        "Waiting for 1 local, 0 remote core engine proc(s) to start.",
        "engine procs started",
        weight=-1, outcome="hung", loud=True, certainty="possible",
    ),
    aside(
        Role.HINT, "hang.deadlock-hint",
        ("This might cause deadlock",),
        "This might cause deadlock",
        "an error follows or stands above",
        "Error executing method 'init_device'. This might cause deadlock in distributed execution.",
        "deadlock detector ready",
    ),
)
