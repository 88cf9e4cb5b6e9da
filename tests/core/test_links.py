"""Links between the GPUs of a target."""

from __future__ import annotations

import pytest

from orchestrator.core.links import kinds_between, unmet_links

LINKS = (("X", "NV18", "SYS"), ("NV18", "X", "SYS"), ("SYS", "SYS", "X"))


@pytest.mark.parametrize(
    ("gpus", "wanted", "why"),
    [
        ((0, 1), ("NV*",), None),
        (None, ("NV*",), "GPUs are joined by SYS, and NV* is required"),
        (None, ("NV*", "SYS"), None),
        (None, (), None),
        ((2,), ("NV*",), "no link between GPUs was seen, and NV* is required"),
        ((0, 7), ("NV*",), "no link between GPUs was seen, and NV* is required"),
    ],
)
def test_only_links_between_the_targets_own_gpus_count(
    gpus: tuple[int, ...] | None, wanted: tuple[str, ...], why: str | None
) -> None:
    """A pair of NVLink cards in a host whose others are joined over PCIe."""
    assert unmet_links(wanted, kinds_between(LINKS, gpus)) == why
