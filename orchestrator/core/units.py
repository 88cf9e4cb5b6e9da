"""Durations, sizes and percentages as people write them: `30m`, `16MiB`, `2%`.

A bare number is refused where a unit decides the meaning: `lease: 30` has cost somebody an afternoon.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema

AS_WRITTEN = "as written"
"""Validation context for text from a file: numbers without a unit are refused, even `0.5`."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)")
_BYTES = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_PERCENT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*%")


def parse_duration(value: object) -> float:
    """`1h30m`, `45s`, `200ms` → seconds."""
    text = str(value).strip()
    parts = _DURATION.findall(text)
    if isinstance(value, bool) or not parts or "".join(n + u for n, u in parts) != text:
        raise ValueError(f"{value!r} is not a duration; write a number with ms, s, m, h or d, such as 30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def parse_size(value: object) -> int:
    """`16MiB`, `2GB` → bytes."""
    found = _SIZE.fullmatch(str(value).strip())
    if not found:
        raise ValueError(f"{value!r} is not a size; write a number with a unit, such as 16MiB or 2GB")
    return int(float(found[1]) * _BYTES[found[2]])


def parse_percent(value: object) -> float:
    """`2%` → 0.02."""
    found = _PERCENT.fullmatch(str(value).strip())
    if not found:
        raise ValueError(f"{value!r} is not a percentage; write it with the sign, such as 2%")
    return float(found[1]) / 100.0


def show_duration(seconds: float) -> str:
    """Seconds → the shortest text that `parse_duration` reads back to the millisecond."""
    milliseconds = round(seconds * 1000)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def show_percent(fraction: float) -> str:
    return f"{fraction * 100:g}%"


def _already(kind: type, parse: object) -> object:
    """A model built in Python passes numbers; what a person wrote (context `AS_WRITTEN`) needs a unit."""

    def read(value: object, info: ValidationInfo) -> object:
        if info.context != AS_WRITTEN and isinstance(value, kind) and not isinstance(value, bool):
            return value
        return parse(value)  # type: ignore[operator]

    return read


Duration = Annotated[
    float,
    BeforeValidator(_already(float, parse_duration)),
    PlainSerializer(show_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|s|m|h|d))+$", "examples": ["30m", "1h30m"]}),
]
Percent = Annotated[
    float,
    BeforeValidator(_already(float, parse_percent)),
    PlainSerializer(show_percent, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^[+-]?\d+(\.\d+)?\s*%$", "examples": ["2%", "+5%"]}),
]
Size = Annotated[
    int,
    BeforeValidator(_already(int, parse_size)),
    WithJsonSchema({"type": "string", "examples": ["16MiB", "2GB"]}),
]
