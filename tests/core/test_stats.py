"""Verdicts rest on launches: known cases, real samples, and simulations that count false keeps."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats  # type: ignore[import-untyped]

from orchestrator.core.distributions import t_quantile, t_tail
from orchestrator.core.records import Verdict
from orchestrator.core.stats import (
    Judgement,
    LaunchValue,
    Noise,
    between_launch_noise,
    judge,
    launch_order,
    launch_value,
    launches_needed,
    percentile,
    pool_noise,
    summarise,
)

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "fixtures/samples/h200-launches.jsonl").read_text().splitlines()
]
TOKENS = 256


def launches(pair: str, arm: str, metric: str, most: int = 99) -> list[LaunchValue]:
    """Real launches in order. Each sample is a rate over the same number of tokens."""
    rows = [row for row in ROWS if row["pair"] == pair and row["arm"] == arm][:most]
    return [launch_value((TOKENS, TOKENS / rate) for rate in row[metric]) for row in rows]


def values(*numbers: float) -> list[LaunchValue]:
    return [LaunchValue(number) for number in numbers]


def compare(a: list[LaunchValue], b: list[LaunchValue], **options: Any) -> Judgement:
    defaults: dict[str, Any] = {"direction": "higher", "min_effect": 0.02, "max_launches": 3}
    return judge(a, b, **{**defaults, **options})


# ---------------------------------------------------------------- the distribution


@given(st.floats(0.3, 1e6), st.floats(0.5001, 0.9999))
def test_t_quantiles_agree_with_scipy(df: float, p: float) -> None:
    """Our own inversion gives scipy's numbers, for fractional degrees of freedom too."""
    assert t_quantile(p, df) == pytest.approx(scipy_stats.t.ppf(p, df), rel=1e-7, abs=1e-8)


@given(st.floats(0.3, 1e4), st.floats(-50, 50))
def test_t_tails_agree_with_scipy(df: float, t: float) -> None:
    """The tail is scipy's survival function, on both sides of zero."""
    assert t_tail(t, df) == pytest.approx(scipy_stats.t.sf(t, df), rel=1e-8, abs=1e-12)


def test_known_noise_is_the_normal_distribution() -> None:
    """Infinite degrees of freedom give the normal quantile, and impossible arguments are refused."""
    assert t_quantile(0.975, math.inf) == pytest.approx(1.959964, abs=1e-6)
    assert t_quantile(0.025, 5) == -t_quantile(0.975, 5)
    for p, df in ((0.0, 1.0), (1.0, 1.0), (0.5, 0.0)):
        with pytest.raises(ValueError, match="no t quantile"):
            t_quantile(p, df)


def test_the_interval_is_welchs() -> None:
    """With equal looks the interval on logarithms is scipy's Welch interval."""
    a, b = [101.0, 99.0, 103.0], [110.0, 120.0, 111.0]
    ours = compare(values(*a), values(*b))
    assert ours.confidence is not None
    theirs = scipy_stats.ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval(ours.confidence)
    assert ours.ci_low_pct == pytest.approx(100 * math.expm1(theirs.low), rel=1e-6)
    assert ours.ci_high_pct == pytest.approx(100 * math.expm1(theirs.high), rel=1e-6)
    assert ours.confidence == pytest.approx(0.95, abs=0.03)


# ---------------------------------------------------------------- cases


def arm_of(mean: float, cv: float) -> list[LaunchValue]:
    """Three launches with this mean and this relative deviation."""
    return values(mean * (1 - cv), mean, mean * (1 + cv))


@pytest.mark.parametrize("effect", [0.9, 1.1])
def test_ten_percent_under_seventeen_percent_noise_is_no_conclusion(effect: float) -> None:
    """Three launches of 12298 tok/s ± 17.4 % cannot tell a difference of 10 %."""
    said = compare(arm_of(12298, 0.174), arm_of(12298 * effect, 0.174))
    assert said.verdict is Verdict.inconclusive
    assert not said.needs_more
    assert "too noisy" in said.reason


