# ruff: noqa: S311 - simulations are seeded on purpose
"""How often a change that does nothing is kept, how often a real one is found, and what a verdict costs.

    python -m benchmarks.calibration [EXPERIMENTS]

Launches of the simulated host's plain context, on a clock of the model: within-launch noise for each of three samples,
between-launch noise for each launch, and a drift of the level with time. Arms are launched and looked at as the
controller does. The noise of the host is learned from A/A launches before, of the same simulation, or not at all.

Beside it a fixed design: Welch's test once, at the same error, with as many launches as give it the same power.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from multiprocessing import Pool
from random import Random
from statistics import fmean, median, stdev

from orchestrator.core.distributions import t_tail
from orchestrator.core.noise import Noise, between_launch_noise, launches_to_plan
from orchestrator.core.records import Verdict
from orchestrator.core.stats import KEEP_SHARE, Judgement, LaunchValue, is_look, judge, launch_value, next_arm
from orchestrator.lab.hardware.model import Constants, Setup, expected_tps, nccl_ring_ms

MIN_EFFECT = 0.02
SAMPLES, TOKENS = 3, 256
READY_S = 300.0
LEARNED_LAUNCHES = 8
ERROR = 0.05 * KEEP_SHARE


@dataclass(frozen=True)
class Setting:
    """Noise within and between launches, drift as a share an hour: steady, or a wave with that steepest slope."""

    within: float
    between: float
    drift: float
    shape: str = "steady"
    is_learned: bool = True

    @property
    def launch_cv(self) -> float:
        return math.sqrt(self.between**2 + self.within**2 / SAMPLES)

    @property
    def most(self) -> int:
        return launches_to_plan(self.launch_cv, 2 * MIN_EFFECT)

    @property
    def words(self) -> str:
        drift = f"{self.drift:.0%}/h {self.shape}" if self.drift else "none"
        return f"{self.within:.0%} | {self.between:.0%} | {drift} | {'learned' if self.is_learned else 'unknown'}"


@dataclass
class Machine:
    """The simulated host: a clock, a level that drifts, and a seed."""

    setting: Setting
    rng: Random
    clock_s: float = 0.0
    phase: float = field(init=False)
    sign: float = field(init=False)

    def __post_init__(self) -> None:
        self.phase, self.sign = self.rng.uniform(0, 2 * math.pi), self.rng.choice((-1.0, 1.0))

    def launch(self, gain: float) -> LaunchValue:
        self.clock_s += READY_S
        started = self.clock_s
        factor = (1 + gain) * math.exp(self.rng.gauss(0, self.setting.between))
        samples = []
        for _ in range(SAMPLES):
            level = self._level() * factor * math.exp(self.rng.gauss(0, self.setting.within))
            samples.append((float(TOKENS), TOKENS / (base_tps() * level)))
            self.clock_s += samples[-1][1]
        return LaunchValue(launch_value(samples).value, at_s=started)

    def _level(self) -> float:
        hours, drift = self.clock_s / 3600, self.setting.drift
        if self.setting.shape == "wave":
            return 1 + drift / 2 * math.sin(2 * hours + self.phase)
        return math.exp(self.sign * drift * hours)


@lru_cache(maxsize=1)
def base_tps() -> float:
    """Tokens a second of the simulated host in its plain context, sixteen channels."""
    constants = Constants()
    return expected_tps(constants, Setup(call_ms=nccl_ring_ms(constants, 16)))


def experiment(setting: Setting, gain: float, seed: str) -> tuple[Judgement, int]:
    """One verdict, and the launches of both arms that it took. A screened win is measured again, in full."""
    machine = Machine(setting, Random(seed))
    stored = learn(machine) if setting.is_learned else None
    said, launches = measure(machine, gain, stored, screening=True)
    if said.screened and said.verdict is Verdict.improved:
        said, more = measure(machine, gain, stored, screening=False)
        launches += more
    return said, launches


def measure(machine: Machine, gain: float, stored: Noise | None, *, screening: bool) -> tuple[Judgement, int]:
    """Launches as the controller makes them, until no more are wanted."""
    setting = machine.setting
    arms: dict[str, list[LaunchValue]] = {"baseline": [], "treatment": []}
    while True:
        counts = len(arms["baseline"]), len(arms["treatment"])
        if is_look(*counts):
            said = judge(
                arms["baseline"],
                arms["treatment"],
                direction="higher",
                min_effect=MIN_EFFECT,
                max_launches=setting.most,
                stored=stored,
                screening=screening,
            )
            if not said.needs_more:
                return said, sum(counts)
        arm = next_arm(*counts)
        arms[arm].append(machine.launch(gain if arm == "treatment" else 0.0))


def learn(machine: Machine) -> Noise:
    """Noise as A/A launches of the baseline show it, each pair next to each other in time."""
    values = [machine.launch(0.0).value for _ in range(LEARNED_LAUNCHES)]
    differences = [math.log(b / a) for a, b in zip(values[::2], values[1::2], strict=True)]
    spread = math.sqrt(fmean(d * d for d in differences) / 2)
    return Noise(spread, len(differences)) if spread else between_launch_noise(values)


def fixed_power(setting: Setting, launches: int, gain: float, rounds: int = 4000) -> float:
    """Power of Welch's test with this many launches of each arm, all of them made; no drift, in its favour."""
    rng = Random(f"fixed/{setting.launch_cv}/{launches}")
    found = 0
    for _ in range(rounds):
        arms = [[rng.gauss(shift, setting.launch_cv) for _ in range(launches)] for shift in (0.0, math.log1p(gain))]
        parts = [stdev(arm) ** 2 / launches for arm in arms]
        df = sum(parts) ** 2 / (sum(p**2 for p in parts) / (launches - 1))
        effect = fmean(arms[1]) - fmean(arms[0])
        found += effect >= MIN_EFFECT and t_tail(effect / math.sqrt(sum(parts)), df) < ERROR
    return found / rounds


