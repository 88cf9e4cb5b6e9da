"""`nvidia-smi` for the lab's GPUs: the queries a tool asks, in the formats of the real one."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Sequence

from . import Settings, settings
from .gpu import Holder, holders

Row = dict[str, str]
UNITS = {"memory.": "MiB", "used_memory": "MiB", "used_gpu_memory": "MiB", "clocks.": "MHz", "power.": "W",
         "utilization.": "%"}  # fmt: skip
HELP = """NVIDIA System Management Interface of a simulated machine

  nvidia-smi                                  a table
  nvidia-smi -L                               the GPUs, one a line
  nvidia-smi topo -m                          how they are linked
  nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits] [-i N]
  nvidia-smi --query-compute-apps=FIELDS --format=csv[,noheader][,nounits]
"""


def uuid(settings: Settings, index: int) -> str:
    """The same for the same lab seed and GPU."""
    parts = [f"{zlib.crc32(f'{settings.seed}/{index}/{part}'.encode()):08x}" for part in range(4)]
    text = "".join(parts)
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def gpu_rows(settings: Settings, held: Sequence[Holder]) -> list[Row]:
    """One row a GPU, all fields there are."""
    machine = settings.machine
    rows = []
    for index in range(machine.gpu_count):
        mine = [h for h in held if h.index == index]
        used = min(machine.gpu_memory_mib, machine.idle_memory_mib + sum(h.memory_mib for h in mine))
        rows.append(
            {
                "index": str(index),
                "count": str(machine.gpu_count),
                "name": machine.gpu_name,
                "uuid": uuid(settings, index),
                "serial": f"165{index:010d}",
                "pci.bus_id": f"00000000:{index + 1:02X}:00.0",
                "compute_cap": machine.compute_capability,
                "driver_version": machine.driver_version,
                "memory.total": str(machine.gpu_memory_mib),
                "memory.reserved": "0",
                "memory.used": str(used),
                "memory.free": str(machine.gpu_memory_mib - used),
                "utilization.gpu": "0",
                "utilization.memory": "0",
                "clocks.sm": "2430" if mine else "180",
                "clocks.current.sm": "2430" if mine else "180",
                "clocks.mem": "12481" if mine else "405",
                "clocks.max.sm": "2430",
                "power.draw": "148.20" if mine else "31.50",
                "power.limit": "600.00",
                "temperature.gpu": "46" if mine else "31",
                "pcie.link.gen.current": "5" if mine else "1",
                "pcie.link.gen.max": "5",
                "pcie.link.width.current": "16",
                "pcie.link.width.max": "16",
                "persistence_mode": "Enabled",
                "compute_mode": "Default",
                "mig.mode.current": "Disabled",
                "pstate": "P1" if mine else "P8",
                "ecc.errors.uncorrected.volatile.total": "0",
                "clocks_throttle_reasons.active": "0x0000000000000000" if mine else "0x0000000000000001",
                "clocks_event_reasons.active": "0x0000000000000000" if mine else "0x0000000000000001",
            }
        )
    return rows


def app_rows(settings: Settings, held: Sequence[Holder]) -> list[Row]:
    """One row for each process on each GPU."""
    return [
        {
            "pid": str(h.pid),
            "process_name": _title(h.pid),
            "name": _title(h.pid),
            "used_memory": str(h.memory_mib),
            "used_gpu_memory": str(h.memory_mib),
            "gpu_uuid": uuid(settings, h.index),
            "gpu_name": settings.machine.gpu_name,
            "gpu_bus_id": f"00000000:{h.index + 1:02X}:00.0",
            "gpu_serial": f"165{h.index:010d}",
        }
        for h in held
    ]


def render_csv(rows: Sequence[Row], fields: Sequence[str], known: Row, options: Sequence[str]) -> tuple[int, str]:
    """Exit status and text of a query."""
    for name in fields:
        if name not in known:
            return 2, f'Field "{name}" is not a valid field to query.\n'
    lines = [] if "noheader" in options else [", ".join(_heading(f, "nounits" in options) for f in fields)]
    lines += [", ".join(row[f] + _unit(f, "nounits" in options) for f in fields) for row in rows]
    return 0, "".join(f"{line}\n" for line in lines)


def topology(settings: Settings) -> str:
    """`topo -m`: PCIe through the host bridge, or NVLink where the machine has it."""
    count = settings.machine.gpu_count
    link = "NV18" if settings.machine.nvlink else "NODE"
    heads = [f"GPU{i}" for i in range(count)]
    lines = ["\t" + "\t".join([*heads, "CPU Affinity", "NUMA Affinity"])]
    for i, head in enumerate(heads):
        cells = [" X " if i == j else link for j in range(count)]
        lines.append("\t".join([head, *cells, "0-63", "0"]))
    legend = "\nLegend:\n\n  X    = Self\n  NODE = Connection traversing PCIe within a NUMA node\n  NV#  = NVLink\n"
    return "\n".join(lines) + "\n" + legend


def table(settings: Settings, rows: Sequence[Row], apps: Sequence[Row]) -> str:
    """The table without arguments, in short."""
    rule = "+" + "-" * 86 + "+"
    head = f"NVIDIA-SMI {settings.machine.driver_version}   CUDA Version: {settings.machine.cuda_version}"
    lines = [rule, f"| {head:<84} |", rule]
    for row in rows:
        text = f"{row['index']:>2}  {row['name']:<46} {row['memory.used']:>7}MiB / {row['memory.total']}MiB"
        lines.append(f"| {text:<84} |")
    lines += [rule, f"| {'Processes:':<84} |"]
    for app in apps:
        lines.append(f"| {app['pid']:>9}  {app['process_name']:<50} {app['used_memory']:>8}MiB".ljust(87) + "|")
    return "\n".join([*lines, rule]) + "\n"


def answer(settings: Settings, arguments: Sequence[str], held: Callable[[], list[Holder]]) -> tuple[int, str]:
    """Exit status and text for a command line. `held` looks at the processes, and is asked only when needed."""
    options = {}
    for argument in arguments:
        name, _, value = argument.partition("=")
        options[name] = value
    if "-h" in options or "--help" in options:
        return 0, HELP
    if "-L" in options or "--list-gpus" in options:
        rows = gpu_rows(settings, [])
        return 0, "".join(f"GPU {r['index']}: {r['name']} (UUID: {r['uuid']})\n" for r in rows)
    if list(arguments[:1]) == ["topo"]:
        return 0, topology(settings)
    csv = [part.strip() for part in options.get("--format", "csv").split(",")]
    rows = gpu_rows(settings, held())
    if chosen := _chosen(arguments, options):
        rows = [r for r in rows if r["index"] in chosen or r["uuid"] in chosen]
        if not rows:
            return 6, "No devices were found\n"
    if "--query-gpu" in options:
        return render_csv(rows, _fields(options["--query-gpu"]), gpu_rows(settings, [])[0], csv)
    apps = app_rows(settings, [h for h in held() if any(r["index"] == str(h.index) for r in rows)])
    if "--query-compute-apps" in options:
        known = app_rows(settings, [Holder(0, 1, 0)])[0]
        return render_csv(apps, _fields(options["--query-compute-apps"]), known, csv)
    if arguments and not chosen:
        return 2, f"Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n{arguments[0]}\n"
    return 0, table(settings, rows, apps)


def main() -> int:
    """The command."""
    here = settings()
    status, text = answer(here, sys.argv[1:], lambda: holders(here.root, stranger_mib=here.machine.stranger_memory_mib))
    sys.stdout.write(text)
    return status


def _fields(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _chosen(arguments: Sequence[str], options: dict[str, str]) -> set[str]:
    """GPUs named by `-i N` or `--id=N`, as indices or UUIDs."""
    text = options.get("--id", "") or options.get("-i", "")
    if not text and "-i" in arguments[:-1]:
        text = arguments[list(arguments).index("-i") + 1]
    return {part.strip() for part in text.split(",") if part.strip()}


def _unit(name: str, bare: bool) -> str:
    unit = next((u for prefix, u in UNITS.items() if name.startswith(prefix)), None)
    return f" {unit}" if unit and not bare else ""


def _heading(name: str, bare: bool) -> str:
    unit = next((u for prefix, u in UNITS.items() if name.startswith(prefix)), None)
    return f"{name} [{unit}]" if unit else name


def _title(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            return file.read().split(b"\0")[0].decode(errors="replace") or "[Not Found]"
    except OSError:
        return "[Not Found]"


if __name__ == "__main__":
    sys.exit(main())
