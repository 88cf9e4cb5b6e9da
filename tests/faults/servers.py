"""Servers that do not want to end, and those that never come up. Layer 6."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.faults.agents import PACKAGE, Agent, AgentError
from tests.faults.examining import Story, Verdict, examine, recover
from tests.faults.guards import IMPATIENT, SHORT_S, await_guard, guard_pid
from tests.faults.scenery import LAUNCH_ID, Scene
from tests.faults.table import Case

_HEAD = """
import os, signal, socket, sys, time
sys.path.insert(0, sys.argv[1])
import a
def listen():
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(('127.0.0.1', int(sys.argv[2])))
    door.listen()
    return door
def say():
    print('serving', a.which(), flush=True)
def idle():
    while True:
        time.sleep(60)
"""
SERVERS = {
    "ignores TERM": "signal.signal(signal.SIGTERM, signal.SIG_IGN); door = listen(); say(); idle()",
    "daemonizes": """
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
door = listen(); say(); idle()
""",
    "forks late": """
signal.signal(signal.SIGTERM, lambda *_: [os.setsid() for _ in [0] if os.fork() == 0] and idle() or os._exit(0))
door = listen(); say(); idle()
""",
    "forks for ever": """
door = listen(); say()
while True:
    if os.fork() == 0:
        os.setsid(); time.sleep(0.2); os._exit(0)
    time.sleep(0.01)
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        continue
""",
    "a worker keeps the port": """
door = listen()
if os.fork() == 0:
    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); idle()
say(); idle()
""",
    "workers of their own sessions": """
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        idle()
door = listen(); say(); idle()
""",
    "a worker with an empty environment": """
if os.fork() == 0:
    os.setsid()
    os.execve(sys.executable, [sys.executable, '-I', '-S', '-c', 'import time; time.sleep(600) # ' + sys.argv[1]], {})
door = listen(); say(); idle()
""",
    "leaves a hidden worker when it is asked to end": """
def hide(*_):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            program = 'import time; time.sleep(600) # ' + sys.argv[1]
            os.execve(sys.executable, [sys.executable, '-I', '-S', '-c', program], {})
    os._exit(0)
signal.signal(signal.SIGTERM, hide)
door = listen(); say(); idle()
""",
    "is stopped": "door = listen(); say(); os.kill(os.getpid(), signal.SIGSTOP); idle()",
    "exits early": "say(); sys.exit(3)",
    "crashes": "say(); os.abort()",
    "never gets ready": "say(); idle()",
    "floods its log": """
door = listen(); say()
while True:
    print('x' * 4000)
""",
}
ENDINGS = ("stop", "stop with grace", "recover", "agent killed", "agent and guard killed", "lease")


def end_server(base: Path, code: str, ending: str) -> Verdict:
    scene = Scene(base).plant()
    agent = Agent(base, shim=IMPATIENT)
    story = Story(scene, agent)
    for step in (story.open, story.snapshot, story.apply):
        step()
    request = scene.launch_request(_HEAD + code)
    agent.call("launch", **request)
    agent.wait_log("serving new", may_end=True)
    try:
        if ending.startswith("stop"):
            return _stop(scene, agent, story, 0.3 if ending.endswith("grace") else 0.0)
        if ending == "lease":
            agent.call("beat", lease_s=SHORT_S)
            agent.signal(signal.SIGSTOP)
            await_guard(scene)
            return examine(scene, Verdict())
        if ending == "recover":
            said = agent.call("recover")
            assert said["state"] == "clean" and not said["survivors"], said
            agent.call("close")
            agent.leave()
            return examine(scene, Verdict())
        if ending == "agent and guard killed":
            os.kill(guard_pid(scene), signal.SIGKILL)
        agent.kill()
        return recover(scene)
    finally:
        agent.kill()


def _stop(scene: Scene, agent: Agent, story: Story, grace_s: float) -> Verdict:
    said = agent.call("stop", launch_id=LAUNCH_ID, grace_s=grace_s)
    verdict = Verdict(orphans=[f"survivor: {one}" for one in said["survivors"]])
    for step in (story.revert, story.verify, story.close):
        step()
    agent.leave()
    return examine(scene, verdict)


_STRANGER = "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); time.sleep(600)"


def stranger_stays(base: Path, ending: str) -> Verdict:
    """A process of somebody else, on the port beside ours and with its directory in the tree, is never touched."""
    scene = Scene(base).plant()
    argv = [sys.executable, "-I", "-S", "-c", f"{_STRANGER} # {base.name}"]
    stranger = subprocess.Popen(argv, cwd=scene.root, env={}, start_new_session=True)
    verdict = Verdict()
    try:
        agent = Agent(base)
        story = Story(scene, agent)
        for step in (story.open, story.snapshot, story.apply, story.launch):
            step()
        if ending == "lease":
            agent.call("beat", lease_s=SHORT_S)
            await_guard(scene)
        else:
            story.retreat()
        agent.kill()
        if stranger.poll() is not None:
            verdict.lies.append("a process of somebody else was ended")
    finally:
        stranger.kill()
        stranger.wait()
    return examine(scene, verdict)


_KILL_BY_PID = """
import sys
sys.path.insert(0, {package!r})
from orchestrator.agent import ending, processes
boot = processes.boot_id()
real = processes.identity_of({pid}, boot)
for wrong in (real._replace(start_ticks=real.start_ticks - 1), real._replace(boot_id="an earlier boot")):
    ending.kill_and_wait(wrong, boot, 0.5)
"""


def same_pid_again(base: Path) -> Verdict:
    """The number of a process that we knew belongs to a stranger by now, or is one of an earlier boot."""
    code = f"import time; time.sleep(600) # {base.name}"
    stranger = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], env={}, start_new_session=True)
    try:
        script = _KILL_BY_PID.format(package=str(PACKAGE), pid=stranger.pid)
        subprocess.run([sys.executable, "-I", "-S", "-c", script], check=True, timeout=20)
        alive = stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
    return Verdict(lies=[] if alive else ["a stranger with the number of a process of ours was ended"])


def port_is_taken(base: Path) -> Verdict:
    """A stranger has the port: our server ends early, the stranger stays."""
    scene = Scene(base).plant()
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        scene.port = int(door.getsockname()[1])
        agent = Agent(base)
        story = Story(scene, agent)
        for step in (story.open, story.snapshot, story.apply):
            step()
        try:
            agent.call("launch", **scene.launch_request())
            said = story.retreat()
        except AgentError as error:
            said = str(error)
        agent.kill()
    verdict = Verdict(stuck=[] if said == "clean" else [said])
    return examine(scene, verdict)


def server_cases() -> list[Case]:
    cases = [
        Case(f"server {what}, {ending}", end_server, (code, ending))
        for what, code in SERVERS.items()
        for ending in ENDINGS
    ]
    cases += [Case(f"a stranger, {e}", stranger_stays, (e,)) for e in ("recover", "lease")]
    return [*cases, Case("the port is taken", port_is_taken), Case("the same pid again", same_pid_again)]
