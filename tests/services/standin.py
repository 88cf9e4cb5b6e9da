"""docker, podman and systemctl as far as a service needs them, by the name that this file is called under.

State is kept in `state.json` beside it, as the real ones keep theirs: name → {id, status, policy, rm, labels, argv,
env, unit facts}. What runs has a keeper, which starts it again as its policy says unless it was stopped by hand.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(sys.argv[0]).parent
TOOL = Path(sys.argv[0]).name
STATE = HERE / "state.json"


@contextmanager
def state() -> Iterator[dict[str, Any]]:
    with (HERE / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = json.loads(STATE.read_text())
        yield held
        STATE.with_suffix(".new").write_text(json.dumps(held))
        STATE.with_suffix(".new").replace(STATE)


def find(held: dict[str, Any], wanted: str) -> dict[str, Any] | None:
    return next((one for name, one in held.items() if wanted in (name, one.get("id"))), None)


def log(*words: str) -> None:
    with (HERE / "calls").open("a") as file:
        file.write(" ".join((TOOL, *words)) + "\n")


def start(wanted: str) -> int:
    with state() as held:
        one = find(held, wanted)
        if one is None:
            return complain(wanted)
        if one["status"] in ("running", "active"):
            return 0
        one["status"] = "active" if TOOL == "systemctl" else "running"
    null = subprocess.DEVNULL
    words = [sys.executable, str(sys.argv[0]), "--keep", wanted]
    subprocess.Popen(words, stdin=null, stdout=null, stderr=null, start_new_session=True)
    return 0


def keep(wanted: str) -> int:
    """Run it, and again as long as the policy says so and nobody stopped it."""
    while True:
        with state() as held:
            one = find(held, wanted)
            if one is None or one["status"] not in ("running", "active"):
                return 0
            process = subprocess.Popen(one["argv"], env=one["env"], cwd=str(HERE), start_new_session=True)
            one["pid"] = process.pid
        process.wait()
        with state() as held:
            one = find(held, wanted)
            if one is None or one["status"] not in ("running", "active"):
                return 0
            if one["policy"] in ("no", ""):
                one["status"] = "exited"
                return 0


def stop(wanted: str) -> int:
    with state() as held:
        one = find(held, wanted)
        if one is None:
            return complain(wanted)
        was, one["status"] = one["status"], "inactive" if TOOL == "systemctl" else "exited"
        pid = one.get("pid")
    if was in ("running", "active") and pid:
        end(int(pid))
    if one.get("rm"):
        with state() as held:
            held.clear()
    return 0


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.01)
    except ProcessLookupError:
        return


def complain(wanted: str) -> int:
    print({"docker": "Error response from daemon: No such container: ", "podman": "Error: no such object: "}.get(
        TOOL, "Failed to find unit "
    ) + wanted, file=sys.stderr)  # fmt: skip
    return 1


def render(template: str, one: dict[str, Any]) -> str:
    policy = {"Name": one["policy"].partition(":")[0], "MaximumRetryCount": int(one["policy"].partition(":")[2] or 0)}
    known = {
        "{{.Id}}": one["id"],
        "{{.State.Status}}": one["status"],
        "{{.State.Running}}": str(one["status"] == "running").lower(),
        "{{json .HostConfig.RestartPolicy}}": json.dumps(policy),
        "{{.HostConfig.AutoRemove}}": str(bool(one.get("rm"))).lower(),
    }
    for part, value in known.items():
        template = template.replace(part, value)
    label = re.compile(r'\{\{with \.Config\.Labels\}\}\{\{index \. "([^"]+)"\}\}\{\{end\}\}')
    return label.sub(lambda found: str(one.get("labels", {}).get(found[1], "")), template)


def container(words: list[str]) -> int:
    if words[:2] == ["container", "inspect"]:
        with state() as held:
            one = find(held, words[-1])
        if one is None:
            return complain(words[-1])
        print(render(words[words.index("--format") + 1], one))
        return 0
    if words[0] == "update":
        with state() as held:
            one = find(held, words[-1])
            if one is None:
                return complain(words[-1])
            one["policy"] = words[1].partition("=")[2]
        return 0
    return {"start": start, "stop": stop}[words[0]](words[-1])


def unit(words: list[str]) -> int:
    words = [word for word in words if word not in ("--user", "--no-ask-password")]
    if words[0] == "show":
        wanted = words[2].partition("=")[2].split(",")
        with state() as held:
            one = held.get(words[1], {"unit": {"LoadState": "not-found"}, "status": "inactive"})
        facts = {"Id": words[1], "ActiveState": one["status"], **one["unit"]}
        print("\n".join(f"{name}={facts.get(name, '')}" for name in wanted))
        return 0
    if words[0] == "is-active":
        with state() as held:
            status = held[words[1]]["status"]
        print(status)
        return 0 if status == "active" else 3
    return max({"start": start, "stop": stop}[words[0]](word) for word in words[1:])


def main() -> int:
    words = sys.argv[1:]
    if words[0] == "--keep":
        return keep(words[1])
    log(*words)
    if words == ["--version"]:
        print({"docker": "Docker version 28.2.2, build e6534b4", "podman": "podman version 5.4.2"}[TOOL])
        return 0
    return unit(words) if TOOL == "systemctl" else container(words)


if __name__ == "__main__":
    sys.exit(main())
