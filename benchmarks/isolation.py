"""How many questions the isolation of a failed bundle asks, beside ddmin, leave-one-out and linear search.

    python -m benchmarks.isolation [BUNDLES]

Random bundles: half of them fail by two members that interact, a quarter by one, a quarter by two independent ones.
Every question is a launch. `right`: exactly the culprits were named, all of them.
"""

# ruff: noqa: S311 - simulations are seeded on purpose

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from random import Random
from statistics import median

from orchestrator.core.isolation import Answer, Isolation, ask, result, tell

Sets = set[frozenset[int]]
Oracle = Callable[[frozenset[int]], bool]
KINDS = ("together", "single", "together", "apart")
LABELS = {"together": "two, interacting", "apart": "two, independent", "single": "one"}


class Counting:
    """Answers whether members fail, counts the questions, and is wrong at the given rate."""

    def __init__(self, culprits: Sets, rng: Random, error_rate: float) -> None:
        self._culprits, self._rng, self._error_rate = culprits, rng, error_rate
        self.questions = 0

    def __call__(self, members: frozenset[int]) -> bool:
        self.questions += 1
        return any(c <= members for c in self._culprits) != (self._rng.random() < self._error_rate)


def ours(count: int, oracle: Oracle, error_rate: float) -> Sets:
    members = tuple(str(i) for i in range(count))
    kind = "verdict" if error_rate else "crash"
    state = Isolation.model_validate({"members": members, "oracle": kind, "error_rate": error_rate})
    while (question := ask(state)) is not None:
        failed = oracle(frozenset(map(int, question.members)))
        state = tell(state, question.members, Answer.fails if failed else Answer.passes)
    ended = result(state)
    return {frozenset(map(int, c)) for c in ended.culprits} if ended else set()


def ddmin(count: int, oracle: Oracle, error_rate: float) -> Sets:
    """Zeller's minimising delta debugging, with the answers remembered: one minimal failing set."""
    memory: dict[frozenset[int], bool] = {}

    def fails(members: Sequence[int]) -> bool:
        key = frozenset(members)
        if key and key not in memory:
            memory[key] = oracle(key)
        return bool(key) and memory[key]

    members, parts = list(range(count)), 2
    while len(members) >= 2:
        size = len(members) / parts
        chunks = [members[round(i * size) : round((i + 1) * size)] for i in range(parts)]
        rests = [[m for m in members if m not in chunk] for chunk in chunks]
        if (smaller := next((c for c in chunks if fails(c)), None)) is not None:
            members, parts = smaller, 2
        elif (smaller := next((r for r in rests if fails(r)), None)) is not None:
            members, parts = smaller, max(parts - 1, 2)
        elif parts < len(members):
            parts = min(len(members), 2 * parts)
        else:
            break
    return {frozenset(members)}


def leave_one_out(count: int, oracle: Oracle, error_rate: float) -> Sets:
    """Those without which the rest passes, taken as one set."""
    everyone = frozenset(range(count))
    needed = frozenset(i for i in range(count) if not oracle(everyone - {i}))
    return {needed} if needed else set()


def linear(count: int, oracle: Oracle, error_rate: float) -> Sets:
    """Each member alone."""
    return {frozenset({i}) for i in range(count) if oracle(frozenset({i}))}


METHODS: dict[str, Callable[[int, Oracle, float], Sets]] = {
    "ours": ours,
    "ddmin": ddmin,
    "leave one out": leave_one_out,
    "linear": linear,
}


def bundles(number: int, count: int | None) -> Iterator[tuple[int, str, Sets]]:
    """(members, kind, culprits); `count` None: 2 to 16 members."""
    rng = Random(f"bundles/{number}/{count}")
    for i in range(number):
        size, kind = count or rng.randint(2, 16), KINDS[i % 4]
        a, b = rng.sample(range(size), 2)
        sets = {"together": [{a, b}], "apart": [{a}, {b}], "single": [{a}]}[kind]
        yield size, kind, {frozenset(s) for s in sets}


def rows(number: int, count: int | None, error_rate: float) -> Iterator[str]:
    for method, find in METHODS.items():
        asked: dict[str, list[int]] = {kind: [] for kind in LABELS}
        right = 0
        for i, (size, kind, culprits) in enumerate(bundles(number, count)):
            oracle = Counting(culprits, Random(f"answers/{i}"), error_rate)
            right += find(size, oracle, error_rate) == culprits
            asked[kind].append(oracle.questions)
        cells = [f"{median(asked[k]):g} (max {max(asked[k])})" for k in LABELS]
        members = count or "2–16"
        kind_of = f"verdict, {error_rate:.0%} wrong" if error_rate else "crash"
        yield f"| {kind_of} | {members} | {method} | {right / number:.1%} | {' | '.join(cells)} |"


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    print(f"Bundles in each row: {number}. Questions: median (largest).\n")
    print("| question | members | method | right | " + " | ".join(LABELS.values()) + " |")
    print("|---|---|---|---|---|---|---|")
    for error_rate in (0.0, 0.02):
        for count in (None, 8, 16):
            for row in rows(number, count, error_rate):
                print(row, flush=True)


if __name__ == "__main__":
    main()