def test_ten_percent_under_little_noise_is_a_conclusion() -> None:
    """The row beside it, ± 3.5 %, does tell 15 %, and more launches are asked for where it does not."""
    assert compare(arm_of(100, 0.035), arm_of(115, 0.035)).verdict is Verdict.improved
    open_ = compare(arm_of(100, 0.035), arm_of(105, 0.035), max_launches=8)
    assert (open_.verdict, open_.needs_more) == (Verdict.inconclusive, True)
    assert open_.more_launches is not None
    assert 1 <= open_.more_launches <= 5


def test_a_clear_difference_of_single_launches_is_kept_under_stored_noise() -> None:
    """171.8 against 182.8 with a stored noise of 1 % is kept as +6.4 %, and marked as resting on one launch."""
    said = compare(values(171.8), values(182.8), stored=Noise(0.01, 10))
    assert said.verdict is Verdict.improved
    assert said.screened
    assert said.effect_pct == pytest.approx(6.4, abs=0.05)
    assert said.effect == pytest.approx(11.0, abs=1e-9)
    unknown = compare(values(171.8), values(182.8))
    assert (unknown.verdict, unknown.needs_more) == (Verdict.inconclusive, True)


@pytest.mark.parametrize(("metric", "effect_pct"), [("streamed", -4.6), ("whole", -3.9)])
def test_fewer_channels_come_out_regressed_by_either_metric(metric: str, effect_pct: float) -> None:
    """Real launches, nothing stored: both metrics are regressions, with the effects stated for them."""
    said = compare(launches("channels", "A", metric), launches("channels", "B", metric))
    assert said.verdict is Verdict.regressed, said.reason
    assert not said.screened
    assert said.effect_pct == pytest.approx(effect_pct, abs=0.1)


def test_whole_requests_decide_after_two_launches() -> None:
    """Real launches, nothing stored: the first two of each arm are enough for `whole`."""
    said = compare(launches("channels", "A", "whole", 2), launches("channels", "B", "whole", 2))
    assert said.verdict is Verdict.regressed, said.reason


def test_the_quieter_metric_decides_sooner() -> None:
    """With the A/A noise of each metric stored, one launch of each arm decides by `streamed` and not by `whole`."""
    single, needed = {}, {}
    for metric in ("streamed", "whole"):
        stored = between_launch_noise([launch.value for launch in launches("channels", "A", metric)])
        a, b = launches("channels", "A", metric, 1), launches("channels", "B", metric, 1)
        single[metric] = compare(a, b, stored=stored)
        needed[metric] = launches_needed(stored.cv, 0.01) or math.inf
    assert (single["streamed"].verdict, single["streamed"].screened) == (Verdict.regressed, True)
    assert (single["whole"].verdict, single["whole"].needs_more) == (Verdict.inconclusive, True)
    assert needed["streamed"] < needed["whole"]


@pytest.mark.parametrize(("metric", "cv"), [("streamed", 0.006), ("whole", 0.008)])
def test_stored_noise_lets_two_launches_decide(metric: str, cv: float) -> None:
    """What is known of the noise is combined with what two launches show, and both metrics decide."""
    a, b = launches("channels", "A", metric, 2), launches("channels", "B", metric, 2)
    assert compare(a, b, stored=Noise(cv, 3)).verdict is Verdict.regressed


@pytest.mark.parametrize("metric", ["streamed", "whole"])
def test_an_unstable_arm_keeps_its_own_noise(metric: str) -> None:
    """Without overlap the server loses 26 to 31 %, and its own 4 % of noise makes the interval, not the baseline's."""
    a, b = launches("overlap", "A", metric), launches("overlap", "B", metric)
    said = compare(a, b)
    assert said.verdict is Verdict.regressed
    assert said.effect_pct is not None
    assert said.effect_pct < -25
    quiet = compare(a, b, stored=between_launch_noise([launch.value for launch in a]))
    assert quiet.noise_pct is not None
    assert quiet.noise_pct > 2.5


