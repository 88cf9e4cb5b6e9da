"""What differs between two nestings of facts, one line for each place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ABSENT = "absent"
_LONGEST = 160


@dataclass(frozen=True)
class Difference:
    """`was` and `now` as text, `absent` where there is nothing."""

    name: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.name}: {self.was} → {self.now}"


def differences(was: Any, now: Any, *, ignore: Collection[str] = ()) -> list[Difference]:  # noqa: ANN401 - any JSON
    """By dotted name, sorted; lists are compared place by place. Names in `ignore` are left out at any depth."""
    before, after = dict(_flat(was, "", ignore)), dict(_flat(now, "", ignore))
    return [
        Difference(name, before.get(name, ABSENT), after.get(name, ABSENT))
        for name in sorted(before.keys() | after.keys())
        if before.get(name, ABSENT) != after.get(name, ABSENT)
    ]


def _flat(value: Any, name: str, ignore: Collection[str]) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any JSON
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key not in ignore:
                yield from _flat(part, f"{name}.{key}" if name else str(key), ignore)
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _flat(part, f"{name}[{number}]", ignore)
    elif value is not None:
        text = str(value)
        yield name or "value", text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
