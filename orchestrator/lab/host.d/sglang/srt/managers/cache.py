"""The prefix cache: which leading words of a prompt were computed before."""

from __future__ import annotations

CAPACITY = 64


class RadixCache:
    """The last prompts, whole. What a new prompt shares with one of them from the start is not computed again."""

    def __init__(self, *, is_disabled: bool) -> None:
        self._is_disabled = is_disabled
        self._prompts: list[list[str]] = []

    def match(self, words: list[str]) -> int:
        """Cached tokens of this prompt, which is remembered from now on. Its last token is always computed."""
        if self._is_disabled:
            return 0
        best = max((_common(words, known) for known in self._prompts), default=0)
        self._prompts = [*self._prompts[-(CAPACITY - 1) :], words]
        return min(best, len(words) - 1)

    def flush(self) -> None:
        self._prompts = []


def _common(left: list[str], right: list[str]) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count
