"""The campaign's own rows are ranked, closed, reopened and announced with the reasons a person would give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.planning import (
    Candidate,
    HostFacts,
    Member,
    Past,
    changed_facts,
    closed_families,
    due,
    evaluate,
    family_odds,
    family_record,
    members_alone,
    rank,
    weigh,
)
from orchestrator.core.records import Verdict
from orchestrator.errors import PlaybookError, UsageError

# ---------------------------------------------------------------- rank


def test_rank_is_gain_times_odds_over_cost() -> None:
    """More gain, better odds and less time come first, and the reason shows the product."""
    ranked = rank(
        [
            Candidate("slow", 0.10, 0.5, 7200),
            Candidate("sure", 0.10, 0.9, 3600),
            Candidate("small", 0.02, 0.5, 1200),
            Candidate("unstated"),
        ]
    )
    assert [r.id for r in ranked] == ["sure", "small", "slow", "unstated"]
    assert ranked[0].reason == "+10.0 % expected × 90% odds ÷ 60 min = 9.00 % an hour"
    assert "+1.0 % assumed" in ranked[3].reason


def test_what_others_wait_for_comes_before_them_and_moves_up() -> None:
    """A worthless prerequisite of the best hypothesis overtakes the second best; a decided one holds nobody back."""
    rows = [
        Candidate("second", 0.05),
        Candidate("probe", 0.0),
        Candidate("best", 0.5, after=("probe", "baseline")),
    ]
    ranked = rank(rows, decided=["baseline"])
    assert [r.id for r in ranked] == ["probe", "best", "second"]
    assert "moved up" in ranked[0].reason
    assert ranked[1].waits_for == ("probe",)
    assert [r.id for r in rank(rows, decided=["baseline", "probe"])] == ["best", "second", "probe"]


def test_waiting_for_something_outside_the_list_is_said() -> None:
    """With a part of the list chosen, a missing prerequisite blocks nothing and is named."""
    [ranked] = rank([Candidate("b", 0.1, after=("a",))])
    assert ranked.waits_for == ("a",)
    assert ranked.reason.endswith("after a")


def test_a_circle_is_refused() -> None:
    """Hypotheses that wait for one another have no order."""
    with pytest.raises(PlaybookError, match="circle: a, b"):
        rank([Candidate("a", after=("b",)), Candidate("b", after=("a",)), Candidate("c")])


@given(st.data())
def test_no_order_puts_a_hypothesis_before_what_it_waits_for(data: st.DataObject) -> None:
    """Whatever the scores, everything appears once and after its prerequisites."""
    count = data.draw(st.integers(1, 8))
    rows = [
        Candidate(
            str(n),
            data.draw(st.floats(-0.5, 0.5)),
            data.draw(st.floats(0, 1)),
            data.draw(st.floats(0, 1e5)),
            tuple(data.draw(st.lists(st.sampled_from([str(i) for i in range(n)]), unique=True))) if n else (),
        )
        for n in range(count)
    ]
    order = [r.id for r in rank(rows[::-1])]
    assert sorted(order) == sorted(row.id for row in rows)
    for row in rows:
        assert all(order.index(before) < order.index(row.id) for before in row.after)


def test_a_family_that_failed_four_times_has_worse_odds() -> None:
    """Odds start even, fall with each failure and never reach zero."""
    assert family_odds(0, 0) == 0.5
    assert 0 < family_odds(0, 4) < family_odds(0, 1) < 0.5 < family_odds(1, 0)


# ---------------------------------------------------------------- due

FUSION = Past(3, Verdict.crashed, {"flashinfer-python": "0.6.1", "gpu_arch": "12.0"})


def test_a_dead_end_reopens_when_a_fact_it_names_changes() -> None:
    """The fusion stays closed on the same FlashInfer and is due again on a newer one, with the fact named."""
    same = due(["fusion"], {"fusion": [FUSION]}, {"flashinfer-python": "0.6.1", "gpu_arch": "12.0", "other": "x"})
    assert (same[0].is_due, same[0].why) == (False, "finding #3 holds: crashed")
    newer = due(["fusion"], {"fusion": [FUSION]}, {"flashinfer-python": "0.7.0", "gpu_arch": "12.0"})
    assert newer[0].is_due
    assert newer[0].why == "reopened: #3 crashed: flashinfer-python was 0.6.1, is 0.7.0"


def test_a_fact_that_was_not_probed_reopens_nothing() -> None:
    """Not knowing a fact is no change of it; knowing that it is gone is one."""
    assert changed_facts(FUSION.depends_on, {"gpu_arch": "12.0"}) == []
    assert changed_facts(FUSION.depends_on, {"flashinfer-python": None}) == ["flashinfer-python was 0.6.1, is absent"]


def test_a_finding_that_holds_again_counts_again() -> None:
    """Back on the old version the old finding holds, though a later one was made under other facts."""
    later = Past(9, Verdict.no_effect, {"flashinfer-python": "0.7.0"})
    [said] = due(["fusion"], {"fusion": [FUSION, later]}, {"flashinfer-python": "0.6.1", "gpu_arch": "12.0"})
    assert (said.is_due, said.why) == (False, "finding #3 holds: crashed")


@pytest.mark.parametrize(
    ("past", "is_due"),
    [
        ([], True),
        ([Past(1, Verdict.aborted)], True),
        ([Past(1, Verdict.invalid)], True),
        ([Past(1, Verdict.not_applicable)], True),
        ([Past(1, Verdict.not_applicable, {"mscclpp": "0.1"})], False),
        ([Past(1, Verdict.improved)], False),
        ([Past(1, Verdict.inconclusive)], False),
        ([Past(1, Verdict.no_effect), Past(2, Verdict.aborted)], False),
    ],
)
def test_only_an_end_that_says_something_closes(past: list[Past], is_due: bool) -> None:
    """An aborted or contaminated experiment leaves its hypothesis due; a later abort does not undo a finding."""
    [said] = due(["h"], {"h": past}, {"mscclpp": "0.1"})
    assert said.is_due is is_due


def test_only_chooses_and_again_repeats() -> None:
    """`--only` leaves the others out; a finding still holds unless asked for again; a wrong name is refused."""
    found = {"a": [Past(1, Verdict.regressed)]}
    assert [(d.id, d.is_due) for d in due(["a", "b"], found, {}, only=["a"])] == [("a", False)]
    assert [(d.id, d.is_due) for d in due(["a", "b"], found, {}, only=["a"], again=True)] == [("a", True)]
    with pytest.raises(UsageError) as caught:
        due(["fusion", "b"], {}, {}, only=["fuson"])
    assert caught.value.hint == "did you mean 'fusion'?"


# ---------------------------------------------------------------- families

NCCL = [
    Member("fusion", "replace-nccl", Verdict.crashed),
    Member("custom-ar", "replace-nccl", Verdict.regressed),
    Member("mscclpp", "replace-nccl", Verdict.not_applicable, "not installed"),
]


def test_a_family_closed_but_for_one_that_could_not_be_tried_is_announced() -> None:
    """The announcement names the exception with its reason and the family that comes next in the ranking."""
    others = [Member("ep", "fewer-calls"), Member("lone", "")]
    [closed] = closed_families([*NCCL, *others], order=["lone", "ep"])
    assert closed.sentence == (
        "family replace-nccl is closed except mscclpp: not installed (tried: fusion crashed, custom-ar regressed); "
        "next family: fewer-calls"
    )


@pytest.mark.parametrize("verdict", [None, Verdict.improved, Verdict.aborted, Verdict.invalid])
def test_an_open_member_or_a_win_keeps_a_family_open(verdict: Verdict | None) -> None:
    """Nothing is announced while a member is to be tried, or one has won."""
    assert closed_families([*NCCL, Member("x", "replace-nccl", verdict)]) == []


def test_a_family_none_of_which_could_be_tried_did_not_fail() -> None:
    """All members inapplicable or undecided: said so, not counted as tried."""
    [closed] = closed_families([NCCL[2], Member("y", "replace-nccl", Verdict.inconclusive)])
    assert closed.sentence == (
        "family replace-nccl: no member could be decided (mscclpp: not installed, y: inconclusive)"
    )


# ---------------------------------------------------------------- preconditions

FACTS = HostFacts(
    {"sglang": "0.5.10.post1", "flashinfer_python": "0.6.1", "odd": "main-3fa2"},
    ("12.0",) * 8,
    {"sglang/srt/layers/communicator.py": True, "gone.py": False},
)


@pytest.mark.parametrize(
    ("packages", "is_met", "evidence"),
    [
        ({"sglang": ">=0.5.9,<0.5.20"}, True, "sglang 0.5.10.post1 satisfies >=0.5.9,<0.5.20"),
        ({"sglang": ">=0.5.22"}, False, "sglang 0.5.10.post1 does not satisfy >=0.5.22"),
        ({"FlashInfer-Python": "*"}, True, "FlashInfer-Python 0.6.1 is installed"),
        ({"mscclpp": "*"}, False, "mscclpp: not installed"),
        ({"odd": ">=1"}, False, "odd main-3fa2 cannot be compared with >=1: 'main-3fa2' is not a version"),
    ],
)
def test_packages_are_judged_with_evidence(packages: dict[str, str], is_met: bool, evidence: str) -> None:
    """Met or unmet, the sentence shows what is installed; names compare as the package index does."""
    [said] = evaluate(FACTS, packages=packages)
    assert (said.is_met, said.evidence) == (is_met, evidence)


@pytest.mark.parametrize(
    ("wanted", "is_met"),
    [(("12.0",), True), (("sm_120",), True), (("sm90a", "sm120"), True), (("9.0", "10.0"), False), (("12",), True)],
)
def test_gpu_architectures_are_judged_in_any_spelling(wanted: tuple[str, ...], is_met: bool) -> None:
    """Compute capabilities compare by number, however they are written."""
    [said] = evaluate(FACTS, gpu_arch=wanted)
    assert said.is_met is is_met
    assert "the GPUs are 12.0" in said.evidence


def test_what_is_unknown_is_unmet_and_says_so() -> None:
    """No GPU, a mixed host, a missing file and one not probed are all unmet, each in its own words."""
    assert [m.evidence for m in evaluate(HostFacts({}), gpu_arch=("12.0",))] == ["no GPU was found"]
    assert not evaluate(HostFacts({}, ("12.0", "9.0")), gpu_arch=("12.0",))[0].is_met
    said = evaluate(FACTS, files=("sglang/srt/layers/communicator.py", "gone.py", "other.py"))
    assert [(m.is_met, m.evidence.split(" ", 1)[1]) for m in said] == [
        (True, "is there"),
        (False, "is not there"),
        (False, "was not probed"),
    ]


# ---------------------------------------------------------------- bundles


def test_innocent_members_of_a_failed_bundle_return_first() -> None:
    """Each member never measured alone is proposed alone: those the diagnosis does not suspect first."""
    alone = members_alone("fusion+channels", ["patch", "channels", "known"], suspects=["patch"], measured=["known"])
    assert [a.member for a in alone] == ["channels", "patch"]
    assert "never measured alone" in alone[0].reason
    assert alone[1].reason.startswith("suspected")


# ---------------------------------------------------------------- what is known of a candidate


def test_a_candidate_is_weighed_by_all_that_is_known() -> None:
    """Expectation capped by the budget, odds from family and lever, halved by a probe that never raises them."""
    said = weigh("ep", expected=0.8, ceiling=0.4, record=(0, 4), lever_odds=0.5, probe_factor=0.5, cost_s=600)
    assert said.gain == 0.4
    assert said.odds == pytest.approx((1 / 6 + 0.5) / 2 / 2)
    assert weigh("x", expected=None, ceiling=0.3).gain == 0.15
    assert weigh("x", expected=0.1).odds == weigh("x", expected=0.1, probe_factor=3.0).odds == 0.5


def test_a_familys_record_counts_wins_and_losses_only() -> None:
    """What is not applicable, undecided, contaminated or open is neither."""
    verdicts = ["improved", "crashed", "regressed", "not_applicable", "inconclusive", "invalid", None]
    members = [Member(str(i), "f", Verdict(v) if v else None) for i, v in enumerate(verdicts)]
    assert family_record([*members, Member("other", "g", Verdict.improved)], "f") == (1, 2)


def test_a_closed_family_says_what_its_members_have_in_common() -> None:
    """Four ways to reduce failed on the same architecture: the announcement names it, and what comes next."""
    arch = {"gpu_arch": "12.0", "mscclpp": "absent"}
    members = [
        Member("fusion", "all-reduce", Verdict.crashed, depends_on={**arch, "flashinfer-python": "0.6.1"}),
        Member("symm", "all-reduce", Verdict.crashed, depends_on={**arch, "torch": "2.9"}),
        Member("mscclpp", "all-reduce", Verdict.not_applicable, "not installed"),
        Member("ep", "fewer-calls"),
    ]
    [closed] = closed_families(members, ["ep"])
    assert closed.sentence == (
        "family all-reduce is closed except mscclpp: not installed (tried: fusion crashed, symm crashed);"
        " all of them depend on gpu_arch 12.0; next family: fewer-calls"
    )
