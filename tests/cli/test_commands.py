"""Every command: one-screen help with an example, JSON, and the options that its kind must have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from orchestrator.cli.main import build_app

CHANGES_HOSTS = {"run", "host recover", "host release", "host reap", "host forget"}


def commands(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    children = getattr(node, "commands", None)
    if children is None:
        yield " ".join(path), node
        return
    for name, child in children.items():
        yield from commands(child, (*path, name))


ALL = dict(commands(typer.main.get_command(build_app())))


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_command_speaks_json(name: str) -> None:
    """Agents and scripts can use each of them."""
    assert "--json" in {option for param in ALL[name].params for option in param.opts}


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_command_explains_itself_with_an_example(name: str) -> None:
    """The help says what it does and shows a line that can be typed."""
    text = ALL[name].help or ""
    assert f"Example: orchestrator {name}" in text


@pytest.mark.parametrize("name", sorted(CHANGES_HOSTS))
def test_commands_that_change_a_host_take_a_state_directory_and_consent(name: str) -> None:
    """What changes a host is recorded somewhere, and can be agreed to beforehand."""
    assert {"--state", "--yes"} <= {option for param in ALL[name].params for option in param.opts}
