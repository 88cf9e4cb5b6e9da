"""Which container a process runs in, as far as its control group and its pid namespace show."""

from __future__ import annotations

import errno
import os
import re
from typing import Optional

from orchestrator.agent import processes

_KINDS = (
    ("docker", re.compile(r"docker[-/]([0-9a-f]{12})[0-9a-f]*")),
    ("podman", re.compile(r"libpod-(?:payload-)?([0-9a-f]{12})[0-9a-f]*")),
    ("kubernetes", re.compile(r"(?:kubepods|pod[0-9a-f_-]{36}).*?([0-9a-f]{12})[0-9a-f]{52}")),
    ("containerd", re.compile(r"(?:cri-containerd-|/containerd/|/default/)([0-9a-f]{12})[0-9a-f]*")),
    ("lxc", re.compile(r"/lxc(?:\.payload)?[./]([^/]+)")),
    ("nspawn", re.compile(r"/machine\.slice/(?:machine-|systemd-nspawn@)([^/]+?)\.(?:scope|service)")),
)


def container_of(pid: int) -> Optional[str]:
    """`docker 0123456789ab`, `lxc 129`; `another pid namespace` where only that is seen; None for none, or unknown."""
    text = _read(pid)
    named = name_in(text) if text is not None else None
    if named is not None and named != name_in(_read(os.getpid()) or ""):
        return named
    theirs, ours = processes.read_link(pid, "ns/pid"), processes.read_link(os.getpid(), "ns/pid")
    return "another pid namespace" if theirs and ours and theirs != ours else None


def name_in(text: str) -> Optional[str]:
    """From the text of /proc/PID/cgroup."""
    for kind, pattern in _KINDS:
        found = pattern.search(text)
        if found:
            return f"{kind} {found[1]}"
    return None


def _read(pid: int) -> Optional[str]:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as error:
        if processes.is_gone(error) or error.errno in (errno.EACCES, errno.EPERM):
            return None
        raise
