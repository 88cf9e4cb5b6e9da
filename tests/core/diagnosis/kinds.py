"""Short logs of many kinds in the words of the engines, each with the category and the part of the line that decides.

They stand for kinds that the longer fixture logs do not show. `decides` is empty where no line does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).parents[2] / "fixtures" / "logs" / "kinds.jsonl"


@dataclass(frozen=True)
class Kind:
    """One short log and what is to be found in it."""

    name: str
    category: str
    decides: str
    text: str


KINDS: tuple[Kind, ...] = tuple(Kind(**json.loads(line)) for line in _FILE.read_text("utf-8").splitlines())