@pytest.mark.parametrize("stored", [None, Noise(0.006, 4)])
@pytest.mark.parametrize(("pair", "metric"), list(itertools.product(["channels", "overlap"], ["streamed", "whole"])))
def test_an_arm_against_itself_is_never_kept(pair: str, metric: str, stored: Noise | None) -> None:
    """Any two or more launches of the same arm, split in any way, are neither improved nor regressed."""
    noise = None if stored is None or metric == "whole" or pair == "overlap" else stored
    for arm in "AB":
        whole = launches(pair, arm, metric)
        for size in range(1, len(whole)):
            for chosen in itertools.combinations(range(len(whole)), size):
                left = [launch for i, launch in enumerate(whole) if i in chosen]
                right = [launch for i, launch in enumerate(whole) if i not in chosen]
                said = compare(left, right, stored=noise)
                assert said.verdict in (Verdict.inconclusive, Verdict.no_effect), said.reason


@pytest.mark.parametrize(("a", "b"), list(itertools.permutations([468.0, 474.0, 489.0], 2)))
def test_one_launch_of_an_unchanged_server_never_improves_on_another(a: float, b: float) -> None:
    """468, 474 and 489 tok/s are the same server: any two, one launch each, are not decided."""
    said = compare(values(a), values(b), max_launches=1)
    assert (said.verdict, said.needs_more, said.stop) == (Verdict.inconclusive, False, "limit")
    assert said.more_launches is not None


def test_equal_arms_come_out_as_no_effect() -> None:
    """An interval within the smallest effect of interest is a verdict of its own, not a failure to decide."""
    said = compare(values(100, 100.2, 99.9), values(100.1, 100.0, 100.3))
    assert said.verdict is Verdict.no_effect
    assert "±2 %" in said.reason


def test_a_real_but_small_effect_is_not_kept() -> None:
    """An effect surely above zero and below the smallest one of interest is not improved."""
    said = compare(values(100, 100.1, 99.9), values(101, 101.1, 100.9))
    assert said.verdict is Verdict.no_effect
    assert said.ci_low_pct is not None
    assert said.ci_low_pct > 0


def test_launches_that_agree_to_the_last_digit_are_not_infinitely_sure() -> None:
    """Equal values have no spread; a floor keeps the interval from collapsing."""
    said = compare(values(100, 100), values(100.3, 100.3), min_effect=0.001)
    assert said.verdict is Verdict.inconclusive
    assert said.noise_pct == pytest.approx(0.1)


def test_lower_is_better_turns_the_verdict_and_the_gain() -> None:
    """For a latency a fall is an improvement: the effect keeps its sign, the gain is positive."""
    said = compare(values(100, 101, 99), values(80, 81, 79), direction="lower")
    assert said.verdict is Verdict.improved
    assert said.effect_pct == pytest.approx(-20, abs=0.1)
    assert said.gain is not None
    assert said.gain_low is not None
    assert said.gain_high is not None
    assert 0 < said.gain_low < said.gain < said.gain_high
    assert compare(values(100, 101, 99), values(80, 81, 79)).verdict is Verdict.regressed


def test_no_valid_launch_is_said_and_never_a_number() -> None:
    """An arm without launches is inconclusive without an effect, and no launch has measured zero or nothing."""
    said = compare([], values(100))
    assert (said.verdict, said.effect, said.gain, said.needs_more) == (Verdict.inconclusive, None, None, True)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="cannot have measured"):
            LaunchValue(wrong)


@given(st.lists(st.floats(1, 1e4), min_size=1, max_size=5), st.lists(st.floats(1, 1e4), min_size=1, max_size=5))
def test_swapping_the_arms_swaps_the_verdict(a: list[float], b: list[float]) -> None:
    """No arm is favoured: a sure effect one way is the same effect the other way, up to the base of the percentage."""
    there, back = (compare(values(*x), values(*y), min_effect=1e-9) for x, y in ((a, b), (b, a)))
    mirror = {Verdict.improved: Verdict.regressed, Verdict.regressed: Verdict.improved}
    assert back.verdict is mirror.get(there.verdict, there.verdict)
    assert there.ci_low_pct is not None
    assert there.effect_pct is not None
    assert there.ci_high_pct is not None
    assert there.ci_low_pct <= there.effect_pct <= there.ci_high_pct


# ---------------------------------------------------------------- simulation


