"""What all models of a playbook are made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Model(BaseModel):
    """Frozen, no unknown keys, no silent conversions of numbers to text."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def _env_text(value: object) -> object:
    """YAML reads `8` and `true` as what they look like; an environment holds text."""
    if isinstance(value, bool):
        raise ValueError("write an environment value as text: '1', '0', 'true' or 'false'")
    return str(value) if isinstance(value, int | float) else value


EnvValue = Annotated[str | None, BeforeValidator(_env_text, json_schema_input_type=str | int | float | None)]
"""Text sets the variable, null unsets it."""

FlagValue = bool | int | float | str | list[Any] | dict[str, Any] | None
"""`true` is a bare flag, `null` or `false` removes it, a list gives the words after it, a mapping becomes JSON."""
