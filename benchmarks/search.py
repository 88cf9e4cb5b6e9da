# ruff: noqa: S311 - simulations are seeded on purpose
"""Launches until a search has found a configuration within 2 % of the best: random, plain TPE and ours.

    python -m benchmarks.search [SEEDS]

Two surfaces of the simulated host, both with interactions and with failures: decoding without a draft, and
speculation, where the number of draft tokens pays only when calls are cheap. TPE needs the extra `search` (Optuna).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from itertools import product
from multiprocessing import Pool
from random import Random
from statistics import median
from typing import Any

from orchestrator.core.search import Point, RandomSearch, Space, Strategy, SurrogateSearch, Trial, Value, Variable
from orchestrator.lab.hardware.model import Constants, Setup, nccl_ring_ms, pressure, step_ms

CONSTANTS = Constants()
MOST = 80
CLOSE = 0.98
LAUNCH_NOISE = 0.01


def call_ms(values: dict[str, Value]) -> float | None:
    """c of the communicator; None where the launch fails."""
    if values["algorithm"] == "tree":
        return None if values["graphs"] else CONSTANTS.nccl_tree_ms
    if values["algorithm"] == "custom":
        return CONSTANTS.custom_pcie_ms
    channels = int(str(values["channels"]))
    buffer = 1 + 0.04 * abs(math.log2(int(str(values["buffer_kib"])) / 1024)) / 6 * (2 if channels > 8 else 1)
    return nccl_ring_ms(CONSTANTS, channels) * buffer


def plain(values: dict[str, Value]) -> float | None:
    call = call_ms(values)
    if call is None:
        return None
    setup = Setup(
        call,
        expert_parallel=bool(values["expert_parallel"]),
        under_graph=bool(values["graphs"]),
        graph_max_bs=int(str(values["graph_max_bs"])),
    )
    return 1000.0 / step_ms(CONSTANTS, setup)


def speculative(values: dict[str, Value]) -> float | None:
    """Each further draft token is accepted less often and costs arithmetic; memory pressure grows with both."""
    call = call_ms(values)
    draft, batch = int(str(values["draft_tokens"])), int(str(values["graph_max_bs"]))
    if call is None or (draft >= 6 and batch >= 384):
        return None  # out of memory
    setup = Setup(
        call,
        speculative=True,
        draft_tokens=draft,
        expert_parallel=bool(values["expert_parallel"]),
        under_graph=bool(values["graphs"]),
        graph_max_bs=batch,
    )
    tokens = 1 + sum(0.62**k for k in range(1, draft + 1))
    cycle_ms = step_ms(CONSTANTS, setup) + 1.1 * (draft - 1) * pressure(CONSTANTS, batch)
    return 1000.0 * tokens / cycle_ms


SHARED = (
    Variable(name="channels", values=(1, 2, 4, 8, 16, 32), ordered=True),
    Variable(name="algorithm", values=("ring", "tree", "custom")),
    Variable(name="graphs", values=(True, False)),
    Variable(name="expert_parallel", values=(False, True)),
    Variable(name="graph_max_bs", values=(64, 128, 192, 256, 384, 512), ordered=True),
    Variable(name="buffer_kib", values=(64, 256, 1024, 4096, 16384), ordered=True),
)
SURFACES: dict[str, tuple[Space, Callable[[dict[str, Value]], float | None]]] = {
    "plain": (Space(variables=SHARED), plain),
    "speculative": (
        Space(variables=(*SHARED, Variable(name="draft_tokens", values=(1, 2, 3, 4, 5, 6, 8), ordered=True))),
        speculative,
    ),
}


class TpeSearch:
    """Optuna's TPE with its own defaults, by ask and tell."""

    name = "TPE"

    def __init__(self, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        self._open: Any = None

    def ask(self, space: Space, trials: Iterable[Trial]) -> Point | None:
        done = list(trials)
        if done and self._open is not None:
            value = done[-1].value
            if value is None:
                self._study.tell(self._open, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._study.tell(self._open, value)
        trial = self._study.ask()
        self._open = trial
        point = []
        for variable in space.variables:
            count = len(variable.values)
            if variable.ordered:
                point.append(trial.suggest_int(variable.name, 0, count - 1))
            else:
                point.append(trial.suggest_categorical(variable.name, list(range(count))))
        return tuple(point)


STRATEGIES: dict[str, Callable[[int], Strategy]] = {
    "random": RandomSearch,
    "TPE": TpeSearch,
    "ours": SurrogateSearch,
}


def best_value(surface: str) -> float:
    space, measure = SURFACES[surface]
    points = product(*(range(len(v.values)) for v in space.variables))
    return max(v for p in points if (v := measure(space.values(p))) is not None)


def launches(task: tuple[str, str, int, float]) -> int:
    """Launches, failed ones too, until a point within 2 % of the best was launched; `MOST` + 1 where none was."""
    surface, name, seed, best = task
    space, measure = SURFACES[surface]
    strategy, trials = STRATEGIES[name](seed), list[Trial]()
    rng = Random(f"{surface}/{seed}")
    for number in range(1, MOST + 1):
        point = strategy.ask(space, trials)
        if point is None:
            break
        value = measure(space.values(point))
        if value is not None and value >= CLOSE * best:
            return number
        seen = None if value is None else value * math.exp(rng.gauss(0, LAUNCH_NOISE))
        trials.append(Trial(point=point, value=seen))
    return MOST + 1


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(f"Launches to within 2 % of the best, {seeds} seeds, at most {MOST}: median (quartiles).\n")
    print("| surface | points | " + " | ".join(STRATEGIES) + " |")
    print("|---|---|" + "---|" * len(STRATEGIES))
    with Pool(2) as pool:
        for surface, (space, _) in SURFACES.items():
            best = best_value(surface)
            cells = []
            for name in STRATEGIES:
                found = sorted(pool.map(launches, [(surface, name, seed, best) for seed in range(seeds)], chunksize=1))
                cells.append(f"{median(found):g} ({found[seeds // 4]}–{found[(3 * seeds) // 4]})")
            print(f"| {surface} | {space.size} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
