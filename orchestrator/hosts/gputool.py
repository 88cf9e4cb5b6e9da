"""What `nvidia-smi` says, as data. Pure parsers; odd values (`[N/A]`, `[Not Supported]`, `ERR!`) become None."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import Dirty

_FIELDS: tuple[str, ...] = (
    "index", "name", "uuid", "driver_version", "memory.total", "memory.used",
    "compute_cap", "pcie.link.gen.max", "pcie.link.width.current",
)  # fmt: skip
_OLD_FIELDS = _FIELDS[:6]  # drivers before 510 do not know compute_cap, and refuse the whole query for it
_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Gpu:
    """One card. `pcie_gen` is what it can, since an idle link is slowed down; `pcie_width` what it has now."""

    index: int
    name: str
    uuid: str
    compute_cap: str | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    pcie_gen: int | None
    pcie_width: int | None


@dataclass(frozen=True)
class GpuReport:
    """All cards. `problem` is a sentence when the tool gave no answer; then `gpus` is empty. `links[i][j]` is the
    link between cards i and j as the tool names it (`NV18`, `NODE`, `SYS`, `X`)."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    links: tuple[tuple[str, ...], ...] = ()
    problem: str | None = None


def gpu_commands(tool: str) -> list[dict[str, Any]]:
    """Requests for the agent's `run`, side by side. Each has a limit: a wedged driver is an answer too."""

    def query(name: str, fields: Sequence[str]) -> dict[str, Any]:
        argv = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        return {"name": name, "argv": argv, "timeout_s": _TIMEOUT_S}

    return [
        query("gpu_query", _FIELDS),
        query("gpu_query_old", _OLD_FIELDS),
        {"name": "gpu_table", "argv": [tool], "timeout_s": _TIMEOUT_S},
        {"name": "gpu_links", "argv": [tool, "topo", "-m"], "timeout_s": _TIMEOUT_S},
    ]


def parse_gpus(outputs: Mapping[str, Mapping[str, Any]], tool: str = "nvidia-smi") -> GpuReport:
    """Replies to `gpu_commands`, by name, as a report."""
    answer, fields = outputs["gpu_query"], _FIELDS
    if answer["rc"] not in (0, None) and "is not a valid field" in answer["stdout"] + answer["stderr"]:
        answer, fields = outputs["gpu_query_old"], _OLD_FIELDS
    problem = _problem(answer, tool)
    if problem:
        return GpuReport(problem=problem)
    rows = [_row(line, fields) for line in answer["stdout"].splitlines() if line.strip()]
    gpus = tuple(gpu for row in rows if (gpu := _gpu(row)))
    table = outputs["gpu_table"]["stdout"]
    return GpuReport(
        gpus=gpus,
        driver=next((text for row in rows if (text := _text(row.get("driver_version")))), None),
        cuda=_first(r"CUDA (?:UMD )?Version\s*:\s*([\d.]+)", table),
        links=parse_links(outputs["gpu_links"]["stdout"], len(gpus)),
    )


def memory_command(tool: str) -> dict[str, Any]:
    """How much of each card is taken, as a request for the agent's `run`."""
    argv = [tool, "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"]
    return {"name": "gpu_memory", "argv": argv, "timeout_s": _TIMEOUT_S}


def parse_memory(outputs: Mapping[str, Mapping[str, Any]]) -> dict[int, int]:
    """The reply to `memory_command`: index → MiB; cards that do not tell are left out. Raises `Dirty` when the tool
    gives no answer: memory that cannot be seen is not free."""
    answer = outputs["gpu_memory"]
    problem = _problem(answer, "the GPU tool")
    if problem:
        raise Dirty(
            f"GPU memory cannot be read: {problem}", hint="look at the driver on that host: `dmesg | grep -i nvrm`"
        )
    rows = [_row(line, ("index", "memory.used")) for line in answer["stdout"].splitlines()]
    pairs = [(_number(row.get("index")), _number(row.get("memory.used"))) for row in rows]
    return {index: used for index, used in pairs if index is not None and used is not None}


