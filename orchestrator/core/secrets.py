"""Which values must never be shown or stored, and how they are masked.

A name is secret when it holds, as whole words between underscores or dashes, TOKEN, API_KEY, ACCESS_KEY, SECRET or
PASSWORD: `HF_TOKEN` and `--api-key` are, `MAX_DISPATCH_TOKENS_PER_RANK` and `TOKENIZER_PATH` are not. Further names are
given by the playbook.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

MASK = "***"
_SHORTEST = 4  # a shorter value would blot out innocent text wherever it occurs
_SECRET = re.compile(r"(?:^|_)(?:TOKEN|API_KEY|ACCESS_KEY|SECRET|PASSWORD)(?:_|$)")
_WORD = re.compile(r"(?:--?|\b)([A-Za-z_][A-Za-z0-9_-]*)=(.*)", re.DOTALL)


def is_secret(name: str, extra: Collection[str] = ()) -> bool:
    """Whether the value of this variable or flag is secret; `extra` are further names, compared by the same folding."""
    folded = _fold(name)
    return _SECRET.search(folded) is not None or any(folded == _fold(other) for other in extra)


def mask_env(values: Mapping[str, str | None], extra: Collection[str] = ()) -> dict[str, str | None]:
    """The environment for display. Unset and empty values are shown as they are: they tell nothing."""
    return {name: MASK if value and is_secret(name, extra) else value for name, value in values.items()}


def mask_args(values: Mapping[str, Any], extra: Collection[str] = ()) -> dict[str, Any]:
    """Flags as a playbook writes them, for display; mappings inside of them too."""
    return {name: _mask_value(name, value, extra) for name, value in values.items()}


def mask_words(words: Sequence[str], extra: Collection[str] = ()) -> list[str]:
    """A command line for display: `--api-key VALUE`, `--api-key=VALUE` and `NAME=VALUE`."""
    shown: list[str] = []
    after_secret = False
    for word in words:
        if after_secret and not word.startswith("--"):
            shown.append(MASK)
            after_secret = False
            continue
        assignment = _WORD.fullmatch(word)
        if assignment and is_secret(assignment[1], extra):
            word = word[: assignment.start(2)] + MASK
        shown.append(word)
        after_secret = word.startswith("-") and "=" not in word and is_secret(word, extra)
    return shown


def secret_values(values: Mapping[str, Any], extra: Collection[str] = ()) -> set[str]:
    """Every secret text in an environment, in flags or in any nesting of mappings and lists."""
    return set(_secrets_in(values, extra, is_below_secret=False))


class Masker:
    """Replaces known secret values by `***` in any text or JSON, also where they are escaped or quoted."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = {form for value in values if len(value) >= _SHORTEST for form in _forms(value)}
        ordered = sorted(forms, key=lambda form: (-len(form), form))  # one secret may begin with another
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        return self._pattern.sub(MASK, text) if self._pattern else text

    def data(self, value: Any) -> Any:  # noqa: ANN401 - JSON in, the same JSON out
        """A copy of any JSON with every text masked, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.data(key): self.data(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(item) for item in value]
        return value


def _fold(name: str) -> str:
    return name.strip("-").replace("-", "_").upper()


def _mask_value(name: str, value: Any, extra: Collection[str]) -> Any:  # noqa: ANN401 - a flag's value
    if is_secret(name, extra) and value is not None and not isinstance(value, bool):
        return MASK
    if isinstance(value, Mapping):
        return mask_args(value, extra)
    if isinstance(value, list):
        return [mask_args(item, extra) if isinstance(item, Mapping) else item for item in value]
    return value


def _secrets_in(value: Any, extra: Collection[str], *, is_below_secret: bool) -> Iterator[str]:  # noqa: ANN401
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secrets_in(item, extra, is_below_secret=is_below_secret or is_secret(str(name), extra))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets_in(item, extra, is_below_secret=is_below_secret)
    elif is_below_secret and value is not None and not isinstance(value, bool):
        yield str(value)


def _forms(value: str) -> set[str]:
    """The value, and how JSON, a shell, Python and a URL write it."""
    return {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        shlex.quote(value),
        repr(value)[1:-1],
        quote(value, safe=""),
    }
