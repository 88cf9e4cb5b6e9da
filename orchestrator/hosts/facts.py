"""What is so on a host: one `run` of many commands, and pure parsers of what they print."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from orchestrator.core.model import Target
from orchestrator.hosts.gputool import Gpu, gpu_commands, memory_command, parse_gpus, parse_memory
from orchestrator.hosts.interpreter import interpreter_command, parse_interpreter

__all__ = ["Facts", "Gpu", "Limits", "Space", "memory_command", "parse_facts", "parse_memory", "probe_commands"]

_TIMEOUT_S = 10.0
_HEAD_BYTES = 8192  # of each file; enough for the first CPU of /proc/cpuinfo
_FILES = (
    "/proc/cpuinfo",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/node/online",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/kernel/osrelease",
    "/etc/os-release",
    "/proc/self/limits",
    "/proc/driver/nvidia/version",
)


@dataclass(frozen=True)
class Space:
    """A filesystem, in KiB."""

    total_kib: int
    free_kib: int
    mount: str


@dataclass(frozen=True)
class Limits:
    """Soft limits of the agent's processes; None is unlimited. `memlock` in bytes."""

    open_files: int | None
    processes: int | None
    memlock_bytes: int | None


@dataclass(frozen=True)
class Facts:
    """A host as a server there would find it. What could not be found out is None or empty; `problems` says why."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    links: tuple[tuple[str, ...], ...] = ()
    cpu: str | None = None
    cpu_count: int | None = None
    numa_nodes: int | None = None
    governor: str | None = None
    kernel: str | None = None
    os: str | None = None
    boot_id: str | None = None
    python: str | None = None
    python_prefix: str | None = None
    packages: Mapping[str, str | None] = field(default_factory=dict)
    engine_origin: str | None = None
    sitecustomize: str | None = None
    sitecustomize_would_be: str | None = None
    is_sitecustomize_inside_environment: bool = False
    site_packages: tuple[str, ...] = ()
    limits: Limits | None = None
    shm: Space | None = None
    disk: Space | None = None
    problems: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain data, for the ledger and for machine readers."""
        return asdict(self)


def probe_commands(
    target: Target,
    *,
    engine_package: str | None,
    packages: Sequence[str],
    gpu_tool: str,
    env: Mapping[str, str],
    cwd: str,
) -> list[dict[str, Any]]:
    """Requests for one `run` of the agent. `env` and `cwd` are those the server gets."""
    head = ["head", "-v", "-c", str(_HEAD_BYTES), *_FILES]
    plain = {
        "files": head,
        "lscpu": ["lscpu"],
        "shm": ["df", "-Pk", "/dev/shm"],  # noqa: S108 - its size decides whether NCCL works
        "disk": ["df", "-Pk", target.source or cwd],
    }
    return [
        *gpu_commands(gpu_tool),
        interpreter_command(target.python, packages, engine_package, env, cwd),
        *({"name": name, "argv": argv, "timeout_s": _TIMEOUT_S} for name, argv in plain.items()),
    ]


def parse_facts(outputs: Mapping[str, Mapping[str, Any]]) -> Facts:
    """Replies to `probe_commands`, by name. A command that is missing or hangs there costs its own facts only."""
    gpus = parse_gpus(outputs)
    interpreter = parse_interpreter(outputs["interpreter"], "the server's python")
    files = split_head(outputs["files"]["stdout"])
    module = files.get("/proc/driver/nvidia/version", "")
    return Facts(
        gpus=gpus.gpus,
        driver=gpus.driver or _first(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", module),
        cuda=gpus.cuda,
        links=gpus.links,
        cpu=_first(r"(?m)^Model name:\s*(.+)$", outputs["lscpu"]["stdout"])
        or _first(r"(?m)^model name\s*:\s*(.+)$", files.get("/proc/cpuinfo", "")),
        cpu_count=count_range(files.get("/sys/devices/system/cpu/online", "")),
        numa_nodes=count_range(files.get("/sys/devices/system/node/online", "")),
        governor=files.get("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "").strip() or None,
        kernel=files.get("/proc/sys/kernel/osrelease", "").strip() or None,
        os=_first(r'(?m)^PRETTY_NAME="?([^"\n]+)"?$', files.get("/etc/os-release", "")),
        boot_id=files.get("/proc/sys/kernel/random/boot_id", "").strip() or None,
        python=interpreter.version,
        python_prefix=interpreter.prefix,
        packages=interpreter.packages,
        engine_origin=interpreter.package_origin,
        sitecustomize=interpreter.sitecustomize,
        sitecustomize_would_be=interpreter.would_be_sitecustomize,
        is_sitecustomize_inside_environment=interpreter.is_sitecustomize_inside_environment,
        site_packages=interpreter.site_packages,
        limits=parse_limits(files.get("/proc/self/limits", "")),
        shm=parse_df(outputs["shm"]["stdout"]),
        disk=parse_df(outputs["disk"]["stdout"]),
        problems=tuple(problem for problem in (gpus.problem, interpreter.problem) if problem),
    )


def split_head(text: str) -> dict[str, str]:
    """`head -v FILE…` → path → text; files that are not there are missing."""
    parts = re.split(r"(?m)^==> (.+) <==\n", text)
    return {path: body.removesuffix("\n") for path, body in zip(parts[1::2], parts[2::2], strict=True)}


def count_range(text: str) -> int | None:
    """`0-3,8-11` → 8."""
    spans = re.findall(r"(\d+)(?:-(\d+))?", text.strip())
    return sum(int(last or first) - int(first) + 1 for first, last in spans) or None


def parse_limits(text: str) -> Limits | None:
    """`/proc/PID/limits`."""

    def soft(name: str) -> int | None:
        value = _first(rf"(?m)^{name}\s+(\S+)", text)
        return int(value) if value and value.isdigit() else None

    return Limits(soft("Max open files"), soft("Max processes"), soft("Max locked memory")) if text else None


def parse_df(text: str) -> Space | None:
    """`df -Pk PATH`. Device and mount point may hold blanks, so the numbers are looked for."""
    found = re.search(r"\s(\d+)\s+\d+\s+(\d+)\s+\d+%\s+(/.*)$", text.strip())
    return Space(int(found[1]), int(found[2]), found[3]) if found else None


def _first(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return found[1].strip() if found else None
