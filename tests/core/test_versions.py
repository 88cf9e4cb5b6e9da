"""Our comparison of versions agrees with `packaging`, which tests may use and the product does not need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version as TheirVersion

from orchestrator.core.versions import BadVersion, parse_version, satisfies

RELEASE = st.sampled_from(["0", "1", "1.0", "1.0.0", "1.0.1", "1.2", "0.5.10", "0.5.9", "2", "12.10"])
PRE = st.sampled_from(["", "a1", "b2", "rc1", "rc2", "-alpha.1", "c3"])
POST = st.sampled_from(["", ".post1", ".post2", "-1", ".rev3"])
DEV = st.sampled_from(["", ".dev0", ".dev3"])
LOCAL = st.sampled_from(["", "+cu128", "+2", "+2.cu128"])
EPOCH = st.sampled_from(["", "", "", "1!"])
PUBLIC = st.builds("".join, st.tuples(EPOCH, RELEASE, PRE, POST, DEV))
VERSION = st.builds("".join, st.tuples(PUBLIC, LOCAL))


@given(VERSION, VERSION)
def test_versions_sort_as_pep_440_says(a: str, b: str) -> None:
    """Any two versions compare as `packaging` compares them, post, pre, dev and local parts included."""
    ours, theirs = (parse_version(a), parse_version(b)), (TheirVersion(a), TheirVersion(b))
    assert (ours[0].key < ours[1].key) == (theirs[0] < theirs[1])
    assert (ours[0].key == ours[1].key) == (theirs[0] == theirs[1])


@given(VERSION, st.sampled_from(["==", "!=", ">=", "<=", ">", "<", "~="]), PUBLIC)
def test_conditions_hold_as_pep_440_says(version: str, sign: str, wanted: str) -> None:
    """Every comparison has `packaging`'s outcome for what is installed, pre-releases counted."""
    if sign == "~=" and "." not in parse_release(wanted):
        with pytest.raises(BadVersion):
            satisfies(version, sign + wanted)
        return
    theirs = SpecifierSet(sign + wanted).contains(version, prereleases=True)
    assert satisfies(version, sign + wanted) == theirs


@given(VERSION, st.sampled_from(["==", "!="]), EPOCH, RELEASE)
def test_prefixes_match_as_pep_440_says(version: str, sign: str, epoch: str, release: str) -> None:
    """`==1.2.*` and `!=1.2.*` agree with `packaging`."""
    condition = f"{sign}{epoch}{release}.*"
    assert satisfies(version, condition) == SpecifierSet(condition).contains(version, prereleases=True)


def parse_release(text: str) -> str:
    return ".".join(str(n) for n in parse_version(text).release)


@pytest.mark.parametrize(
    ("version", "conditions", "is_met"),
    [
        ("0.5.10.post1", ">=0.5.9,<0.5.20", True),
        ("0.5.22", ">=0.5.9, <0.5.20", False),
        ("0.5.10.post1", "==0.5.10", False),
        ("0.5.10.post1", ">0.5.10", False),
        ("0.5.9", "<0.5.10", True),
        ("2.9.1+cu128", "==2.9.1", True),
        ("580.65.06", ">=550", True),
        ("anything at all", "*", True),
        ("1.0", "", True),
        ("1.0-x", "===1.0-X", True),
    ],
)
def test_conditions_as_playbooks_write_them(version: str, conditions: str, is_met: bool) -> None:
    """Ranges, post releases, local builds and driver versions come out as a person reads them."""
    assert satisfies(version, conditions) is is_met


@pytest.mark.parametrize("conditions", ["0.5", ">=", "~=1", ">=1.*", "=>1", "==x"])
def test_what_is_no_condition_is_refused(conditions: str) -> None:
    """A condition that means nothing is an error, never a quiet yes or no."""
    with pytest.raises(BadVersion):
        satisfies("1.0", conditions)
