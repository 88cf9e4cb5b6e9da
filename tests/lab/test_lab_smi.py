"""nvidia-smi's formats, without a process."""

from __future__ import annotations

import pytest

from orchestrator.lab import Lab
from orchestrator.lab.hardware import Settings, read_settings
from orchestrator.lab.hardware.gpu import Holder, visible
from orchestrator.lab.hardware.smi import answer


@pytest.fixture
def settings(lab: Lab) -> Settings:
    return read_settings(lab.root)


def ask(settings: Settings, *arguments: str, held: tuple[Holder, ...] = ()) -> tuple[int, str]:
    return answer(settings, arguments, lambda: list(held))


def test_headings_and_units(settings: Settings) -> None:
    """csv has headings with units and values with units; noheader and nounits take them away."""
    fields = "--query-gpu=index,memory.total,power.draw,temperature.gpu"
    assert ask(settings, fields, "--format=csv", "-i", "2") == (
        0,
        "index, memory.total [MiB], power.draw [W], temperature.gpu\n2, 97887 MiB, 31.50 W, 31\n",
    )
    assert ask(settings, fields, "--format=csv,noheader,nounits", "--id=2") == (0, "2, 97887, 31.50, 31\n")


def test_an_unknown_field_is_an_error(settings: Settings) -> None:
    """In the words of the real one, exit status 2."""
    assert ask(settings, "--query-gpu=index,colour", "--format=csv") == (
        2,
        'Field "colour" is not a valid field to query.\n',
    )


def test_an_unknown_gpu_is_an_error(settings: Settings) -> None:
    """No such GPU: exit status 6."""
    assert ask(settings, "--query-gpu=index", "--format=csv", "-i", "99") == (6, "No devices were found\n")


def test_an_unknown_option_is_an_error(settings: Settings) -> None:
    """What it does not know it does not answer."""
    assert ask(settings, "--frobnicate")[0] == 2


def test_memory_adds_up_over_holders(settings: Settings) -> None:
    """Two holders of a GPU show together, cut at what the GPU has."""
    held = (Holder(1, 10, 60000), Holder(1, 11, 1000), Holder(2, 12, 999999))
    status, text = ask(settings, "--query-gpu=memory.used", "--format=csv,noheader,nounits", held=held)
    assert (status, text.split()[:4]) == (0, ["0", "61000", "97887", "0"])


def test_lists_and_topology(settings: Settings) -> None:
    """-L names eight GPUs, topo -m shows no NVLink, the table shows all."""
    assert ask(settings, "-L")[1].count("NVIDIA RTX PRO 6000 Blackwell Server Edition (UUID: GPU-") == 8
    assert "NV18" not in ask(settings, "topo", "-m")[1]
    assert ask(settings)[1].count("97887MiB") == 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, [0, 1, 2]), ("2,0", [2, 0]), ("", []), ("1,x,2", [1]), ("0,7", [0])],
)
def test_visible_devices(text: str | None, expected: list[int]) -> None:
    """CUDA_VISIBLE_DEVICES as CUDA reads it: in its order, up to the first entry that names no GPU."""
    assert visible({} if text is None else {"CUDA_VISIBLE_DEVICES": text}, 3) == expected