@lru_cache(maxsize=64)
def fixed_launches(launch_cv: float, power: float) -> int:
    """Launches of both arms that the fixed design needs for the power; two of each at the least."""
    setting = Setting(0.0, launch_cv, 0.0)
    launches = 2
    while fixed_power(setting, launches, 2 * MIN_EFFECT) < power:
        launches += 1 if launches < 12 else 2
    return 2 * launches


def upper_bound(count: int, of: int) -> float:
    """Upper 95 % bound of a rate (Wilson, one-sided)."""
    z, rate = 1.6449, count / of
    middle = rate + z * z / (2 * of)
    return (middle + z * math.sqrt(rate * (1 - rate) / of + z * z / (4 * of * of))) / (1 + z * z / of)


def row(task: tuple[Setting, int]) -> tuple[str, int]:
    setting, number = task
    null = [experiment(setting, 0.0, f"null/{setting}/{i}") for i in range(number)]
    kept = sum(said.verdict is Verdict.improved for said, _ in null)
    real = [experiment(setting, 2 * MIN_EFFECT, f"real/{setting}/{i}") for i in range(max(200, number // 2))]
    power = sum(said.verdict is Verdict.improved for said, _ in real) / len(real)
    fixed = fixed_launches(round(setting.launch_cv, 4), round(power, 2))
    usual, idle = median(n for _, n in real), median(n for _, n in null)
    text = (
        f"| {setting.words} | {kept / number:.1%} (≤ {upper_bound(kept, number):.1%}) | {power:.0%} | {fixed} |"
        f" {usual:g} ({usual / fixed:.0%}) | {idle:g} ({idle / fixed:.0%}) | {2 * setting.most} |"
    )
    return text, kept


def settings() -> Iterator[Setting]:
    for within, between in product((0.01, 0.05), (0.01, 0.05)):
        for drift, shape in ((0.0, "steady"), (0.05, "steady"), (0.05, "wave")):
            yield Setting(within, between, drift, shape)
    for within in (0.01, 0.05):
        yield Setting(within, 0.03, 0.05)
    for within, between in product((0.01, 0.05), (0.01, 0.05)):
        yield Setting(within, between, 0.05, is_learned=False)


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    print(f"Null experiments in each row: {number}. Smallest effect of interest 2 %, true effect 4 %.")
    print("Launches are of both arms: median, and its share of the fixed design's.\n")
    print("| within | between | drift | noise | false keeps (95 % bound) | power | fixed | real | null | most |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    tasks = [(setting, number) for setting in settings()]
    kept = 0
    with Pool(2) as pool:
        for text, false_keeps in pool.imap(row, tasks):
            print(text, flush=True)
            kept += false_keeps
    total = number * len(tasks)
    print(f"\nAll together: {kept} of {total} kept, {kept / total:.2%}, 95 % bound {upper_bound(kept, total):.2%}.")


if __name__ == "__main__":
    main()
