"""A finding speaks of what was changed: other changes under the same name are another fact."""

from __future__ import annotations

from typing import Any

from orchestrator.controller.changesets import change_facts, fact_of
from orchestrator.controller.conclude import depends_on
from orchestrator.core.model import Hypothesis
from orchestrator.core.planning import Past, due
from orchestrator.core.records import Verdict


def _hypothesis(*changes: dict[str, Any], **more: object) -> Hypothesis:
    return Hypothesis.model_validate({"id": "one", "claim": "c", "changes": list(changes), **more})


def _fact(hypothesis: Hypothesis, **texts: bytes) -> str:
    return change_facts([hypothesis], texts)[fact_of("one")]


def test_other_values_are_due_again_and_other_words_about_them_are_not() -> None:
    """A finding holds while the claim is rewritten, and no longer once a value is another one."""
    tried = _hypothesis({"env": {"NCCL_MAX_NCHANNELS": "2"}})
    past = {"one": [Past(1, Verdict.no_effect, depends_on(tried, change_facts([tried], {})))]}
    reworded = _hypothesis({"env": {"NCCL_MAX_NCHANNELS": "2"}}, why="because")
    changed = _hypothesis({"env": {"NCCL_MAX_NCHANNELS": "4"}})
    assert not due(["one"], past, dict(change_facts([reworded], {})))[0].is_due
    assert due(["one"], past, dict(change_facts([changed], {})))[0].is_due


def test_an_edited_diff_is_another_change() -> None:
    """The name of a diff stays, its content does not."""
    patch = _hypothesis({"patch": "a.patch"})
    assert _fact(patch, **{"a.patch": b"-x\n+y\n"}) == _fact(patch, **{"a.patch": b"-x\n+y\n", "b.patch": b"other"})
    assert _fact(patch, **{"a.patch": b"-x\n+y\n"}) != _fact(patch, **{"a.patch": b"-x\n+z\n"})


def test_a_secret_is_not_part_of_the_digest() -> None:
    """Nobody can try passwords against the ledger, and a new token reopens nothing."""
    first, second = (_hypothesis({"env": {"HF_TOKEN": token}}) for token in ("first-token", "second-token"))
    assert _fact(first) == _fact(second)
