"""What a run claims beside the tree: its GPUs and its port, which other trees of the machine may want too."""

from __future__ import annotations

from collections.abc import Sequence


def resources_of(devices: Sequence[str], gpus: Sequence[int] | None, port: int) -> list[str]:
    """As the agent's `open` takes them. A control device such as nvidiactl belongs to no card."""
    claimed = [f"port:{port}"]
    for path in devices:
        number = path[len(path.rstrip("0123456789")) :]
        if number and (gpus is None or int(number) in gpus):
            claimed.append(f"device:{path}")
    return sorted(set(claimed))
