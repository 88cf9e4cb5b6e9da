"""Each signature proves itself: its example matches, its counter-example does not."""

from __future__ import annotations

import pytest

from orchestrator.core.diagnosis.model import CATEGORIES
from orchestrator.core.diagnosis.reading import Reading
from orchestrator.core.diagnosis.signature import Role, Signature
from orchestrator.core.diagnosis.signatures import SIGNATURES
from orchestrator.core.diagnosis.undecided import KILLED, OOM, UNSPECIFIC


def _matching(text: str) -> set[str]:
    return {hit.signature.id for hit in Reading(text).hits}


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.id)
def test_the_example_matches_and_the_counter_example_does_not(signature: Signature) -> None:
    """Read as a log, the example has a hit of this signature and the counter-example has none."""
    assert signature.id in _matching(signature.example)
    assert signature.id not in _matching(signature.counter)


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.id)
def test_a_signature_says_what_it_means(signature: Signature) -> None:
    """Category, cause and remedy are filled in, and one literal at least is long enough to be searched for."""
    if signature.role in (Role.ROOT, Role.SYMPTOM):
        assert signature.category in (*CATEGORIES, OOM, KILLED, UNSPECIFIC)
        assert signature.remedy
    assert signature.cause
    assert signature.literals


def test_ids_are_unique() -> None:
    """No two signatures share an id."""
    assert len({signature.id for signature in SIGNATURES}) == len(SIGNATURES)
