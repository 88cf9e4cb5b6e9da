"""All minimal failing sets of a bundle, whatever their number and size.

Used where one or two culprits do not explain the answers. Each round asks about the members that are left when one
culprit of every known failing set is taken out: if that still fails, QuickXplain narrows it down to a further set; if
it passes in all ways, nothing was missed. Questions are yielded, answers sent back, so that the caller may replay them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from orchestrator.core.isolation.belief import bits

Asking = Generator[int, bool, list[int]]
Narrowing = Generator[int, bool, int]


def minimal_failures(everything: int, order: Sequence[int]) -> Asking:
    """`order`: members, the likeliest culprits first. Sets are bit masks; yields questions, returns what was found."""
    found: list[int] = []
    passing: list[int] = []
    while (seed := _unexplored(everything, found, passing)) is not None:
        if (yield seed):
            inside = [i for i in order if seed >> i & 1]
            found.append((yield from _narrow(0, inside, False)))
        else:
            passing.append(seed)
    return found


def _narrow(base: int, candidates: Sequence[int], has_grown: bool) -> Narrowing:
    """The members of `candidates` that, beside `base`, are needed for the failure."""
    if has_grown and (yield base):
        return 0
    if len(candidates) == 1:
        return 1 << candidates[0]
    half = len(candidates) // 2
    first, second = candidates[:half], candidates[half:]
    right = yield from _narrow(base | _mask(first), second, True)
    left = yield from _narrow(base | right, first, right != 0)
    return left | right


def remainders(everything: int, found: Sequence[int]) -> list[int]:
    """The largest sets that hold none of `found`: they pass if and only if nothing was missed."""
    hitting = {0}
    for failing in found:
        hitting = {h if h & failing else h | 1 << i for h in hitting for i in bits(failing)}
        hitting = {h for h in hitting if not any(o != h and o & h == o for o in hitting)}
    return sorted(everything & ~h for h in hitting)


def _unexplored(everything: int, found: Sequence[int], passing: Sequence[int]) -> int | None:
    for members in remainders(everything, found):
        if members and not any(members & p == members for p in passing):
            return members
    return None


def _mask(members: Sequence[int]) -> int:
    return sum(1 << i for i in members)
