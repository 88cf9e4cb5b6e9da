"""The configuration of one launch: flags and environment, layered, and turned into words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.core.model import Context, FlagValue, Target


@dataclass(frozen=True)
class Configuration:
    """What a server is launched with, beyond the target's own interpreter and port.

    `flags` as in a playbook's `args`; `env` text or None (unset); `site` file name → source of a directory that goes
    first on the server's `PYTHONPATH`.
    """

    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    site: Mapping[str, bytes] = field(default_factory=dict)

    def over(self, flags: Mapping[str, FlagValue], env: Mapping[str, str | None]) -> Configuration:
        """This configuration with further layers on top."""
        return Configuration(merge_flags(self.flags, flags), {**self.env, **env}, self.site)


def baseline_configuration(target: Target, context: Context) -> Configuration:
    """The target's known-good configuration in one context."""
    return Configuration(target.args, target.env).over(context.args, context.env)


def merge_flags(*layers: Mapping[str, FlagValue]) -> dict[str, FlagValue]:
    """Later layers win; `None` removes a flag, and stays out of the result."""
    merged: dict[str, FlagValue] = {}
    for layer in layers:
        merged.update(layer)
    return {name: value for name, value in merged.items() if value is not None}


def merge_env(*layers: Mapping[str, str | None]) -> dict[str, str]:
    """Later layers win; `None` unsets a variable."""
    merged: dict[str, str | None] = {}
    for layer in layers:
        merged.update(layer)
    return {name: value for name, value in merged.items() if value is not None}


def flag_words(flags: Mapping[str, FlagValue]) -> list[str]:
    """Flags as the server's command line has them, in the order of the mapping.

    Values travel as single words of an argument vector, so quotes, spaces and JSON arrive as they were written.
    """
    words: list[str] = []
    for name, value in flags.items():
        if value is None or value is False:
            continue
        words.append(f"--{name}")
        if value is not True:
            words.extend(_value_words(value))
    return words


def _value_words(value: FlagValue) -> list[str]:
    if isinstance(value, dict):
        return [json.dumps(value)]
    if isinstance(value, list):
        return [word for item in value for word in _value_words(item)]
    return [str(value)]


def flag_key(name: str) -> str:
    """`ep-size` → `ep_size`, the name under which a server reports a flag."""
    return name.replace("-", "_")
