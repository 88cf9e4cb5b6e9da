"""When a copy of the tree is advised."""

from __future__ import annotations

from orchestrator.core.neighbours import Neighbour, advise, as_neighbours

SEEN = {
    "pid": 7, "user": "bert", "why": "it runs /venv/bin/python", "cmdline": ["python", "-m", "sglang"], "state": "S",
    "descends_from_guard": False, "is_ancestor_of_agent": False,
}  # fmt: skip
BERT = Neighbour(7, "bert", "it runs /venv/bin/python", "python -m sglang")


def test_our_own_launches_and_the_dead_are_no_neighbours() -> None:
    assert as_neighbours([SEEN]) == [BERT]
    for change in ({"descends_from_guard": True}, {"is_ancestor_of_agent": True}, {"state": "Z"}):
        assert as_neighbours([SEEN | change]) == []


def test_each_reason_is_a_sentence_and_a_copy_needs_none() -> None:
    reasons = advise("in_place", [BERT], is_writable=False, owner_uid=1000, our_uid=1001)
    assert len(reasons) == 3
    assert "pid 7 of bert" in reasons[2]
    assert advise("shadow", [BERT], is_writable=False, owner_uid=1000, our_uid=1001) == []
    assert advise("in_place", [], is_writable=True, owner_uid=0, our_uid=0) == []