@dataclass(frozen=True)
class ComputeApp:
    """A process as the driver knows it. The driver knows no pid namespaces: inside a container the number may be that
    of another process here, or of none."""

    pid: int
    memory_mib: int | None
    gpu_uuid: str
    name: str


def compute_apps_command(tool: str) -> dict[str, Any]:
    """Who computes, as a request for the agent's `run`."""
    argv = [tool, "--query-compute-apps=pid,used_memory,gpu_uuid,process_name", "--format=csv,noheader,nounits"]
    return {"name": "gpu_apps", "argv": argv, "timeout_s": _TIMEOUT_S}


def parse_compute_apps(outputs: Mapping[str, Mapping[str, Any]]) -> list[ComputeApp]:
    """The reply to `compute_apps_command`. Raises `Dirty` when the tool gives no answer."""
    answer = outputs["gpu_apps"]
    problem = _problem(answer, "the GPU tool")
    if problem:
        raise Dirty(f"GPU processes cannot be listed: {problem}")
    apps = []
    for line in answer["stdout"].splitlines():
        cells = [cell.strip() for cell in line.split(",", 3)]
        if len(cells) == 4 and cells[0].isdigit():
            apps.append(ComputeApp(int(cells[0]), _number(cells[1]), cells[2], cells[3]))
    return apps


def _problem(answer: Mapping[str, Any], tool: str) -> str | None:
    if answer.get("error"):
        return f"{tool} cannot be started: {answer['error']}"
    if answer["timed_out"]:
        return f"{tool} does not answer within {_TIMEOUT_S:g} s: the driver is wedged"
    said = (answer["stdout"] + answer["stderr"]).strip()
    if answer["rc"] != 0:
        return f"{tool} failed with exit code {answer['rc']}: {' '.join(said.split())[:300] or 'it says nothing'}"
    if "No devices were found" in said:
        return f"{tool} finds no device"
    return None


def _row(line: str, fields: Sequence[str]) -> dict[str, str]:
    """A line of values. The name may hold a comma; nothing else does."""
    cells = [cell.strip() for cell in line.split(",")]
    surplus = len(cells) - len(fields)
    if surplus > 0:
        cells[1 : 2 + surplus] = [", ".join(cells[1 : 2 + surplus])]
    return dict(zip(fields, cells, strict=False))


def _gpu(row: Mapping[str, str]) -> Gpu | None:
    index = _number(row.get("index"))
    if index is None:
        return None  # a line such as "Unable to determine the device handle for GPU…"
    return Gpu(
        index=index,
        name=row.get("name", ""),
        uuid=row.get("uuid", ""),
        compute_cap=_text(row.get("compute_cap")),
        memory_total_mib=_number(row.get("memory.total")),
        memory_used_mib=_number(row.get("memory.used")),
        pcie_gen=_number(row.get("pcie.link.gen.max")),
        pcie_width=_number(row.get("pcie.link.width.current")),
    )


def parse_links(text: str, count: int) -> tuple[tuple[str, ...], ...]:
    """`nvidia-smi topo -m` → the square of links between the cards; empty when there is no such table."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)  # its header is underlined
    rows = []
    for line in plain.splitlines():
        cells = [cell.strip() for cell in re.split(r"\t+| {2,}", line.strip())]
        # The heading begins with a name too; only a card's own row has an X in its place.
        if re.fullmatch(r"GPU\d+", cells[0]) and "X" in cells[1:]:
            rows.append(tuple(cells[1 : 1 + count]))
    return tuple(rows) if len(rows) == count and all(len(row) == count for row in rows) else ()


def _text(value: str | None) -> str | None:
    if value is None or not value or value.startswith("[") or value in ("ERR!", "N/A", "Unknown Error"):
        return None
    return value


def _number(value: str | None) -> int | None:
    found = re.match(r"\d+", _text(value) or "")
    return int(found[0]) if found else None


def _first(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return found[1] if found else None
