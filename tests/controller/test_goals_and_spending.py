"""What a goal is judged on, what may still be spent, what a probe leaves, and where a search asks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from orchestrator.controller.goals import intervals
from orchestrator.controller.searching import OptunaSearch, hypothesis_at, point_of, space_of
from orchestrator.controller.spending import until
from orchestrator.controller.weighing import ceiling, judge_probe
from orchestrator.core.model import Goal, Hypothesis, Playbook, Probe, Search
from orchestrator.core.search import Point, Trial
from orchestrator.errors import UsageError


def launch(tps: float, accepted: float | None = None) -> list[dict[str, Any]]:
    sample = {"repetition": 0, "ok": True, "decode_tokens": 100, "decode_s": 100 / tps, "ttft_s": 0.01}
    return [{**sample, "accept_length": accepted}]


def test_the_verify_pass_is_its_share_of_a_cycle() -> None:
    """60 tokens a second at 1.88 a cycle make 31.3 ms, 97 % of them verify; the fastest end is the shortest."""
    goal = Goal(conditions=("speculative.verify_ms < 15",), verify_share=0.97)
    told = intervals([launch(60.0, 1.88), launch(60.0, 1.88)], goal)
    assert told["cycle_ms"].value == pytest.approx(31.33, abs=0.01)
    assert told["verify_ms"].value == pytest.approx(30.39, abs=0.01)
    assert told["verify_ms"].low < told["verify_ms"].value < told["verify_ms"].high
    assert "verify_ms" not in intervals([launch(60.0)], goal)


def test_one_launch_is_as_sure_as_the_stated_noise() -> None:
    told = intervals([launch(80.0)], Goal(conditions=("plain.output_tps > 1",)))["output_tps"]
    assert told.high == pytest.approx(80 * (1 + 1.96 * 0.03), rel=1e-3)


def test_until_is_today_or_tomorrow_and_never_past() -> None:
    """A time of day that is over is meant tomorrow; a date that is over, and other words, are refused."""
    now = datetime(2026, 3, 1, 12, 0).astimezone()
    assert until("18:00", now.timestamp()) - now.timestamp() == 6 * 3600
    assert until("06:00", now.timestamp()) - now.timestamp() == 18 * 3600
    assert until("2026-03-02T12:00", now.timestamp()) - now.timestamp() == 24 * 3600
    for word in ("2026-02-01T12:00", "soon", "25:00"):
        with pytest.raises(UsageError):
            until(word, now.timestamp())


def test_a_probe_demotes_and_never_promotes() -> None:
    """Half of the assumed gain leaves half of the odds; more than assumed, or no number, leaves them as they are."""
    probe = Probe(command=("x",), pattern="(.)", now=200.0, then=100.0)
    assert judge_probe(probe, 133.33)[0] == pytest.approx(0.5, abs=0.001)
    assert judge_probe(probe, 300.0)[0] == 0.0
    assert judge_probe(probe, 50.0)[0] == 1.0
    assert judge_probe(probe, None)[0] == 1.0


def test_the_bottleneck_caps_what_a_hypothesis_could_gain() -> None:
    """122 calls of 0.2 ms beside 6 ms: half the calls are + 67 % at most; without `pull` nothing is said."""
    row = {"id": "a", "claim": "c", "changes": [{"env": {"A": "1"}}]}
    plan = Playbook.model_validate(
        {
            "campaign": "c",
            "bottleneck": {"calls": 122, "cost": "0.2ms", "rest": "6ms"},
            "hypotheses": [{**row, "pull": {"lever": "calls", "calls": 61}}, {**row, "id": "b"}],
        }
    )
    limit = ceiling(plan, plan.hypotheses[0])
    assert limit is not None
    assert limit.gain == pytest.approx(0.67, abs=0.01)
    assert ceiling(plan, plan.hypotheses[1]) is None


SPEC = Search.model_validate(
    {
        "space": [
            {"env": "A", "values": ["1", "2", "4"], "ordered": True},
            {"args": "b", "values": [8, 16]},
            {"sitecustomize": "C", "values": [None, "x"]},
        ]
    }
)


def test_a_point_is_a_hypothesis_and_comes_back_from_its_name() -> None:
    row: Hypothesis = hypothesis_at(SPEC, (2, 0, 1), "plain")
    assert point_of(row.id) == (2, 0, 1)
    assert row.claim == "A = 4, b = 8, C = x"
    assert [next(iter(c.model_dump(exclude_unset=True))) for c in row.changes] == ["env", "sitecustomize", "args"]


def test_optuna_proposes_what_was_not_tried_and_the_same_when_asked_again() -> None:
    """Failures are infeasible trials; every point is proposed once, and then none."""
    pytest.importorskip("optuna")
    space, trials = space_of(SPEC), list[Trial]()
    seen: list[Point] = []
    while (point := OptunaSearch(1).ask(space, trials)) is not None:
        assert OptunaSearch(1).ask(space, trials) == point
        assert point not in seen
        seen.append(point)
        trials.append(Trial(point=point, value=None if point[0] == 0 else float(sum(point))))
    assert len(seen) == 12
