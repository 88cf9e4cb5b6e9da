"""How the doctor's steps and a host's fingerprint are shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.cli import output

if TYPE_CHECKING:
    from orchestrator.controller.hosts import Step

_PLAIN_FACTS = (
    "driver", "cuda", "cpu", "cpu_count", "numa_nodes", "governor", "kernel", "os", "boot_id",
    "python", "python_prefix", "engine_origin", "source_digest", "sitecustomize", "limits", "shm", "disk",
)  # fmt: skip


def show_steps(steps: Sequence[Step]) -> None:
    for step in steps:
        output.emit(f"{step.state:5} {step.name}: {step.sentence}")
        if step.hint:
            output.emit(f"      hint: {step.hint}")


def show_fingerprint(facts: Mapping[str, Any]) -> None:
    """One line a fact; cards and links that are alike are counted instead of repeated."""
    if not facts:
        return
    output.emit()
    cards = Counter(_card(gpu) for gpu in facts["gpus"])
    kinds = Counter(cell for row in facts["links"] for cell in row if cell != "X")
    versions = facts["packages"] or {}
    rows = [
        ("gpus", " + ".join(f"{count} × {card}" for card, count in cards.items())),
        ("links", ", ".join(f"{count // 2} × {kind}" for kind, count in kinds.items())),
        *((name.replace("_", " "), _fact(facts.get(name))) for name in _PLAIN_FACTS),
        ("packages", ", ".join(f"{name} {version}" for name, version in versions.items() if version)),
    ]
    for name, value in rows:
        output.emit(f"{name + ':':15} {value or 'unknown'}")


def _card(gpu: Mapping[str, Any]) -> str:
    link = f", PCIe {gpu['pcie_gen']} ×{gpu['pcie_width']}" if gpu["pcie_gen"] else ""
    return f"{gpu['name']} (compute capability {gpu['compute_cap']}, {gpu['memory_total_mib']} MiB{link})"


def _fact(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {item}" for name, item in value.items())
    return "" if value is None else str(value)
