"""Which devices a run claims."""

from __future__ import annotations

from orchestrator.controller.claims import resources_of


def test_only_the_targets_own_cards_and_its_port_are_claimed() -> None:
    """A control device belongs to no card; without `gpus` all cards are meant."""
    devices = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia10", "/dev/nvidiactl"]
    assert resources_of(devices, (1, 10), 30000) == ["device:/dev/nvidia1", "device:/dev/nvidia10", "port:30000"]
    assert resources_of(devices, None, 1) == [
        "device:/dev/nvidia0",
        "device:/dev/nvidia1",
        "device:/dev/nvidia10",
        "port:1",
    ]
    assert resources_of([], None, 8) == ["port:8"]
