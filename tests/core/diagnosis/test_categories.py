"""Every category has its meaning, and the page that people read shows it."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.core.diagnosis import CATEGORIES, Diagnosis, may_pass
from orchestrator.core.diagnosis.categories import MEANINGS
from orchestrator.core.diagnosis.passing import PASSING

PAGE = (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text(encoding="utf-8")


def test_each_category_has_a_meaning_and_no_other_has() -> None:
    """In the order in which the code lists them."""
    assert tuple(MEANINGS) == CATEGORIES
    assert set(CATEGORIES) > PASSING


def test_the_page_shows_what_the_code_says() -> None:
    """Category, meaning, remedy and whether a baseline is launched once more, row by row."""
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (yes|) ?\|$", PAGE, re.MULTILINE)
    assert rows == [(c, m.meaning, m.remedy, "yes" if c in PASSING else "") for c, m in MEANINGS.items()]


def test_only_a_failure_that_is_understood_and_passes_is_tried_again() -> None:
    """A hang, an unknown end and a healthy log are not; nor is a launch without a diagnosis."""
    assert may_pass(Diagnosis("failed", "port_in_use"))
    assert not may_pass(Diagnosis("failed", "patch_error"))
    assert not may_pass(Diagnosis("unknown", "unknown"))
    assert not may_pass(Diagnosis("healthy", "healthy"))
    assert not may_pass(None)