def campaign(rng: random.Random, *, cv: float, drift: float, most: int, effect: float = 0.0) -> Judgement:
    """Launches in the order A B B A …, judged after each pair as the controller does, until it stops asking."""
    arms: dict[str, list[LaunchValue]] = {"baseline": [], "treatment": []}
    level = 0.0
    for arm in launch_order(most):
        level += rng.gauss(0, drift)
        gain = effect if arm == "treatment" else 0.0
        arms[arm].append(LaunchValue(80 * math.exp(level + gain + rng.gauss(0, cv))))
        if len(arms["baseline"]) == len(arms["treatment"]):
            said = compare(arms["baseline"], arms["treatment"], min_effect=0.005, max_launches=most)
            if not said.needs_more:
                return said
    raise AssertionError("more launches were asked for than allowed")


@pytest.mark.parametrize(
    ("cv", "drift", "most"), [(0.01, 0.0, 3), (0.01, 0.01, 3), (0.02, 0.005, 5), (0.003, 0.003, 2)]
)
def test_false_keeps_stay_below_five_percent(cv: float, drift: float, most: int) -> None:
    """A against A with looks after every pair and a wandering level: kept in less than 5 %, allowing for chance."""
    rng = random.Random(20260301)
    rounds = 600
    said = Counter(campaign(rng, cv=cv, drift=drift, most=most).verdict for _ in range(rounds))
    sd = math.sqrt(0.05 * 0.95 / rounds)
    assert said[Verdict.improved] / rounds <= 0.05 + sd


def test_a_real_gain_is_found() -> None:
    """The same procedure is not deaf: +6 % under 1 % of noise is kept in most campaigns of three launches."""
    rng = random.Random(7)
    said = Counter(campaign(rng, cv=0.01, drift=0.002, most=3, effect=0.06).verdict for _ in range(200))
    assert said[Verdict.improved] >= 180


def test_the_order_meets_both_arms_with_the_same_drift() -> None:
    """A B B A: over an even number of launches a steady drift cancels, and neighbours share an apply."""
    order = launch_order(4)
    assert [arm[0] for arm in order] == list("bttbbttb")
    places = {arm: [i for i, a in enumerate(order) if a == arm] for arm in ("baseline", "treatment")}
    assert sum(places["baseline"]) == sum(places["treatment"])


# ---------------------------------------------------------------- small parts


def test_a_launch_is_a_ratio_of_sums() -> None:
    """Tokens over seconds of all samples, not the mean of their rates."""
    assert launch_value([(100, 1), (100, 3)]).value == 50
    with pytest.raises(ValueError, match="without measured time"):
        launch_value([])


def test_noise_is_measured_and_pooled_by_its_weight() -> None:
    """Noise of equal arms is their relative spread; pooling weighs squares by degrees of freedom."""
    noise = between_launch_noise([100, 101, 99])
    assert noise.cv == pytest.approx(0.01, rel=0.01)
    assert noise.df == 2
    pooled = pool_noise([Noise(0.01, 1), Noise(0.02, 3)])
    assert pooled.cv == pytest.approx(math.sqrt(13e-4 / 4))
    assert pooled.df == 4


def test_launches_needed_grows_with_noise_and_knows_its_limit() -> None:
    """More noise takes more launches; what no allowed number resolves is None."""
    few, many = launches_needed(0.005, 0.02), launches_needed(0.02, 0.02)
    assert few is not None
    assert many is not None
    assert few < many
    assert launches_needed(0.1, 0.001, limit=10) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0, 100))
def test_percentiles_agree_with_numpy(numbers: list[float], p: float) -> None:
    """Linear interpolation as numpy does it."""
    assert percentile(numbers, p) == pytest.approx(float(np.percentile(numbers, p)), rel=1e-9, abs=1e-6)


def test_a_summary_of_nothing_is_refused() -> None:
    """No samples are an error of the caller, never a row of zeros; one sample has no spread."""
    with pytest.raises(ValueError, match="no samples"):
        summarise([])
    assert summarise([5.0]).cv is None
    assert summarise([1.0, 3.0]).mean == 2.0
